package egress

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
)

// resolver answers from a list; the mock stands for a DNS server that lies, hangs or fails on demand.
type resolver struct {
	answers map[string][]netip.Addr
	err     error
	hang    bool
	asked   []string
}

func (r *resolver) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	r.asked = append(r.asked, host)
	if r.hang {
		<-ctx.Done()
		return nil, &net.DNSError{Err: "timeout", Name: host, IsTimeout: true}
	}
	if r.err != nil {
		return nil, r.err
	}
	if a, ok := r.answers[host]; ok {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func addresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func TestEveryAnswerOfANameIsJudged(t *testing.T) {
	rows := map[string]struct {
		answers []netip.Addr
		failure call.Failure
	}{
		"allowed":               {addresses("127.0.0.1"), call.FailureNone},
		"forbidden":             {addresses("10.0.0.1"), call.FailureDenied},
		"one of many forbidden": {addresses("127.0.0.1", "169.254.169.254"), call.FailureDenied},
		"beyond the sixteenth":  {append(repeated("127.0.0.1", 16), netip.MustParseAddr("10.0.0.1")), call.FailureDenied},
		"mapped":                {addresses("::ffff:10.0.0.1"), call.FailureDenied},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, always(okAnswer))
			r := &resolver{answers: map[string][]netip.Addr{"api.example.com": row.answers}}
			tr := newTransport(t, func(c *Config) { c.Resolver = r })
			c := newCall(t, "GET", u.url("/"), "")
			c.Target.Host, c.Target.Address = "api.example.com", netip.Addr{}
			got := tr.Send(t.Context(), c, loopback(t), attempt())
			if got.Failure != row.failure {
				t.Errorf("%s (%s), want %s", got.Failure, got.Detail, row.failure)
			}
			if row.failure == call.FailureDenied && (u.connections() != 0 || got.Detail != "egress rules forbid this destination") {
				t.Errorf("%d connections, detail %q", u.connections(), got.Detail)
			}
		})
	}
}

func repeated(address string, n int) []netip.Addr {
	list := make([]netip.Addr, n)
	for i := range list {
		list[i] = netip.MustParseAddr(address)
	}
	return list
}

func TestNamesAreRememberedForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &resolver{answers: map[string][]netip.Addr{"api.example.com": addresses("127.0.0.1")}}
		n := newNames(r)
		ask := func() {
			if _, err := n.lookup(t.Context(), "api.example.com", time.Now(), new(time.Duration)); err != nil {
				t.Fatal(err)
			}
		}
		ask()
		time.Sleep(namesLife - 1)
		ask()
		if len(r.asked) != 1 || r.asked[0] != "api.example.com" {
			t.Errorf("asked %q", r.asked)
		}
		time.Sleep(time.Nanosecond)
		ask()
		if len(r.asked) != 2 {
			t.Errorf("asked %d times after a second, want 2", len(r.asked))
		}
	})
}

func TestResolverFailuresAreToldApart(t *testing.T) {
	rows := map[string]struct {
		resolver resolver
		terminal bool
		detail   string
	}{
		"no such name": {resolver{}, true, "no such name"},
		"broken":       {resolver{err: &net.DNSError{Err: "server misbehaving"}}, false, "the name was not resolved"},
		"hanging":      {resolver{hang: true}, false, "the name was not resolved in time"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(t, func(c *Config) { c.Resolver = &row.resolver })
				defer tr.Close()
				start := time.Now()
				r := tr.Send(t.Context(), newCall(t, "GET", "http://api.example.com/", ""), loopback(t), attempt())
				want(t, r, call.EvidenceNotSent, call.FailureNameResolution)
				if r.Terminal != row.terminal || r.Detail != row.detail {
					t.Errorf("terminal %t, detail %q", r.Terminal, r.Detail)
				}
				if took := time.Since(start); row.resolver.hang && took != 2*time.Second {
					t.Errorf("took %s, want dns_timeout of 2s", took)
				}
			})
		})
	}
}

// A name whose address changes between the check and the connect must not get through: the guard is asked about the address
// that the socket really connects to.
func TestConnectTargetIsJudgedAgain(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	rules := loopback(t).Egress.Rules
	g := guard.New(guard.Config{})
	permit := func(netip.AddrPort) error { return g.Address(&rules, netip.MustParseAddrPort("10.0.0.1:80")) }
	_, err := dialTCP(t.Context(), "tcp", netip.MustParseAddrPort(u.listener.Addr().String()), permit)
	if got := connectFailure(err); got.Failure != call.FailureDenied {
		t.Errorf("%v, %s", err, got.Failure)
	}
	if u.connections() != 0 {
		t.Error("a forbidden address was dialled")
	}
}

func TestNextAddressIsTriedWhereOneRefuses(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	r := &resolver{answers: map[string][]netip.Addr{"api.example.com": addresses("127.0.0.2", "127.0.0.1")}}
	tr := newTransport(t, func(c *Config) { c.Resolver = r })
	c := newCall(t, "GET", u.url("/"), "")
	c.Target.Host, c.Target.Address = "api.example.com", netip.Addr{}
	want(t, tr.Send(t.Context(), c, loopback(t), attempt()), call.EvidenceAnswered, call.FailureNone)
}

// dnsServer answers every question with no such name and tells which names were asked for.
func dnsServer(t *testing.T) (address string, asked chan string) {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked = make(chan string, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 1500); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			asked <- question(b[12:n])
			b[2], b[3] = 0x81, 0x83       // an answer, NXDOMAIN (RFC 1035 §4.1.1)
			b[10], b[11] = 0, 0           // no additional record
			_, _ = c.WriteTo(b[:n], from) // what stands behind the question is ignored
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return c.LocalAddr().String(), asked
}

// question reads the labels of a name (RFC 1035 §4.1.2).
func question(b []byte) string {
	name := ""
	for len(b) > 0 && b[0] != 0 {
		size := int(b[0])
		name += string(b[1:1+size]) + "."
		b = b[1+size:]
	}
	return name
}

func TestSystemAsksTheHostsFileThenTheAbsoluteName(t *testing.T) {
	server, asked := dnsServer(t)
	s := newSystem()
	s.dns.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}
	found, err := s.LookupNetIP(t.Context(), "ip", "localhost")
	if err != nil || len(found) == 0 || !found[0].Unmap().IsLoopback() {
		t.Errorf("localhost: %v, %v", found, err)
	}
	if len(asked) != 0 {
		t.Errorf("a name of the hosts file was asked for: %s", <-asked)
	}
	_, err = s.LookupNetIP(t.Context(), "ip", "api.example.com")
	if r := nameFailure(err); !r.Terminal {
		t.Errorf("%v is not told as no such name", err)
	}
	for len(asked) > 0 {
		if name := <-asked; name != "api.example.com." {
			t.Errorf("asked for %s", name)
		}
	}
}

func TestNameWithoutAddressIsNoSuchName(t *testing.T) {
	r := &resolver{answers: map[string][]netip.Addr{"api.example.com": {}}}
	tr := newTransport(t, func(c *Config) { c.Resolver = r })
	got := tr.Send(t.Context(), newCall(t, "GET", "http://api.example.com/", ""), loopback(t), attempt())
	want(t, got, call.EvidenceNotSent, call.FailureNameResolution)
	if !got.Terminal {
		t.Error("trying again would not mend it")
	}
}
