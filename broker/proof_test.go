package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// identified is a broker whose upstream notes who called.
type identified struct {
	*running

	addr   net.Addr
	server *authority
	caller chan string // receives one value a call, never closed
}

// known over TLS: a broker on a real port that believes these authorities of clients.
func startTLS(t *testing.T, clients *Authorities, ids *Identities) *identified {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &identified{addr: l.Addr(), server: newAuthority(t, "servers"), caller: make(chan string, 1)}
	s.running = start(t, setup{listener: l, identities: ids, sender: s.note(), with: func(c *ServerConfig) {
		c.TLS = &tls.Config{Certificates: []tls.Certificate{s.server.server(t)}, MinVersion: tls.VersionTLS12}
		c.Authorities = clients
	}})
	return s
}

func (s *identified) note() senderFunc {
	return func(_ context.Context, c *call.Call) call.Result {
		s.caller <- c.Caller
		return answered(200)
	}
}

// as connects with this certificate, or without one.
func (s *identified) as(t *testing.T, certs ...tls.Certificate) *grpc.ClientConn {
	t.Helper()
	cfg := &tls.Config{RootCAs: s.server.pool(), MinVersion: tls.VersionTLS12, Certificates: certs}
	conn, err := grpc.NewClient(s.addr.String(), grpc.WithTransportCredentials(credentials.NewTLS(cfg)), grpc.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call gives the caller that the engine was told, or the error.
func (s *identified) call(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	if _, err := pb.NewCallServiceClient(conn).Call(ctx, get("http://127.0.0.1/")); err != nil {
		return "", err
	}
	return <-s.caller, nil
}

func (s *identified) expect(ctx context.Context, t *testing.T, conn *grpc.ClientConn, want string) {
	t.Helper()
	if got, err := s.call(ctx, conn); err != nil || got != want {
		t.Errorf("the caller is %q, %v; want %q", got, err, want)
	}
}

func (s *identified) refused(ctx context.Context, t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	got, err := s.call(ctx, conn)
	if status.Code(err) != codes.Unauthenticated || unsent(err) != "UNAUTHENTICATED" || status.Convert(err).Message() != status.Convert(unauthenticated()).Message() {
		t.Errorf("%q, %v; want nothing but UNAUTHENTICATED", got, err)
	}
}

func TestCertificateIsTheCaller(t *testing.T) {
	ca := newAuthority(t, "clients")
	s := startTLS(t, believing(t, ca), nil)
	for _, name := range []string{"spiffe://example.com/billing", "billing.example.com"} {
		s.expect(within(t), t, s.as(t, ca.client(t, name)), name)
	}
	// Through a certificate between it and its authority.
	between := newAuthority(t, "between")
	between.cert = ca.sign(t, between.cert, between.key)
	long := between.client(t, "spiffe://example.com/ledger")
	long.Certificate = append(long.Certificate, between.cert.Raw)
	s.expect(within(t), t, s.as(t, long), "spiffe://example.com/ledger")
}

func TestWrongCertificateIsNobodyAndTheLogKnowsWhy(t *testing.T) {
	ca := newAuthority(t, "clients")
	s := startTLS(t, believing(t, ca), nil)
	good := func(c *x509.Certificate) { c.DNSNames = []string{"secret-name.example.com"} }
	id := mustURL(t, "spiffe://example.com/secret-name")
	for _, tt := range []struct {
		name string
		cert tls.Certificate
		why  string // "" is no line
	}{
		{"another authority", newAuthority(t, "clients").issue(t, good), "no authority of --client-ca stands by it"},
		{"expired", ca.issue(t, func(c *x509.Certificate) { good(c); c.NotAfter = time.Now().Add(-time.Minute) }), "has expired or is not valid yet"},
		{"not valid yet", ca.issue(t, func(c *x509.Certificate) { good(c); c.NotBefore = time.Now().Add(time.Minute) }), "has expired or is not valid yet"},
		{"for servers", ca.issue(t, func(c *x509.Certificate) { good(c); c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "it is not for clients"},
		{"two SPIFFE ids", ca.issue(t, func(c *x509.Certificate) { c.URIs = []*url.URL{id, mustURL(t, "spiffe://example.com/b")} }), "a SPIFFE id and 2 URIs"},
		{"two DNS names", ca.issue(t, func(c *x509.Certificate) { c.DNSNames = []string{"secret-name.example.com", "b.example.com"} }), "2 DNS names and no SPIFFE id"},
		{"two SPIFFE ids and a DNS name", ca.issue(t, func(c *x509.Certificate) { good(c); c.URIs = []*url.URL{id, id} }), "a SPIFFE id and 2 URIs"},
		{"a common name alone", ca.issue(t, func(*x509.Certificate) {}), "neither a SPIFFE id nor a DNS name"},
		{"an authority with a SPIFFE id", ca.issue(t, func(c *x509.Certificate) { c.URIs, c.IsCA = []*url.URL{id}, true }), "may sign certificates"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(s.log.String())
			conn := s.as(t, tt.cert)
			s.refused(within(t), t, conn)
			s.refused(within(t), t, conn)
			// Health is for everybody all the same.
			if _, err := healthpb.NewHealthClient(conn).Check(within(t), &healthpb.HealthCheckRequest{}); err != nil {
				t.Errorf("health: %v", err)
			}
			log := s.log.String()[before:]
			if strings.Count(log, "client certificate refused") != 1 || !strings.Contains(log, tt.why) || !strings.Contains(log, `"peer":"127.0.0.1:`) {
				t.Errorf("the log: %s, want one line with %q", log, tt.why)
			}
			if strings.Contains(log, "secret-name") {
				t.Errorf("the log repeats the certificate: %s", log)
			}
		})
	}
	t.Run("none", func(t *testing.T) { s.refused(within(t), t, s.as(t)) })
}

// A client whose key does not belong to its certificate gets no connection at all.
func TestCertificateWithoutItsKeyProvesNothing(t *testing.T) {
	ca := newAuthority(t, "clients")
	s := startTLS(t, believing(t, ca), nil)
	stolen := ca.client(t, "spiffe://example.com/billing")
	stolen.PrivateKey = newKey(t)
	if got, err := s.call(within(t), s.as(t, stolen)); status.Code(err) != codes.Unavailable {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWithdrawnAuthorityEndsItsClientsOnStandingConnections(t *testing.T) {
	kept, withdrawn := newAuthority(t, "kept"), newAuthority(t, "withdrawn")
	clients := believing(t, kept, withdrawn)
	s := startTLS(t, clients, nil)
	stays, goes := s.as(t, kept.client(t, "spiffe://example.com/stays")), s.as(t, withdrawn.client(t, "spiffe://example.com/goes"))
	late := s.as(t, withdrawn.client(t, "spiffe://example.com/late"))
	s.expect(within(t), t, stays, "spiffe://example.com/stays")
	s.expect(within(t), t, goes, "spiffe://example.com/goes")
	reload := func(all ...*authority) {
		t.Helper()
		writeAuthorities(t, clients.path, all...)
		if err := clients.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	reload(kept)
	s.expect(within(t), t, stays, "spiffe://example.com/stays")
	s.refused(within(t), t, goes)
	s.refused(within(t), t, late) // a new connection
	if got := strings.Count(s.log.String(), "client certificate refused"); got != 2 {
		t.Errorf("%d lines in the log: %s", got, s.log.String())
	}
	reload(withdrawn, kept)
	s.expect(within(t), t, goes, "spiffe://example.com/goes")
	s.expect(within(t), t, late, "spiffe://example.com/late")
}

// What has expired since the handshake stays in force as long as the connection, also where the authorities change meanwhile.
func TestExpiryIsJudgedWhenTheCertificateIsShown(t *testing.T) {
	ca, other := newAuthority(t, "clients"), newAuthority(t, "other")
	clients := believing(t, ca)
	cert := ca.issue(t, func(c *x509.Certificate) {
		c.DNSNames, c.NotAfter = []string{"a.example.com"}, time.Now().Add(-time.Minute)
	})
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	p := &proof{chain: []*x509.Certificate{leaf}}
	log := &logBuffer{}
	if got := p.judge(clients.pool.Load(), nil, time.Now().Add(-2*time.Minute), &net.TCPAddr{}, newLog(log)); got != "a.example.com" {
		t.Fatalf("in its time it named %q: %s", got, log.String())
	}
	if got := p.holder(clients.pool.Load(), &net.TCPAddr{}, newLog(log)); got != "a.example.com" {
		t.Errorf("later %q", got)
	}
	writeAuthorities(t, clients.path, ca, other)
	if err := clients.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := p.holder(clients.pool.Load(), &net.TCPAddr{}, newLog(log)); got != "a.example.com" {
		t.Errorf("beside another authority %q: %s", got, log.String())
	}
	writeAuthorities(t, clients.path, other)
	if err := clients.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := p.holder(clients.pool.Load(), &net.TCPAddr{}, newLog(log)); got != "" {
		t.Errorf("without its authority %q", got)
	}
}

func TestFirstProofDecidesAlone(t *testing.T) {
	ca := newAuthority(t, "clients")
	ids, err := loadTokens(t, `
tokens:
- {identity: by-token, sha256: `+hashOf("good")+`, roles: [caller]}
- {identity: spiffe://example.com/billing, roles: [caller]}
- {identity: ledger.example.com, roles: [caller]}
- {identity: watcher.example.com, roles: [viewer]}
- {identity: unlisted.example.com, sha256: `+hashOf("another")+`, roles: [caller]}
`)
	if err != nil {
		t.Fatal(err)
	}
	s := startTLS(t, believing(t, ca), ids)
	saying := func(authorization ...string) context.Context {
		return metadata.NewOutgoingContext(within(t), metadata.MD{"authorization": authorization})
	}
	billing, nobody := s.as(t, ca.client(t, "spiffe://example.com/billing")), s.as(t)
	foreign := s.as(t, newAuthority(t, "clients").client(t, "spiffe://example.com/billing"))
	s.expect(within(t), t, billing, "spiffe://example.com/billing")
	s.expect(within(t), t, s.as(t, ca.client(t, "ledger.example.com")), "ledger.example.com")
	s.expect(saying("Bearer good"), t, billing, "by-token")
	s.expect(saying("Bearer good"), t, nobody, "by-token")
	s.expect(saying("Bearer good"), t, foreign, "by-token")
	for _, wrong := range [][]string{{"Bearer bad"}, {""}, {"Basic good"}, {"Bearer good", "Bearer good"}} {
		s.refused(saying(wrong...), t, billing)
	}
	s.refused(within(t), t, nobody)
	s.refused(within(t), t, foreign)
	// Known, but not for this: a role of another proof of the same name is none of its.
	for _, name := range []string{"watcher.example.com", "unlisted.example.com", "stranger.example.com"} {
		_, err := s.call(within(t), s.as(t, ca.client(t, name)))
		if status.Code(err) != codes.PermissionDenied || unsent(err) != "ROLE_REQUIRED" || status.Convert(err).Message() != "needs the role caller" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutFileACertificateMakesCallsAndAdministersNothing(t *testing.T) {
	ca := newAuthority(t, "clients")
	id := identityOf(t, believing(t, ca), nil, ca.client(t, "spiffe://example.com/billing"))
	if !id.may(RoleCaller) || id.may(RoleViewer) || id.may(RoleOperator) {
		t.Errorf("%+v", id)
	}
	s := startTLS(t, believing(t, ca), nil)
	// There are no tokens, so that none is right.
	s.refused(metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer x"), t, s.as(t, ca.client(t, "spiffe://example.com/billing")))
}

// identityOf is what a broker makes of a connection with that certificate.
func identityOf(t *testing.T, clients *Authorities, ids *Identities, cert tls.Certificate) identity {
	t.Helper()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	p := &proof{chain: []*x509.Certificate{leaf}}
	return ids.byCertificate(p.holder(clients.pool.Load(), &net.TCPAddr{}, newLog(&logBuffer{})))
}

// startUnix is a broker on a unix socket.
func startUnix(t *testing.T, ids *Identities) (*identified, *grpc.ClientConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &identified{addr: l.Addr(), caller: make(chan string, 1)}
	s.running = start(t, setup{listener: l, identities: ids, sender: s.note()})
	return s, dial(t, func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
}

func TestUserOfAUnixSocketIsTheCaller(t *testing.T) {
	if !KnowsUsers {
		t.Skip("this system does not tell")
	}
	me := fmt.Sprintf("uid:%d", os.Getuid())
	ids, err := loadTokens(t, "tokens:\n- {identity: '"+me+"', roles: [caller]}\n- {identity: by-token, sha256: "+hashOf("good")+", roles: [caller]}\n")
	if err != nil {
		t.Fatal(err)
	}
	s, conn := startUnix(t, ids)
	s.expect(within(t), t, conn, me)
	s.expect(metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer good"), t, conn, "by-token")
	s.refused(metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer bad"), t, conn)
}

func TestUserNamedNowhereIsNobody(t *testing.T) {
	ids, err := loadTokens(t, fmt.Sprintf("tokens:\n- {identity: 'uid:%d', roles: [caller]}\n", os.Getuid()+1))
	if err != nil {
		t.Fatal(err)
	}
	s, conn := startUnix(t, ids)
	s.refused(within(t), t, conn)
	open, conn := startUnix(t, nil)
	open.expect(within(t), t, conn, "local")
}

// A user is known by a unix socket alone: on a port of loopback nothing tells who is at the other end.
func TestUserIsNobodyOnAPort(t *testing.T) {
	ids, err := loadTokens(t, fmt.Sprintf("tokens:\n- {identity: 'uid:%d', roles: [caller]}\n", os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, setup{identities: ids})
	if _, err := r.calls.Call(within(t), get("http://127.0.0.1/")); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}

func TestEntryThatNothingProvesIsAnError(t *testing.T) {
	good := hashOf("one")
	entry := func(identity, rest string) string {
		return "tokens: [{identity: '" + identity + "', " + rest + "roles: [caller]}]"
	}
	all := Proofs{Certificates: true, Users: true}
	for _, tt := range []struct {
		name, text string
		can        Proofs
		want       string
	}{
		{"a name of a certificate", entry("spiffe://example.com/a", ""), Proofs{Users: true}, "tokens[0].identity: without a sha256 it is proved by a client certificate: give --client-ca"},
		{"a user", entry("uid:0", ""), Proofs{Certificates: true}, "tokens[0].identity: "},
		{"a SPIFFE id that no certificate has", entry("spiffe://example.com", ""), all, "tokens[0].identity: a SPIFFE id without a path"},
		{"capitals", entry("Billing.example.com", ""), all, "lower case"},
		{"a wildcard", entry("*.example.com", ""), all, "a wildcard names nobody"},
		{"an address", entry("10.0.0.1", ""), all, "that is an address"},
		{"another scheme", entry("https://example.com", ""), all, "begins with spiffe://"},
		{"no number", entry("uid:root", ""), all, "after uid: give the number"},
		{"another way to write it", entry("uid:01000", ""), all, "after uid: give the number"},
		{"a sign", entry("uid:+1", ""), all, "after uid: give the number"},
		{"too large", entry("uid:4294967296", ""), all, "after uid: give the number"},
		{"no user at all", entry("uid:4294967295", ""), all, "after uid: give the number"},
		{"everybody unknown", entry("uid:65534", ""), all, "it is nobody's"},
		{"twice", "tokens: [{identity: a.b, roles: [caller]}, {identity: a.b, roles: [viewer]}]", all, "tokens[1].identity: it stands there twice"},
		{"a name of a token", entry("billing", ""), all, "tokens[0].sha256: not a SHA-256 in hex"},
		{"an empty hash of a certificate", entry("a.b", "sha256: '', "), all, ""},
		{"a token of a name", entry("spiffe://example.com", "sha256: "+good+", "), Proofs{}, ""},
		{"a name with both proofs", "tokens: [{identity: a.b, roles: [caller]}, {identity: a.b, sha256: " + good + ", roles: [viewer]}]", all, ""},
	} {
		ids, err := parseTokens("tokens.yaml", []byte(tt.text), tt.can)
		if tt.want == "" && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.want != "" && (err == nil || ids != nil || !strings.Contains(err.Error(), "tokens: tokens.yaml: ") || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
