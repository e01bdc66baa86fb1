package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// A redirect led here from another origin: what the policy sets or holds stays behind, what the broker says of the attempt does not.
func TestForeignRequestCarriesNothingOfThePolicy(t *testing.T) {
	seen := make(chan http.Header, 1)
	u := newUpstream(t, func(_ int, c net.Conn) {
		r, _, err := request(bufio.NewReader(c))
		if err == nil {
			seen <- r.Header
			_, _ = io.WriteString(c, okAnswer)
		}
	})
	secrets, err := LoadSecrets(files(t, map[string]string{"live": "s3cret"}))
	if err != nil {
		t.Fatal(err)
	}
	p := loopback(t)
	p.Secrets = secrets
	p.Headers = policy.Headers{Set: []call.Header{{Name: "X-Set", Value: "policy"}}, Remove: []string{"x-removed"}}
	p.Credentials = []policy.Credential{{Header: "X-Api-Key", Secret: "live", Hosts: []string{"127.0.0.1"}}}
	p.Idempotency = policy.Idempotency{Enabled: true, Header: "Idempotency-Key", Methods: []string{"POST"}, KeyTTL: time.Hour}
	p.Deadline.Header = "X-Remaining-Ms"
	for _, foreign := range []bool{false, true} {
		c := newCall(t, "POST", u.url("/"), "body")
		c.OperationID, c.Foreign = "order-1", foreign
		c.Headers = []call.Header{{Name: "X-Kept", Value: "1"}, {Name: "X-Removed", Value: "1"}}
		a := attempt()
		a.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		want(t, newTransport(t, nil).Send(t.Context(), c, p, a), call.EvidenceAnswered, call.FailureNone)
		got := <-seen
		for _, name := range []string{"X-Set", "X-Api-Key", "Idempotency-Key"} {
			if (got.Get(name) == "") != foreign {
				t.Errorf("foreign %t: %s is %q", foreign, name, got.Get(name))
			}
		}
		if got.Get("X-Kept") == "" || got.Get("Traceparent") == "" || got.Get("X-Remaining-Ms") == "" || got.Get("User-Agent") == "" || got.Get("X-Removed") != "" {
			t.Errorf("foreign %t: %v", foreign, got)
		}
	}
}

// A credential that may not go over plain http does not keep a foreign request back, which bears none.
func TestForeignRequestNeedsNoSecret(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	p := loopback(t)
	p.Credentials = []policy.Credential{{Header: "X-Api-Key", Secret: "missing", Hosts: []string{"127.0.0.1"}}}
	c := newCall(t, "GET", u.url("/"), "")
	want(t, newTransport(t, nil).Send(t.Context(), c, p, attempt()), call.EvidenceNotSent, call.FailureDenied)
	c.Foreign = true
	want(t, newTransport(t, nil).Send(t.Context(), c, p, attempt()), call.EvidenceAnswered, call.FailureNone)
}

// Neither the policy's certificate nor its server_name is for a foreign origin, and no connection made with them is taken.
func TestForeignRequestShowsNoCertificate(t *testing.T) {
	a := newAuthority(t)
	p := a.showing(t, "broker", asPEM(t, "broker", a.client(t, "broker", nil)), nil)
	names := make(chan string, 8)
	cfg := a.demanding(t)
	cfg.ClientAuth = tls.RequestClientCert
	cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		names <- h.ServerName
		return nil, nil //nolint:nilnil // as it is (crypto/tls)
	}
	u := newUpstream(t, func(_ int, c net.Conn) {
		session := tls.Server(c, cfg)
		for r := bufio.NewReader(session); ; {
			if _, _, err := request(r); err != nil {
				return
			}
			_, _ = fmt.Fprintf(session, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", len(session.ConnectionState().PeerCertificates))
		}
	})
	p.Egress.ServerName = "api.example.com"
	tr := newTransport(t, nil)
	for _, foreign := range []bool{false, true, false, true} {
		c := newCall(t, "GET", secure(u, "/"), "")
		c.Foreign = foreign
		r := tr.Send(t.Context(), c, p, attempt())
		want(t, r, call.EvidenceAnswered, call.FailureNone)
		if shown := string(r.Response.Body) == "1"; shown == foreign {
			t.Errorf("foreign %t: the server saw %s certificates", foreign, r.Response.Body)
		}
	}
	if first, second := <-names, <-names; first != "api.example.com" || second != "" || u.connections() != 2 {
		t.Errorf("asked for %q and %q on %d connections", first, second, u.connections())
	}
}
