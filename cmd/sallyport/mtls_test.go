package main

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/client"
)

// mutual are the settings of a broker that knows its callers by these authorities.
func mutual(t *testing.T, clients ...*authority) *settings {
	t.Helper()
	s := testSettings(t)
	dir := t.TempDir()
	s.TLSCert, s.TLSKey = certificate(t, dir)
	s.ClientCA = filepath.Join(dir, "clients.pem")
	putAuthorities(t, s, clients...)
	return s
}

func putAuthorities(t *testing.T, s *settings, clients ...*authority) {
	t.Helper()
	var text strings.Builder
	for _, c := range clients {
		text.WriteString(c.pem)
	}
	replaceFile(t, s.ClientCA, text.String())
}

// Off loopback a client certificate is as good as a token: every interface is listened on here, and asked through loopback.
func TestCallWithAClientCertificateFromTheCommandLine(t *testing.T) {
	clients := newAuthority(t)
	s := mutual(t, clients)
	s.GRPC, s.AccessLog = "0.0.0.0:0", true
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200, body: "hello"}}})
	n, log := logOf(t, s)
	broker := strings.Replace(address(n.grpc), "[::]", "127.0.0.1", 1)
	cert, key := clients.client(t, "spiffe://example.com/billing")
	foreign, foreignKey := newAuthority(t).client(t, "spiffe://example.com/billing")
	for _, tt := range []struct {
		name, ca, cert, key string
		code                int
		says                string
	}{
		{"right", s.TLSCert, cert, key, exitOK, "SUCCESS"},
		{"none", s.TLSCert, "", "", exitGRPC, "UNAUTHENTICATED UNAUTHENTICATED: the caller is not known"},
		{"of another authority", s.TLSCert, foreign, foreignKey, exitGRPC, "UNAUTHENTICATED UNAUTHENTICATED: the caller is not known"},
		{"cleartext", "", cert, key, exitUsage, "--client-cert: a certificate is shown over TLS only; give --ca too"},
		{"without its key", s.TLSCert, cert, "", exitUsage, "--client-cert and --client-key belong together"},
		{"with another key", s.TLSCert, cert, foreignKey, exitUsage, "private key does not match public key"},
		{"not there", s.TLSCert, "none.crt", "none.key", exitUsage, "none.crt: no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, inEnv := range []bool{false, true} {
				args := []string{"call", "GET", upstream.url + "/", "--broker", broker, "--ca", tt.ca, "--deadline", "10s"}
				if inEnv {
					t.Setenv("SALLYPORT_CLIENT_CERT", tt.cert)
					t.Setenv("SALLYPORT_CLIENT_KEY", tt.key)
				} else {
					args = append(args, "--client-cert", tt.cert, "--client-key", tt.key)
				}
				var out strings.Builder
				if code := run(args, strings.NewReader(""), &out, &out); code != tt.code || !strings.Contains(out.String(), tt.says) {
					t.Errorf("in the environment %v: exit %d, want %d:\n%s", inEnv, code, tt.code, out.String())
				}
			}
		})
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	if requests, _ := upstream.saw("/"); requests != 2 {
		t.Errorf("the upstream saw %d requests", requests)
	}
	if text := log(); strings.Count(text, "caller=spiffe://example.com/billing") != 2 || !strings.Contains(text, `msg="client certificate refused"`) {
		t.Errorf("the log: %s", text)
	}
}

func TestClientAuthoritiesAreReloaded(t *testing.T) {
	kept, withdrawn := newAuthority(t), newAuthority(t)
	s := mutual(t, kept, withdrawn)
	n, log := logOf(t, s)
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200, body: "hello"}}})
	as := func(a *authority, name string) *client.Client {
		t.Helper()
		c, err := client.Dial(address(n.grpc), client.Config{TLS: a.tls(t, s.TLSCert, name)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	stays, goes := as(kept, "stays.example.com"), as(withdrawn, "spiffe://example.com/goes")
	expect := func(c *client.Client, code codes.Code) {
		t.Helper()
		if _, err := callFor(t, c, upstream.url+"/"); status.Code(err) != code {
			t.Errorf("%v, want %v", err, code)
		}
	}
	expect(stays, codes.OK)
	expect(goes, codes.OK)
	replaceFile(t, s.ClientCA, kept.pem[:len(kept.pem)/2])
	reread(t, n)
	expect(goes, codes.OK) // what was in force stays
	putAuthorities(t, s, kept)
	reread(t, n)
	expect(stays, codes.OK)
	expect(goes, codes.Unauthenticated) // on the connection it has
	putAuthorities(t, s, kept, withdrawn)
	reread(t, n)
	expect(goes, codes.OK)
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`msg="reload refused; what was in force stays" what=authorities error="client-ca: ` + s.ClientCA + `: certificate 1 is broken"`,
		`msg=reloaded what="authorities of client certificates"`,
		`reason="no authority of --client-ca stands by it"`,
	} {
		if !strings.Contains(log(), want) {
			t.Errorf("the log lacks %s: %s", want, log())
		}
	}
}

func TestBrokerWhoseClientsCannotProveWhoTheyAreDoesNotStart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(s *settings)
		want   string
	}{
		{"a broken file", func(s *settings) { replaceFile(t, s.ClientCA, "hello") }, "client-ca: "},
		{"a file that is not there", func(s *settings) { s.ClientCA = "none.pem" }, "client-ca: open none.pem"},
		{"off loopback without TLS", func(s *settings) { s.GRPC, s.TLSCert, s.TLSKey = "0.0.0.0:0", "", "" }, "--grpc 0.0.0.0:0 is not loopback: there the broker needs"},
		{"off loopback without authorities", func(s *settings) { s.Admin, s.ClientCA = "0.0.0.0:0", "" }, "--admin 0.0.0.0:0 is not loopback: there the broker needs"},
		{"an entry without authorities", func(s *settings) {
			s.ClientCA, s.Tokens = "", filepath.Join(t.TempDir(), "tokens.yaml")
			replaceFile(t, s.Tokens, "tokens: [{identity: a.example.com, roles: [caller]}]")
		}, "tokens[0].identity: without a sha256 it is proved by a client certificate"},
		{"a user without a unix socket", func(s *settings) {
			s.Tokens = filepath.Join(t.TempDir(), "tokens.yaml")
			replaceFile(t, s.Tokens, "tokens: [{identity: 'uid:0', roles: [caller]}]")
		}, "tokens[0].identity: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := mutual(t, newAuthority(t))
			tt.change(s)
			n, err := startNode(t.Context(), s, newLogForNobody())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if n != nil {
				_ = n.stop(t.Context())
			}
		})
	}
}
