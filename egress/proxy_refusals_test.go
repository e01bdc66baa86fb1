package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/internal/proxytest"
)

func TestRefusalsOfTheProxyAreToldApart(t *testing.T) {
	says := func(answer string) func(*proxytest.Asked) { return func(a *proxytest.Asked) { a.Say(answer) } }
	status := func(code int) func(*proxytest.Asked) {
		return says(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 7\r\nLocation: http://127.0.0.1/\r\n\r\nhunter2", code))
	}
	u := newUpstream(t, always(okAnswer))
	rows := map[string]struct {
		serve    func(*proxytest.Asked)
		terminal bool
		detail   string
	}{
		"redirect":            {status(302), true, "the egress proxy answered 302"},
		"bad request":         {status(400), true, "the egress proxy answered 400"},
		"forbidden":           {status(403), true, "the egress proxy answered 403"},
		"wants credentials":   {status(407), true, "the egress proxy answered 407"},
		"time-out":            {status(408), false, "the egress proxy answered 408"},
		"too early":           {status(425), false, "the egress proxy answered 425"},
		"too many":            {status(429), false, "the egress proxy answered 429"},
		"its own trouble":     {status(500), false, "the egress proxy answered 500"},
		"knows no CONNECT":    {status(501), true, "the egress proxy answered 501"},
		"no way to upstream":  {status(502), false, "the egress proxy answered 502"},
		"unavailable":         {status(503), false, "the egress proxy answered 503"},
		"upstream is silent":  {status(504), false, "the egress proxy answered 504"},
		"HTTP version":        {status(505), true, "the egress proxy answered 505"},
		"a body that lasts":   {func(a *proxytest.Asked) { a.Say("HTTP/1.1 403 X\r\n\r\n"); a.Hang() }, true, "the egress proxy answered 403"},
		"hangs up":            {says(""), false, "the egress proxy ended the connection without an answer"},
		"half an answer":      {says("HTTP/1.1 200 OK\r\nX:"), false, "the egress proxy ended the connection without an answer"},
		"resets":              {func(a *proxytest.Asked) { reset(a.Conn) }, false, "the egress proxy ended the connection without an answer"},
		"garbage":             {says("SSH-2.0-OpenSSH_9.9\r\n"), false, "the egress proxy's answer is malformed: not an HTTP/1.0 or HTTP/1.1 answer"},
		"switches protocols":  {status(101), false, "the egress proxy's answer is malformed: 101 to a request that asked for no upgrade"},
		"a status of 999":     {status(999), false, "the egress proxy's answer is malformed: status outside 100 to 599"},
		"a control byte":      {says("HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n"), false, "the egress proxy's answer is malformed: control byte in a field value"},
		"a head too large":    {says("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", tunnelHeadBytes) + "\r\n\r\n"), false, "the egress proxy's answer is too large: line over the limit"},
		"too many fields":     {says("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: x\r\n", tunnelFields+1) + "\r\n"), false, "the egress proxy's answer is too large: too many fields"},
		"a head without end":  {func(a *proxytest.Asked) { endlessly("HTTP/1.1 200 OK\r\n", "X: x\r\n")(a.Conn) }, false, "the egress proxy's answer is too large: too many fields"},
		"interims, no answer": {func(a *proxytest.Asked) { endlessly("", "HTTP/1.1 100 X\r\n\r\n")(a.Conn) }, false, "the egress proxy's answer is too large: too many interim answers"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			px := proxytest.Start(t, row.serve)
			r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", u.url("/"), "hunter2"), through(t, px.URL(), nil), attempt())
			want(t, r, call.EvidenceNotSent, call.FailureConnect)
			if r.Terminal != row.terminal || r.TimedOut || r.Detail != row.detail || r.RemoteAddress != "" || r.Status != 0 {
				t.Errorf("%+v, want terminal %t, %q", r, row.terminal, row.detail)
			}
			if n := px.Connections(); n != 1 {
				t.Errorf("%d connections to the proxy, want 1", n)
			}
		})
	}
	if n := u.connections(); n != 0 {
		t.Errorf("%d connections went round the proxy", n)
	}
}

