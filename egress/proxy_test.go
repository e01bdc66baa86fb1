package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/internal/proxytest"
	"github.com/sallyport/sallyport/policy"
)

// through is a policy of the start-up file that opens loopback for targets and names a proxy, compiled as the broker does.
func through(t testing.TB, url string, change func(*policy.Rule)) *policy.Effective {
	t.Helper()
	r := policy.Rule{Name: "policies/proxied", File: true}
	r.Egress.Proxy, r.Egress.AllowCIDRs, r.Egress.AnyPort = &url, []string{"127.0.0.0/8"}, new(true)
	if change != nil {
		change(&r)
	}
	table, err := policy.Compile([]policy.Rule{r}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table.Match(&call.Call{Method: "GET", Target: call.Target{Scheme: "http", Host: "localhost", Port: 80, Path: "/"}})
}

// named is a call to a server on loopback under a name.
func named(t testing.TB, method, scheme, host string, port uint16) *call.Call {
	t.Helper()
	return newCall(t, method, fmt.Sprintf("%s://%s:%d/", scheme, host, port), "")
}

// opening is a guard that opens the documentation ranges, whose addresses nobody has.
func opening(c *Config) {
	c.Guard = guard.New(guard.Config{Special: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32"),
	}})
}

func TestProxyCarriesPlainAndEncryptedCalls(t *testing.T) {
	a := newAuthority(t)
	seen := make(chan *http.Request, 8)
	serve := func(_ int, c net.Conn) {
		for r := bufio.NewReader(c); ; {
			req, _, err := request(r)
			if err != nil {
				return
			}
			seen <- req
			_, _ = io.WriteString(c, okAnswer)
		}
	}
	names := make(chan string, 8)
	plain, encrypted := newUpstream(t, serve), newUpstream(t, overTLS(&tls.Config{
		Certificates: []tls.Certificate{a.server(t, nil)},
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			names <- h.ServerName
			return nil, nil //nolint:nilnil // crypto/tls reads it as no change
		},
	}, serve))
	for scheme, u := range map[string]*upstream{"http": plain, "https": encrypted} {
		t.Run(scheme, func(t *testing.T) {
			px := proxytest.Start(t, nil)
			p := through(t, px.URL(), nil)
			p.Egress.TLS = a.trusting(t).Egress.TLS
			r := &resolver{answers: map[string][]netip.Addr{"api.example.com": addresses("127.0.0.1")}}
			tr := newTransport(t, func(c *Config) { c.Resolver = r })
			for i := range 3 {
				c := named(t, "GET", scheme, "api.example.com", u.port())
				c.Headers = []call.Header{{Name: "Authorization", Value: "hunter2"}, {Name: "X-Mine", Value: "hunter2"}}
				got := tr.Send(t.Context(), c, p, attempt())
				want(t, got, call.EvidenceAnswered, call.FailureNone)
				if got.Reused != (i > 0) || got.RemoteAddress != u.listener.Addr().String() {
					t.Errorf("attempt %d: reused %t, remote address %s, want the target's", i, got.Reused, got.RemoteAddress)
				}
				req := <-seen
				if req.RequestURI != "/" || req.Host != c.Target.Authority || req.Header.Get("X-Mine") != "hunter2" {
					t.Errorf("the upstream was asked %s of %s, fields %v", req.RequestURI, req.Host, req.Header)
				}
			}
			at := u.listener.Addr().String()
			want := "CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\nUser-Agent: sallyport/test\r\n\r\n"
			if heads := px.Heads(); len(heads) != 1 || heads[0] != want {
				t.Errorf("the proxy was asked %q, want once %q", heads, want)
			}
			if u.connections() != 1 {
				t.Errorf("%d connections to the upstream, want the tunnel's alone", u.connections())
			}
		})
	}
	if name := <-names; name != "api.example.com" || len(names) > 0 {
		t.Errorf("SNI %q, want the URL's host once", name)
	}
}

func TestProxyGetsTheAddressThatWasJudged(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	for answer, asked := range map[string]string{
		"192.0.2.7":        "192.0.2.7:8443",
		"2001:db8::7":      "[2001:db8::7]:8443",
		"::ffff:192.0.2.7": "192.0.2.7:8443",
	} {
		px := proxytest.Start(t, func(a *proxytest.Asked) { a.Forward(u.listener.Addr().String()) })
		r := &resolver{answers: map[string][]netip.Addr{"api.example.com": addresses(answer)}}
		tr := newTransport(t, func(c *Config) { opening(c); c.Resolver = r })
		got := tr.Send(t.Context(), named(t, "GET", "http", "api.example.com", 8443), through(t, px.URL(), nil), attempt())
		want(t, got, call.EvidenceAnswered, call.FailureNone)
		if heads := px.Heads(); len(heads) != 1 || !strings.HasPrefix(heads[0], "CONNECT "+asked+" HTTP/1.1\r\nHost: "+asked+"\r\n") {
			t.Errorf("%s: the proxy was asked %q", answer, heads)
		}
		if got.RemoteAddress != asked {
			t.Errorf("%s: remote address %s", answer, got.RemoteAddress)
		}
	}
}

