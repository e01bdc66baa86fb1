package policy_test

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/policy"
)

// held are secrets of a test.
type held struct {
	values map[string]string
	pairs  map[string]*tls.Certificate
}

func (h held) Value(name string) (string, bool) {
	v, ok := h.values[name]
	return v, ok
}

func (h held) ClientCertificate(name string) (*tls.Certificate, error) {
	if c, ok := h.pairs[name]; ok {
		return c, nil
	}
	return nil, errors.New("no such pair")
}

// referring is a policy that needs a secret and a certificate.
func referring(secret, certificate string) policy.Rule {
	r := policy.Rule{Name: "policies/x", Revision: 1}
	r.Credentials = []policy.Credential{{Header: "X-Key", Secret: secret, Hosts: []string{"example.com"}}}
	r.Egress.TLS.ClientCertificate = new(certificate)
	return r
}

func TestReferenceThatLeadsNowhereIsRefusedWithItsField(t *testing.T) {
	h := held{values: map[string]string{"good": "s3cr3t", "broken": "s3\ncr3t"}, pairs: map[string]*tls.Certificate{"me": {}}}
	for name, row := range map[string]struct {
		secret, certificate string
		paths               []string
	}{
		"all there":              {"good", "me", nil},
		"no certificate wanted":  {"good", "", nil},
		"no such secret":         {"none", "me", []string{"credentials[0].secret"}},
		"a line break within":    {"broken", "me", []string{"credentials[0].secret"}},
		"no such certificate":    {"good", "none", []string{"egress.tls.client_certificate"}},
		"nothing of it is there": {"none", "none", []string{"credentials[0].secret", "egress.tls.client_certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			rules := []policy.Rule{{Name: "policies/first"}, referring(row.secret, row.certificate)}
			_, err := policy.Compile(rules, policy.Options{Secrets: h})
			var paths []string
			if bad, ok := errors.AsType[*policy.InvalidError](err); ok {
				for _, p := range bad.Problems {
					if p.Rule != 1 {
						t.Errorf("problem of policies[%d]", p.Rule)
					}
					paths = append(paths, p.Path)
				}
			}
			if !slices.Equal(paths, row.paths) || err != nil && strings.Contains(err.Error(), "cr3t") {
				t.Errorf("%v, want problems of %v", err, row.paths)
			}
			if _, err := policy.Compile(rules, policy.Options{}); err != nil {
				t.Errorf("a table to look at: %v", err)
			}
		})
	}
}

func TestTableKeepsTheSecretsItWasMadeWith(t *testing.T) {
	first, second := held{values: map[string]string{"k": "1"}}, held{values: map[string]string{"k": "2"}}
	call := callTo(t, "GET", "https://example.com/", "")
	for want, h := range map[string]held{"1": first, "2": second} {
		table, err := policy.Compile([]policy.Rule{referring("k", "")}, policy.Options{Secrets: h})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := table.Match(call).Secrets.Value("k"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A renewed certificate has the name of the old one; connections made with that must not be used with this.
func TestEgressIDTellsCertificatesOfOneNameApart(t *testing.T) {
	call := callTo(t, "GET", "https://example.com/", "")
	match := func(name string, der ...[]byte) *policy.Effective {
		h := held{values: map[string]string{"k": "1"}, pairs: map[string]*tls.Certificate{"me": {Certificate: der}, "twin": {Certificate: der}}}
		table, err := policy.Compile([]policy.Rule{referring("k", name)}, policy.Options{Secrets: h})
		if err != nil {
			t.Fatal(err)
		}
		return table.Match(call)
	}
	old := match("me", []byte("leaf"), []byte("between"))
	if same := match("me", []byte("leaf"), []byte("between")); same.Egress.ID != old.Egress.ID {
		t.Error("the same certificate has another id")
	}
	for name, other := range map[string]*policy.Effective{
		"renewed": match("me", []byte("leaf2"), []byte("between")), "another chain": match("me", []byte("leaf")),
		"another name": match("twin", []byte("leaf"), []byte("between")), "none": match(""),
	} {
		if other.Egress.ID == old.Egress.ID {
			t.Errorf("%s: the same id", name)
		}
	}
	shown, err := old.Egress.TLS.GetClientCertificate(&tls.CertificateRequestInfo{AcceptableCAs: [][]byte{[]byte("of somebody else")}})
	if err != nil || string(shown.Certificate[0]) != "leaf" {
		t.Errorf("%v, %v", shown, err)
	}
	if match("").Egress.TLS.GetClientCertificate != nil {
		t.Error("a policy without a certificate shows one")
	}
}
