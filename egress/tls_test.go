package egress

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.key = newKey(t)
	a.cert = sign(t, template, template, a.key, a.key)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// server is a certificate for 127.0.0.1 and api.example.com, changed as a row wants.
func (a *authority) server(t testing.TB, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"}, DNSNames: []string{"api.example.com"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if change != nil {
		change(template)
	}
	key := newKey(t)
	return tls.Certificate{Certificate: [][]byte{sign(t, template, a.cert, key, a.key).Raw}, PrivateKey: key}
}

// overTLS puts a server behind TLS.
func overTLS(cfg *tls.Config, serve func(int, net.Conn)) func(int, net.Conn) {
	return func(n int, c net.Conn) { serve(n, tls.Server(c, cfg)) }
}

// trusting is a policy that trusts the authority.
func (a *authority) trusting(t testing.TB) *policy.Effective {
	t.Helper()
	p := loopback(t)
	p.Egress.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	p.Egress.TLS.RootCAs.AddCert(a.cert)
	return p
}

func secure(u *upstream, path string) string { return "https://" + u.listener.Addr().String() + path }

func TestTLSConnectionIsUsedAgain(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t)
			cfg := &tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}, MaxVersion: version, NextProtos: []string{"h2", "http/1.1"}}
			u := newUpstream(t, overTLS(cfg, always(okAnswer)))
			tr, p := newTransport(t, nil), a.trusting(t)
			for i := range 3 {
				r := tr.Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), p, attempt())
				want(t, r, call.EvidenceAnswered, call.FailureNone)
				if r.Reused != (i > 0) {
					t.Errorf("attempt %d: reused %t", i, r.Reused)
				}
			}
		})
	}
}

func TestRefusedCertificateIsTerminalAndNothingIsSent(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	rows := map[string]tls.Certificate{
		"expired":           a.server(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"wrong name":        a.server(t, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 99)} }),
		"unknown authority": stranger.server(t, nil),
		"for clients":       a.server(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
	}
	for name, cert := range rows {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, overTLS(&tls.Config{Certificates: []tls.Certificate{cert}}, always(okAnswer)))
			r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), a.trusting(t), attempt())
			want(t, r, call.EvidenceNotSent, call.FailureTLS)
			if !r.Terminal {
				t.Error("trying again would not mend it")
			}
		})
	}
}

func TestOtherHandshakeFailuresAreOfTheConnection(t *testing.T) {
	a := newAuthority(t)
	hold := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	rows := map[string]struct {
		serve  func(int, net.Conn)
		detail string
	}{
		"plain HTTP":    {always(okAnswer), "the TLS handshake failed"},
		"hangs up":      {func(_ int, c net.Conn) { _ = c.Close() }, "the TLS handshake failed"},
		"TLS 1.1":       {overTLS(&tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, always(okAnswer)), "the TLS handshake failed: the server refused it: protocol version not supported"},
		"says nothing":  {func(_ int, c net.Conn) { hold(c) }, "the TLS handshake did not end in time"},
		"talks garbage": {func(_ int, c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n"); hold(c) }, "the TLS handshake failed: the server does not speak TLS"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, row.serve)
			p := a.trusting(t)
			p.Attempt.ConnectTimeout = 200 * time.Millisecond
			r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), p, attempt())
			want(t, r, call.EvidenceNotSent, call.FailureTLS)
			if r.Terminal || r.TimedOut || r.Detail != row.detail {
				t.Errorf("terminal %t, timed out %t, %q", r.Terminal, r.TimedOut, r.Detail)
			}
		})
	}
}

func TestServerNameOfThePolicyIsTheOneChecked(t *testing.T) {
	a := newAuthority(t)
	names := make(chan string, 1)
	cfg := &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		names <- h.ServerName
		cert := a.server(t, nil)
		return &cert, nil
	}}
	u := newUpstream(t, overTLS(cfg, always(okAnswer)))
	p := a.trusting(t)
	p.Egress.ServerName = "api.example.com"
	want(t, newTransport(t, nil).Send(t.Context(), newCall(t, "GET", secure(u, "/"), ""), p, attempt()), call.EvidenceAnswered, call.FailureNone)
	if name := <-names; name != "api.example.com" {
		t.Errorf("SNI %q", name)
	}
}

// A body that lasts until the end of the connection is complete only if the session was ended: without close_notify anybody on
// the way could have cut it.
func TestTruncatedTLSBodyIsNoAnswer(t *testing.T) {
	a := newAuthority(t)
	cfg := &tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}}
	for name, row := range map[string]struct {
		end      func(raw net.Conn, session *tls.Conn)
		evidence call.Evidence
		failure  call.Failure
	}{
		"close_notify": {func(_ net.Conn, s *tls.Conn) { _ = s.Close() }, call.EvidenceAnswered, call.FailureNone},
		"cut":          {func(raw net.Conn, _ *tls.Conn) { _ = raw.Close() }, call.EvidencePartialResponse, call.FailureConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, func(_ int, c net.Conn) {
				session := tls.Server(c, cfg)
				_, _, _ = request(bufio.NewReader(session))
				_, _ = io.WriteString(session, "HTTP/1.1 200 OK\r\n\r\nhalf")
				row.end(c, session)
			})
			r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", secure(u, "/"), ""), a.trusting(t), attempt())
			want(t, r, row.evidence, row.failure)
		})
	}
}

// The look before a write reads the socket without waiting; session tickets that came late, and nothing at all, leave the
// connection usable, a closed session does not.
func TestLookBelowTLSNoticesTheEnd(t *testing.T) {
	a := newAuthority(t)
	closed := make(chan struct{})
	cfg := &tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}}
	u := newUpstream(t, overTLS(cfg, func(n int, c net.Conn) {
		r := bufio.NewReader(c)
		_, _, _ = request(r)
		_, _ = io.WriteString(c, okAnswer)
		if n == 1 {
			_ = c.Close()
			close(closed)
			return
		}
		_, _ = io.Copy(io.Discard, r)
	}))
	tr, p := newTransport(t, nil), a.trusting(t)
	want(t, tr.Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), p, attempt()), call.EvidenceAnswered, call.FailureNone)
	<-closed
	r := tr.Send(t.Context(), newCall(t, "POST", secure(u, "/"), "x"), p, attempt())
	want(t, r, call.EvidenceAnswered, call.FailureNone)
	if r.Reused {
		t.Error("a closed session was used")
	}
}

func TestLargeUploadOverTLSWithAnEarlyAnswer(t *testing.T) {
	a := newAuthority(t)
	held := make(chan struct{})
	defer close(held)
	cfg := &tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}}
	u := newUpstream(t, overTLS(cfg, func(_ int, c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1000))
		_, _ = io.WriteString(c, "HTTP/1.1 413 X\r\nContent-Length: 3\r\n\r\nbig")
		<-held
	}))
	c := newCall(t, "POST", secure(u, "/"), "")
	c.Body = make([]byte, 16<<20)
	r := newTransport(t, nil).Send(t.Context(), c, a.trusting(t), attemptOf(30*time.Second))
	want(t, r, call.EvidenceAnswered, call.FailureNone)
	if r.Status != 413 {
		t.Errorf("status %d", r.Status)
	}
}