// What the target's rules forbid they forbid through a proxy too, and the proxy hears nothing of it.
func TestTargetIsJudgedAsWithoutAProxy(t *testing.T) {
	px := proxytest.Start(t, nil)
	for name, row := range map[string]struct {
		answers []netip.Addr
		change  func(*policy.Rule)
	}{
		"private":           {answers: addresses("10.0.0.1")},
		"metadata":          {answers: addresses("169.254.169.254")},
		"one of many":       {answers: addresses("127.0.0.1", "10.0.0.1")},
		"deny_cidrs":        {answers: addresses("127.0.0.1"), change: func(r *policy.Rule) { r.Egress.DenyCIDRs = []string{"127.0.0.1/32"} }},
		"another port":      {answers: addresses("127.0.0.1"), change: func(r *policy.Rule) { r.Egress.AnyPort = nil }},
		"loopback, unnamed": {answers: addresses("127.0.0.1"), change: func(r *policy.Rule) { r.Egress.AllowCIDRs = nil }},
	} {
		r := &resolver{answers: map[string][]netip.Addr{"api.example.com": row.answers}}
		tr := newTransport(t, func(c *Config) { c.Resolver = r })
		got := tr.Send(t.Context(), named(t, "GET", "http", "api.example.com", 8080), through(t, px.URL(), row.change), attempt())
		if got.Failure != call.FailureDenied || got.Evidence != call.EvidenceNotSent || strings.Contains(got.Detail, "proxy") {
			t.Errorf("%s: %s, %s (%s)", name, got.Evidence, got.Failure, got.Detail)
		}
	}
	if n := px.Connections(); n != 0 {
		t.Errorf("the proxy saw %d connections", n)
	}
}

func TestProxyItselfIsJudged(t *testing.T) {
	px, u := proxytest.Start(t, nil), newUpstream(t, always(okAnswer))
	at := netip.MustParseAddrPort(strings.TrimPrefix(px.URL(), "http://"))
	for name, row := range map[string]struct {
		url    string
		file   bool
		guard  guard.Config
		denied string // the rule; "" for none
	}{
		"loopback, by the start-up file": {url: px.URL(), file: true},
		"loopback, by another policy":    {url: px.URL(), denied: "soft_range: loopback"},
		"loopback, in dev mode":          {url: px.URL(), guard: guard.Config{Dev: true}},
		"link local":                     {url: "http://169.254.1.1:3128", file: true, denied: "hard_range: link local"},
		"a metadata service":             {url: "http://169.254.169.254:80", file: true, denied: "hard_range: metadata service"},
		"a metadata service's name":      {url: "http://metadata.google.internal:80", file: true, denied: "name: metadata service"},
		"the broker itself":              {url: px.URL(), file: true, guard: guard.Config{Own: []netip.AddrPort{at}}, denied: "own_listener: the broker itself"},
		"a name":                         {url: fmt.Sprintf("http://proxy.example.com:%d", at.Port()), file: true},
		"a name of two kinds":            {url: fmt.Sprintf("http://mixed.example.com:%d", at.Port()), file: true, denied: "hard_range: metadata service"},
	} {
		r := &resolver{answers: map[string][]netip.Addr{
			"proxy.example.com": addresses("127.0.0.1"), "mixed.example.com": addresses("127.0.0.1", "169.254.169.254"),
		}}
		tr := newTransport(t, func(c *Config) { c.Resolver, c.Guard = r, guard.New(row.guard) })
		p := withProxyOf(through(t, "", nil), through(t, row.url, func(r *policy.Rule) { r.File = row.file }))
		before := px.Connections()
		got := tr.Send(t.Context(), newCall(t, "GET", u.url("/"), ""), p, attempt())
		switch {
		case row.denied == "":
			want(t, got, call.EvidenceAnswered, call.FailureNone)
		case got.Evidence != call.EvidenceNotSent || got.Failure != call.FailureDenied || !strings.HasPrefix(got.Note, "egress.proxy: "+row.denied):
			t.Errorf("%s: %s, %s, note %q, want denied by %s", name, got.Evidence, got.Failure, got.Note, row.denied)
		case !strings.HasPrefix(got.Detail, "the egress proxy: egress rules forbid") || strings.ContainsAny(got.Detail, "0123456789"):
			t.Errorf("%s: detail %q", name, got.Detail)
		case px.Connections() != before:
			t.Errorf("%s: the proxy was connected to", name)
		}
	}
}

