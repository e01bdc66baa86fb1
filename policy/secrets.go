package policy

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/call"
)

// Secrets are what policies refer to by name. A table keeps the ones it was compiled with: a call has one policy and one set of
// secrets from its start to its end, whatever is reloaded meanwhile.
type Secrets interface {
	// Value is the secret of that name; false when there is none.
	Value(name string) (string, bool)
	// ClientCertificate is the pair NAME.crt and NAME.key. The error says what keeps it from being used.
	ClientCertificate(name string) (*tls.Certificate, error)
}

// CheckSecrets finds the references of rules that lead nowhere: such a call would go out without its credential.
func CheckSecrets(rules []Rule, s Secrets) []Problem {
	var all []Problem
	for i := range rules {
		c := checker{rule: i}
		for j := range rules[i].Credentials {
			if err := usable(&rules[i].Credentials[j], s); err != nil {
				c.add(fmt.Sprintf("credentials[%d].secret", j), err.Error())
			}
		}
		if name := rules[i].Egress.TLS.ClientCertificate; name != nil && *name != "" {
			if _, err := s.ClientCertificate(*name); err != nil {
				c.add("egress.tls.client_certificate", err.Error())
			}
		}
		all = append(all, c.problems...)
	}
	return all
}

// usable reports what keeps a credential from being used; the secret itself stands in no error.
func usable(c *Credential, s Secrets) error {
	value, ok := s.Value(c.Secret)
	switch {
	case !ok:
		return fmt.Errorf("secret %q is no file in the directory given with --secrets", c.Secret)
	case value == "":
		return fmt.Errorf("secret %q is empty", c.Secret)
	case strings.Trim(value, " \t") != value:
		return fmt.Errorf("secret %q has blanks around it, which a header field would lose", c.Secret)
	case !call.ValidFieldValue(c.Prefix + value):
		return fmt.Errorf("secret %q cannot stand in a header field: it has a control character or a line break within", c.Secret)
	}
	return nil
}

// identified gives the handshake the certificate of that name, if it asks for one, and returns what tells this certificate from
// another of the same name; "" without one.
//
// It is shown whatever authorities the server lists: who names a certificate in a policy means that one, and servers are known to
// list too few.
func identified(c *tls.Config, name string, s Secrets) string {
	if name == "" || s == nil {
		return ""
	}
	cert, err := s.ClientCertificate(name)
	if err != nil {
		return "" // Compile has looked before
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	h := sha256.New()
	for _, der := range cert.Certificate {
		h.Write(der) // each DER value tells its own length
	}
	return hex.EncodeToString(h.Sum(nil))
}
