package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/internal/proxytest"
)

// connectTimeout is that of the built-in policy.
const connectTimeout = 3 * time.Second

// asked reads a CONNECT and gives its target.
func asked(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	req, err := http.ReadRequest(r)
	if err != nil || req.Method != "CONNECT" {
		t.Errorf("the proxy was asked %v, %v", req, err)
		return ""
	}
	return req.Host
}

// proxyBubble runs f with a proxy in memory that serves every connection by serve, for a name of two addresses.
func proxyBubble(t *testing.T, serve func(t *testing.T, c net.Conn), f func(t *testing.T, tr *Transport, n *pipes, c *call.Call)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &pipes{serve: func(c net.Conn) { defer c.Close(); serve(t, c) }}
		r := &resolver{answers: map[string][]netip.Addr{"api.example.com": addresses("192.0.2.1", "192.0.2.2")}}
		tr := newTransport(t, func(c *Config) { opening(c); c.Resolver, c.Dial = r, n.dial })
		defer tr.Close()
		f(t, tr, n, named(t, "POST", "http", "api.example.com", 80))
	})
}

func hangs(_ *testing.T, c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func TestSilentProxyIsGivenUpInTime(t *testing.T) {
	proxyBubble(t, hangs, func(t *testing.T, tr *Transport, n *pipes, c *call.Call) {
		t.Helper()
		p := through(t, "http://10.0.0.7:3128", nil)
		start := time.Now()
		r := tr.Send(t.Context(), c, p, attempt())
		want(t, r, call.EvidenceNotSent, call.FailureConnect)
		if r.TimedOut || r.Detail != "the egress proxy did not answer in time" || time.Since(start) != connectTimeout {
			t.Errorf("timed out %t, %q after %s", r.TimedOut, r.Detail, time.Since(start))
		}
		if n.made != 2 {
			t.Errorf("%d connections, want one for each address", n.made)
		}
		start = time.Now()
		r = tr.Send(t.Context(), c, p, attemptOf(time.Second))
		want(t, r, call.EvidenceNotSent, call.FailureConnect)
		if !r.TimedOut || time.Since(start) != time.Second {
			t.Errorf("timed out %t after %s", r.TimedOut, time.Since(start))
		}
	})
}

func TestVanishedCallerEndsTheWaitForTheProxy(t *testing.T) {
	proxyBubble(t, hangs, func(t *testing.T, tr *Transport, n *pipes, c *call.Call) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		r := tr.Send(ctx, c, through(t, "http://10.0.0.7:3128", nil), attempt())
		want(t, r, call.EvidenceNotSent, call.FailureCancelled)
		if n.made != 1 || time.Since(start) != time.Second {
			t.Errorf("%d connections after %s", n.made, time.Since(start))
		}
	})
}

// Each address has its share of connect_timeout, and once the tunnel is open its deadline is none of the exchange's.
func TestSlowAddressBehindTheProxyLeavesTimeForTheNext(t *testing.T) {
	serve := func(t *testing.T, c net.Conn) {
		t.Helper()
		r := bufio.NewReader(c)
		if asked(t, r) == "192.0.2.1:80" {
			hangs(t, c)
			return
		}
		_, _ = io.WriteString(c, proxytest.Established)
		_, _, _ = request(r)
		time.Sleep(connectTimeout) // longer than what is left of it
		_, _ = io.WriteString(c, okAnswer)
	}
	proxyBubble(t, serve, func(t *testing.T, tr *Transport, _ *pipes, c *call.Call) {
		t.Helper()
		start := time.Now()
		r := tr.Send(t.Context(), c, through(t, "http://10.0.0.7:3128", nil), attempt())
		want(t, r, call.EvidenceAnswered, call.FailureNone)
		if took := time.Since(start); took != connectTimeout/2+connectTimeout || r.RemoteAddress != "192.0.2.2:80" {
			t.Errorf("%s from %s", took, r.RemoteAddress)
		}
	})
}

// A proxy's own address that is dead costs its share once, not once for every address of the target.
func TestDeadAddressOfTheProxyIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &pipes{serve: func(c net.Conn) {
			defer c.Close()
			asked(t, bufio.NewReader(c))
			_, _ = io.WriteString(c, "HTTP/1.1 502 X\r\n\r\n")
		}}
		var dialled []string
		dial := func(ctx context.Context, network string, to netip.AddrPort, permit func(netip.AddrPort) error) (net.Conn, error) {
			dialled = append(dialled, to.String())
			if to.Addr().String() == "10.0.0.7" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			c, err := n.dial(ctx, network, to, permit)
			return at{c, net.TCPAddrFromAddrPort(to)}, err
		}
		r := &resolver{answers: map[string][]netip.Addr{
			"api.example.com": addresses("192.0.2.1", "192.0.2.2"), "proxy.example.com": addresses("10.0.0.7", "10.0.0.8"),
		}}
		tr := newTransport(t, func(c *Config) { opening(c); c.Resolver, c.Dial = r, dial })
		defer tr.Close()
		start := time.Now()
		got := tr.Send(t.Context(), named(t, "GET", "http", "api.example.com", 80), through(t, "http://proxy.example.com:3128", nil), attempt())
		want(t, got, call.EvidenceNotSent, call.FailureConnect)
		if got.Detail != "the egress proxy answered 502" || time.Since(start) != connectTimeout/2 {
			t.Errorf("%q after %s", got.Detail, time.Since(start))
		}
		if len(dialled) != 3 || dialled[0] != "10.0.0.7:3128" || dialled[1] != "10.0.0.8:3128" || dialled[2] != "10.0.0.8:3128" {
			t.Errorf("dialled %q", dialled)
		}
	})
}

// at is a connection with an address.
type at struct {
	net.Conn

	remote net.Addr
}

func (c at) RemoteAddr() net.Addr { return c.remote }

// A tunnel that ends before the request is written is proof: the bytes of CONNECT are not the request's.
func TestTunnelThatEndsBeforeTheRequestProvesNothingSent(t *testing.T) {
	serve := func(t *testing.T, c net.Conn) {
		t.Helper()
		asked(t, bufio.NewReader(c))
		_, _ = io.WriteString(c, proxytest.Established)
	}
	proxyBubble(t, serve, func(t *testing.T, tr *Transport, _ *pipes, c *call.Call) {
		t.Helper()
		r := tr.Send(t.Context(), c, through(t, "http://10.0.0.7:3128", nil), attempt())
		want(t, r, call.EvidenceNotSent, call.FailureConnectionLost)
	})
}

// connect_timeout covers the proxy, CONNECT and TLS together; the share of one address ends with its CONNECT.
func TestHandshakeInTheTunnelHasWhatIsLeft(t *testing.T) {
	serve := func(t *testing.T, c net.Conn) {
		t.Helper()
		asked(t, bufio.NewReader(c))
		time.Sleep(time.Second)
		_, _ = io.WriteString(c, proxytest.Established)
		hangs(t, c)
	}
	proxyBubble(t, serve, func(t *testing.T, tr *Transport, n *pipes, _ *call.Call) {
		t.Helper()
		start := time.Now()
		r := tr.Send(t.Context(), named(t, "POST", "https", "api.example.com", 443), through(t, "http://10.0.0.7:3128", nil), attempt())
		want(t, r, call.EvidenceNotSent, call.FailureTLS)
		if r.Detail != "the TLS handshake did not end in time" || time.Since(start) != connectTimeout || n.made != 1 {
			t.Errorf("%q after %s, %d connections", r.Detail, time.Since(start), n.made)
		}
	})
}