// withProxyOf is the one policy with the other's proxy, as when two policies match a call.
func withProxyOf(p, proxied *policy.Effective) *policy.Effective {
	both := *p
	both.Egress.Proxy = proxied.Egress.Proxy
	return &both
}

// Whatever address the socket of the proxy really gets is judged once more, by the proxy's rules and not the target's.
func TestConnectionToTheProxyIsJudgedAgain(t *testing.T) {
	for at, allowed := range map[string]bool{"10.0.0.9:3128": true, "169.254.0.9:3128": false, "127.0.0.1:3128": false} {
		dial := func(_ context.Context, _ string, _ netip.AddrPort, permit func(netip.AddrPort) error) (net.Conn, error) {
			if err := permit(netip.MustParseAddrPort(at)); err != nil {
				return nil, &deniedError{err}
			}
			return nil, errFake
		}
		p := withProxyOf(through(t, "", nil), through(t, "http://10.0.0.7:3128", func(r *policy.Rule) { r.File = false }))
		got := newTransport(t, func(c *Config) { c.Dial = dial }).Send(t.Context(), newCall(t, "GET", "http://127.0.0.1:80/", ""), p, attempt())
		if wanted := map[bool]call.Failure{true: call.FailureConnect, false: call.FailureDenied}[allowed]; got.Failure != wanted {
			t.Errorf("%s: %s (%s), want %s", at, got.Failure, got.Detail, wanted)
		}
	}
}

func TestAnythingBut2xxIsNoTunnelAndEvery2xxIs(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	for name, answer := range map[string]string{
		"HTTP/1.0": "HTTP/1.0 200 Connection established\r\n\r\n",
		"204":      "HTTP/1.1 204 No Content\r\n\r\n",
		"a length": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
		"chunked":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"interim":  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
	} {
		px := proxytest.Start(t, func(a *proxytest.Asked) {
			a.Say(answer)
			always(okAnswer)(0, a)
		})
		tr := newTransport(t, nil)
		for i := range 2 {
			r := tr.Send(t.Context(), newCall(t, "GET", u.url("/"), ""), through(t, px.URL(), nil), attempt())
			if r.Evidence != call.EvidenceAnswered || string(r.Response.Body) != "ok" || r.Reused != (i > 0) {
				t.Errorf("%s, attempt %d: %s, %s (%s), reused %t", name, i, r.Evidence, r.Failure, r.Detail, r.Reused)
			}
		}
	}
}

// What comes behind the proxy's head is the tunnel's: no byte is lost, and nothing of it is taken for the proxy's own answer.
func TestEarlyBytesBelongToTheTunnel(t *testing.T) {
	a := newAuthority(t)
	u := newUpstream(t, always(okAnswer))
	px := proxytest.Start(t, func(a *proxytest.Asked) {
		a.Say(proxytest.Established + okAnswer[:20])
		_, _, _ = request(bufio.NewReader(a))
		a.Say(okAnswer[20:])
		a.Hang()
	})
	r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", u.url("/"), ""), through(t, px.URL(), nil), attempt())
	want(t, r, call.EvidenceAnswered, call.FailureNone)
	if string(r.Response.Body) != "ok" {
		t.Errorf("body %q", r.Response.Body)
	}
	px = proxytest.Start(t, func(a *proxytest.Asked) { a.Say(proxytest.Established + "<html>sign in"); a.Hang() })
	p := through(t, px.URL(), nil)
	p.Egress.TLS = a.trusting(t).Egress.TLS
	r = newTransport(t, nil).Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), p, attempt())
	want(t, r, call.EvidenceNotSent, call.FailureTLS)
	if r.Detail != "the TLS handshake failed: the server does not speak TLS" {
		t.Errorf("detail %q", r.Detail)
	}
}

func TestProxiesShareNoConnection(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	one, two := proxytest.Start(t, nil), proxytest.Start(t, nil)
	tr := newTransport(t, nil)
	for _, url := range []string{one.URL(), two.URL(), ""} {
		for i := range 2 {
			r := tr.Send(t.Context(), newCall(t, "GET", u.url("/"), ""), through(t, url, nil), attempt())
			want(t, r, call.EvidenceAnswered, call.FailureNone)
			if r.Reused != (i > 0) {
				t.Errorf("proxy %q, attempt %d: reused %t", url, i, r.Reused)
			}
		}
	}
	if one.Connections() != 1 || two.Connections() != 1 || u.connections() != 3 {
		t.Errorf("%d, %d, and %d connections to the upstream, want 1, 1, 3", one.Connections(), two.Connections(), u.connections())
	}
	tr.Retire(1) // what was made under older policies is closed, tunnels too
	if n := idle(tr.pool); n != 0 {
		t.Errorf("%d connections outlived their policies", n)
	}
}

