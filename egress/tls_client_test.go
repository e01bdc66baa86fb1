package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// client is a certificate for a client of that name.
func (a *authority) client(t *testing.T, name string, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	return a.server(t, func(c *x509.Certificate) {
		c.Subject.CommonName, c.ExtKeyUsage = name, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if change != nil {
			change(c)
		}
	})
}

// demanding is a server that lets clients of the authority in.
func (a *authority) demanding(t *testing.T) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
}

// showing is a policy that trusts the authority and shows a certificate of that name, compiled as the broker does; "" shows none.
func (a *authority) showing(t *testing.T, name string, contents map[string]string, change func(*policy.Rule)) *policy.Effective {
	t.Helper()
	s, err := LoadSecrets(files(t, contents))
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Rule{Name: policy.DefaultName, Revision: 1, File: true}
	r.Egress.AllowCIDRs, r.Egress.AnyPort = []string{"127.0.0.0/8"}, new(true)
	r.Egress.TLS.CAPEM = new(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})))
	r.Egress.TLS.ClientCertificate = new(name)
	if change != nil {
		change(&r)
	}
	table, err := policy.Compile([]policy.Rule{r}, policy.Options{Secrets: s})
	if err != nil {
		t.Fatal(err)
	}
	return table.Match(newCall(t, "GET", "https://127.0.0.1/", ""))
}

// whose answers with the name of the client's certificate.
func whose(cfg *tls.Config) func(int, net.Conn) {
	return func(_ int, c net.Conn) {
		session := tls.Server(c, cfg)
		for r := bufio.NewReader(session); ; {
			if _, _, err := request(r); err != nil {
				return
			}
			name := session.ConnectionState().PeerCertificates[0].Subject.CommonName
			_, _ = io.WriteString(session, "HTTP/1.1 200 OK\r\nX-Client: "+name+"\r\nContent-Length: 0\r\n\r\n")
		}
	}
}

func TestClientCertificateIsShown(t *testing.T) {
	a := newAuthority(t)
	held := asPEM(t, "me", a.client(t, "billing", nil))
	for name, change := range map[string]func(*tls.Config){
		"TLS 1.2":         func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
		"TLS 1.3":         func(*tls.Config) {},
		"without tickets": func(c *tls.Config) { c.SessionTicketsDisabled = true },
		"of any authority": func(c *tls.Config) { // as servers that check the certificate elsewhere
			c.ClientAuth, c.ClientCAs = tls.RequireAnyClientCert, x509.NewCertPool()
			c.ClientCAs.AddCert(newAuthority(t).cert)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := a.demanding(t)
			change(cfg)
			u, tr := newUpstream(t, whose(cfg)), newTransport(t, nil)
			for i := range 2 {
				r := tr.Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), a.showing(t, "me", held, nil), attempt())
				want(t, r, call.EvidenceAnswered, call.FailureNone)
				if got := r.Response.Headers[0].Value; got != "billing" || r.Reused != (i == 1) {
					t.Errorf("the server saw %q, reused %t", got, r.Reused)
				}
			}
		})
	}
}

// A server that gives tickets says with them that the certificate is accepted: the broker need not wait until its patience ends. It
// never comes back with one, since a resumed session shows no certificate.
func TestTicketsAreTakenAndNeverUsed(t *testing.T) {
	a := newAuthority(t)
	given, used := make(chan struct{}, 8), make(chan struct{}, 8)
	cfg := a.demanding(t)
	cfg.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		given <- struct{}{}
		return cfg.EncryptTicket(state, session)
	}
	cfg.UnwrapSession = func([]byte, tls.ConnectionState) (*tls.SessionState, error) {
		used <- struct{}{}
		return nil, nil //nolint:nilnil // a full handshake (crypto/tls)
	}
	u, tr, held := newUpstream(t, whose(cfg)), newTransport(t, nil), asPEM(t, "me", a.client(t, "x", nil))
	for generation := range uint64(2) {
		p := *a.showing(t, "me", held, nil)
		p.Generation = generation // so that the second one makes a connection of its own
		want(t, tr.Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), &p, attempt()), call.EvidenceAnswered, call.FailureNone)
	}
	if len(given) != 2 || len(used) != 0 {
		t.Errorf("%d tickets given, %d used, want 2 and none", len(given), len(used))
	}
}