func TestProxyThatIsNotThere(t *testing.T) {
	closed := proxytest.Start(t, nil)
	closed.Stop()
	rows := map[string]struct {
		url      string
		resolver resolver
		failure  call.Failure
		terminal bool
		detail   string
	}{
		"closed port":   {closed.URL(), resolver{}, call.FailureConnect, false, "the egress proxy: no connection: connection refused"},
		"no such name":  {"http://proxy.example.com:3128", resolver{}, call.FailureNameResolution, true, "the egress proxy: no such name"},
		"a sick server": {"http://proxy.example.com:3128", resolver{err: &net.DNSError{Err: "server misbehaving"}}, call.FailureNameResolution, false, "the egress proxy: the name was not resolved"},
	}
	for name, row := range rows {
		tr := newTransport(t, func(c *Config) { c.Resolver = &row.resolver })
		r := tr.Send(t.Context(), newCall(t, "POST", "http://127.0.0.1:8080/", "x"), through(t, row.url, nil), attempt())
		if r.Evidence != call.EvidenceNotSent || r.Failure != row.failure || r.Terminal != row.terminal || r.Detail != row.detail {
			t.Errorf("%s: %+v, want %s, terminal %t, %q", name, r, row.failure, row.terminal, row.detail)
		}
	}
}

// Evidence is that of the request's own bytes: those of CONNECT went to the proxy and are none.
func TestEvidenceThroughAProxy(t *testing.T) {
	a := newAuthority(t)
	stranger := newAuthority(t)
	u := newUpstream(t, overTLS(&tls.Config{Certificates: []tls.Certificate{stranger.server(t, nil)}}, always(okAnswer)))
	take := func(answer string) func(*proxytest.Asked) {
		return func(a *proxytest.Asked) {
			a.Say(proxytest.Established)
			_, _, _ = request(bufio.NewReader(a))
			a.Say(answer)
		}
	}
	rows := map[string]struct {
		scheme   string
		serve    func(*proxytest.Asked)
		evidence call.Evidence
		failure  call.Failure
		terminal bool
	}{
		"closes after the request":  {"http", take(""), call.EvidenceSentNoResponse, call.FailureConnectionLost, false},
		"closes within the answer":  {"http", take("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), call.EvidencePartialResponse, call.FailureConnectionLost, false},
		"closes at the handshake":   {"https", func(a *proxytest.Asked) { a.Say(proxytest.Established) }, call.EvidenceNotSent, call.FailureTLS, false},
		"another certificate":       {"https", nil, call.EvidenceNotSent, call.FailureTLS, true},
		"refuses the whole request": {"http", func(a *proxytest.Asked) { a.Say("HTTP/1.1 503 X\r\n\r\n") }, call.EvidenceNotSent, call.FailureConnect, false},
	}
	for name, row := range rows {
		px := proxytest.Start(t, row.serve)
		p := through(t, px.URL(), nil)
		p.Egress.TLS = a.trusting(t).Egress.TLS
		r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", row.scheme+"://"+u.listener.Addr().String()+"/", "x"), p, attempt())
		if r.Evidence != row.evidence || r.Failure != row.failure || r.Terminal != row.terminal {
			t.Errorf("%s: %s, %s (%s), terminal %t, want %s, %s, %t", name, r.Evidence, r.Failure, r.Detail, r.Terminal, row.evidence, row.failure, row.terminal)
		}
	}
}

func TestNextAddressIsAskedForWhereTheProxyRefusesOne(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	for name, row := range map[string]struct {
		first, second int // 0 opens the tunnel
		detail        string
		terminal      bool
	}{
		"one is down":           {502, 0, "", false},
		"one is forbidden":      {403, 0, "", false},
		"both are forbidden":    {403, 407, "the egress proxy answered 407", true},
		"forbidden, then down":  {403, 502, "the egress proxy answered 502", false},
		"down, then forbidden":  {502, 403, "the egress proxy answered 502", false},
		"down, then overloaded": {502, 503, "the egress proxy answered 503", false},
	} {
		px := proxytest.Start(t, func(a *proxytest.Asked) {
			code := map[string]int{"192.0.2.1:80": row.first, "192.0.2.2:80": row.second}[a.Target]
			if code == 0 {
				a.Forward(u.listener.Addr().String())
				return
			}
			a.Say(fmt.Sprintf("HTTP/1.1 %d X\r\n\r\n", code))
		})
		r := &resolver{answers: map[string][]netip.Addr{"api.example.com": addresses("192.0.2.1", "192.0.2.2")}}
		tr := newTransport(t, func(c *Config) { opening(c); c.Resolver = r })
		got := tr.Send(t.Context(), named(t, "GET", "http", "api.example.com", 80), through(t, px.URL(), nil), attempt())
		if row.second == 0 {
			want(t, got, call.EvidenceAnswered, call.FailureNone)
			if got.RemoteAddress != "192.0.2.2:80" {
				t.Errorf("%s: remote address %s", name, got.RemoteAddress)
			}
		} else if got.Failure != call.FailureConnect || got.Detail != row.detail || got.Terminal != row.terminal {
			t.Errorf("%s: %s, %q, terminal %t", name, got.Failure, got.Detail, got.Terminal)
		}
		if n := px.Connections(); n != 2 {
			t.Errorf("%s: %d connections to the proxy, want one for each address", name, n)
		}
	}
}