// A tunnel that the proxy ends while it is idle, or through which something comes that nobody asked for, is found before a byte is
// written; also one whose first bytes came with the proxy's answer.
func TestIdleTunnelIsLookedAtBeforeItIsUsed(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	end := func(a *proxytest.Asked) { _ = a.Close() }
	for name, row := range map[string]struct {
		early int
		spoil func(*proxytest.Asked)
		alive bool
	}{
		"ended":              {0, end, false},
		"ended, early bytes": {9, end, false},
		"unasked":            {9, func(a *proxytest.Asked) { a.Say("HTTP/1.1 500 X\r\n\r\n") }, false},
		"alive":              {0, func(*proxytest.Asked) {}, true},
		"alive, early bytes": {9, func(*proxytest.Asked) {}, true},
	} {
		spoilt := make(chan struct{}, 1)
		px := proxytest.Start(t, func(a *proxytest.Asked) {
			a.Say(proxytest.Established + okAnswer[:row.early])
			r := bufio.NewReader(a)
			_, _, _ = request(r)
			a.Say(okAnswer[row.early:])
			if a.Number == 1 {
				row.spoil(a)
			}
			spoilt <- struct{}{}
			always(okAnswer)(0, a)
		})
		tr, p := newTransport(t, nil), through(t, px.URL(), nil)
		want(t, tr.Send(t.Context(), newCall(t, "GET", u.url("/"), ""), p, attempt()), call.EvidenceAnswered, call.FailureNone)
		<-spoilt
		r := tr.Send(t.Context(), newCall(t, "POST", u.url("/"), "x"), p, attempt())
		if r.Evidence != call.EvidenceAnswered || r.Status != 200 || r.Reused != row.alive {
			t.Errorf("%s: %s (%s), %d, reused %t", name, r.Evidence, r.Detail, r.Status, r.Reused)
		}
	}
}

// The credentials of a policy are for the upstream: within TLS, and in clear to nobody, not even to a proxy on this machine.
func TestCredentialsStayWithinTheTunnelAndOutOfTheClear(t *testing.T) {
	a := newAuthority(t)
	got := make(chan string, 1)
	u := newUpstream(t, overTLS(&tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}}, func(_ int, c net.Conn) {
		req, _, err := request(bufio.NewReader(c))
		if err == nil {
			got <- req.Header.Get("Authorization")
			_, _ = io.WriteString(c, okAnswer)
		}
	}))
	px := proxytest.Start(t, nil)
	p := through(t, px.URL(), nil)
	p.Egress.TLS = a.trusting(t).Egress.TLS
	p.Secrets = secrets(t, "api", "hunter2")
	p.Credentials = []policy.Credential{{Header: "Authorization", Secret: "api", Hosts: []string{"127.0.0.1"}}}
	tr := newTransport(t, nil)
	want(t, tr.Send(t.Context(), newCall(t, "GET", secure(u, "/"), ""), p, attempt()), call.EvidenceAnswered, call.FailureNone)
	if value := <-got; value != "hunter2" {
		t.Errorf("the upstream got %q", value)
	}
	want(t, tr.Send(t.Context(), newCall(t, "GET", u.url("/"), ""), p, attempt()), call.EvidenceNotSent, call.FailureDenied)
	for _, head := range px.Heads() {
		if strings.Contains(head, "hunter2") || strings.Contains(head, "Authorization") {
			t.Errorf("the proxy was told %q", head)
		}
	}
}

// Only a policy names a proxy. The test runs itself again, with every variable there is: a process may read them once and for all.
func TestEnvironmentNamesNoProxy(t *testing.T) {
	if url := os.Getenv("SALLYPORT_TEST_UPSTREAM"); url != "" {
		at := netip.MustParseAddrPort(url)
		// A name: a proxy of the environment is never for loopback addresses.
		r := &resolver{answers: map[string][]netip.Addr{"api.example.com": {at.Addr()}}}
		tr := newTransport(t, func(c *Config) { c.Resolver = r })
		want(t, tr.Send(t.Context(), named(t, "GET", "http", "api.example.com", at.Port()), loopback(t), attempt()), call.EvidenceAnswered, call.FailureNone)
		return
	}
	u, px := newUpstream(t, always(okAnswer)), proxytest.Start(t, nil)
	again := exec.Command(os.Args[0], "-test.run=^TestEnvironmentNamesNoProxy$", "-test.count=1")
	again.Env = append(os.Environ(), "SALLYPORT_TEST_UPSTREAM="+u.listener.Addr().String(), "NO_PROXY=", "no_proxy=")
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		again.Env = append(again.Env, name+"="+px.URL(), strings.ToLower(name)+"="+px.URL())
	}
	if text, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	if px.Connections() != 0 || u.connections() != 1 {
		t.Errorf("%d connections to the proxy of the environment, %d to the upstream", px.Connections(), u.connections())
	}
}