// In TLS 1.3 the client has its session before the server has judged the certificate. The broker waits for the server's word, so
// that a refusal is found before the request is written, as in TLS 1.2.
func TestRefusedClientCertificateIsFoundBeforeAnythingIsSent(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	rows := map[string]struct {
		name string
		cert tls.Certificate
	}{
		"none":              {"", a.client(t, "x", nil)},
		"expired":           {"me", a.client(t, "x", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })},
		"unknown authority": {"me", stranger.client(t, "x", nil)},
	}
	for name, row := range rows {
		for version, maxVersion := range map[string]uint16{" 1.2": tls.VersionTLS12, " 1.3": tls.VersionTLS13} {
			t.Run(name+version, func(t *testing.T) {
				cfg := a.demanding(t)
				cfg.MaxVersion = maxVersion
				u := newUpstream(t, overTLS(cfg, always(okAnswer)))
				p := a.showing(t, row.name, asPEM(t, "me", row.cert), nil)
				r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), p, attempt())
				want(t, r, call.EvidenceNotSent, call.FailureTLS)
				if r.Terminal {
					t.Error("a certificate may be renewed")
				}
			})
		}
	}
}

// A refusal that comes when the request is written already proves nothing about the request.
func TestLateRefusalInTLS13LeavesTheEffectUnknown(t *testing.T) {
	a := newAuthority(t)
	cfg := a.demanding(t)
	cfg.ClientAuth, cfg.SessionTicketsDisabled = tls.RequestClientCert, true
	u := newUpstream(t, func(_ int, c net.Conn) {
		cfg := cfg.Clone()
		cfg.VerifyConnection = func(tls.ConnectionState) error {
			_, _ = io.CopyN(io.Discard, c, 16<<10) // more than a handshake: the request is there
			return errFake
		}
		_ = tls.Server(c, cfg).Handshake() // answers with an alert
		_, _ = io.Copy(io.Discard, c)
	})
	c := newCall(t, "POST", secure(u, "/"), strings.Repeat("x", 20<<10))
	r := newTransport(t, nil).Send(t.Context(), c, a.showing(t, "", nil, nil), attempt())
	want(t, r, call.EvidenceSentNoResponse, call.FailureTLS)
	if r.Terminal || r.Detail != "the server ended the TLS session before it answered: bad certificate" {
		t.Errorf("terminal %t, %q", r.Terminal, r.Detail)
	}
}

// A server may speak before it is asked; on a fresh connection that is the answer.
func TestWordBeforeTheRequestIsTheAnswer(t *testing.T) {
	a := newAuthority(t)
	cfg := a.demanding(t)
	u := newUpstream(t, overTLS(cfg, func(_ int, c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 503 Full\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	}))
	p := a.showing(t, "me", asPEM(t, "me", a.client(t, "x", nil)), nil)
	r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), p, attempt())
	want(t, r, call.EvidenceAnswered, call.FailureNone)
	if r.Status != 503 {
		t.Errorf("status %d", r.Status)
	}
}

func TestCertificateIsSharedWithinACallerAndItsContentOnly(t *testing.T) {
	a := newAuthority(t)
	u, tr := newUpstream(t, whose(a.demanding(t))), newTransport(t, nil)
	send := func(caller string, p *policy.Effective, reused bool) {
		t.Helper()
		c := newCall(t, "GET", secure(u, "/"), "")
		c.Caller = caller
		r := tr.Send(t.Context(), c, p, attempt())
		want(t, r, call.EvidenceAnswered, call.FailureNone)
		if r.Reused != reused {
			t.Errorf("%s: reused %t", caller, r.Reused)
		}
	}
	first := a.showing(t, "me", asPEM(t, "me", a.client(t, "x", nil)), nil)
	send("billing", first, false)
	send("billing", first, true)
	send("search", first, false)
	renewed := a.showing(t, "me", asPEM(t, "me", a.client(t, "x", nil)), nil) // the same name, after a reload
	send("billing", renewed, false)
	send("billing", first, true)
}

func TestTLS13PolicyRefusesAnOlderServer(t *testing.T) {
	a := newAuthority(t)
	cfg := &tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}, MaxVersion: tls.VersionTLS12}
	u := newUpstream(t, overTLS(cfg, always(okAnswer)))
	for version, ok := range map[policy.TLSVersion]bool{policy.TLSVersion12: true, policy.TLSVersion13: false} {
		p := a.showing(t, "", nil, func(r *policy.Rule) { r.Egress.TLS.MinVersion = new(version) })
		r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), p, attempt())
		if ok {
			want(t, r, call.EvidenceAnswered, call.FailureNone)
			continue
		}
		want(t, r, call.EvidenceNotSent, call.FailureTLS)
		if r.Terminal || r.Detail != "the TLS handshake failed: the server refused it: protocol version not supported" {
			t.Errorf("terminal %t, %q", r.Terminal, r.Detail)
		}
	}
}
