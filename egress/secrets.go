package egress

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

const (
	// secretMax bounds the size of a secret's file, pemMax that of a certificate chain or key.
	secretMax = 8 << 10
	pemMax    = 64 << 10
)

// Secrets are what policies refer to by name ([policy.Secrets]). They are held in memory only and never printed. The zero value
// has none.
type Secrets struct {
	values map[string]string
	pairs  map[string]pair
}

// pair is a client certificate, or what keeps it from being one. That matters only where a policy refers to it.
type pair struct {
	certificate *tls.Certificate
	err         error
}

// LoadSecrets reads every regular file of the directory: its name is the secret's name, its content, without a line end at the
// end, the value.
func LoadSecrets(dir string) (*Secrets, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	s := &Secrets{values: make(map[string]string, len(entries))}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		// A mounted secret is a link to a file (so that all of them change at once): follow it.
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("secrets: %w", err)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		limit := int64(secretMax)
		if ext := filepath.Ext(e.Name()); ext == ".crt" || ext == ".key" {
			limit = pemMax
		}
		if info.Size() > limit {
			return nil, fmt.Errorf("secrets: %s has %d bytes, more than the %d it may have", path, info.Size(), limit)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("secrets: %w", err)
		}
		s.values[e.Name()] = strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	}
	s.readPairs()
	return s, nil
}

// readPairs finds the client certificates: a NAME.crt and a NAME.key.
func (s *Secrets) readPairs() {
	s.pairs = make(map[string]pair)
	for file, chain := range s.values {
		name, ok := strings.CutSuffix(file, ".crt")
		if !ok {
			continue
		}
		key, ok := s.values[name+".key"]
		if !ok {
			continue
		}
		p := pair{certificate: new(tls.Certificate)}
		if *p.certificate, p.err = tls.X509KeyPair([]byte(chain), []byte(key)); p.err != nil {
			p = pair{err: fmt.Errorf("client certificate %q: %s.crt and %s.key are no pair: %w", name, name, name, p.err)}
		}
		s.pairs[name] = p
	}
}

// Value is the secret of that name; false when there is none.
func (s *Secrets) Value(name string) (string, bool) {
	v, ok := s.values[name]
	return v, ok
}

// ClientCertificate is the pair NAME.crt and NAME.key. The error says what keeps it from being used.
func (s *Secrets) ClientCertificate(name string) (*tls.Certificate, error) {
	p, ok := s.pairs[name]
	if !ok {
		return nil, fmt.Errorf("client certificate %q: %s.crt and %s.key are not both in the directory given with --secrets", name, name, name)
	}
	return p.certificate, p.err
}

// Equal reports whether both hold the same, so that nothing has to change.
func (s *Secrets) Equal(other *Secrets) bool { return maps.Equal(s.values, other.values) }

// authorize adds the fields of the policy's credentials for that host; callers never hold them. [withheld] has seen that
// each of them is there. Where two credentials claim a field the first has it.
func authorize(p *policy.Effective, host string, add func(name, value string)) {
	for i := range p.Credentials {
		c := &p.Credentials[i]
		if p.CredentialFor(c.Header, host) != c {
			continue
		}
		if value, ok := secret(p, c.Secret); ok {
			add(c.Header, c.Prefix+value)
		}
	}
}

func secret(p *policy.Effective, name string) (string, bool) {
	if p.Secrets == nil {
		return "", false
	}
	return p.Secrets.Value(name)
}

// withheld refuses to send a credential in clear over a network (plain http is for loopback only, and never through a proxy, whose
// loopback may be another machine's), and to send a request without the credential it should bear. Nil when there is nothing to refuse.
func withheld(c *call.Call, p *policy.Effective, raw *rawConn) *call.Result {
	if c.Foreign {
		return nil // no credential goes along
	}
	for i := range p.Credentials {
		name := p.Credentials[i].Secret
		if !p.Credentials[i].Covers(c.Target.Host) {
			continue
		}
		if c.Target.Scheme != "https" && (p.Egress.Proxy != nil || !onLoopback(raw.RemoteAddr())) {
			return refusedCredential(name, "a credential of the policy is not sent over plain http; use https")
		}
		if _, ok := secret(p, name); !ok {
			return refusedCredential(name, "a credential of the policy has no secret")
		}
	}
	return nil
}

func refusedCredential(name, detail string) *call.Result {
	return &call.Result{
		Evidence: call.EvidenceNotSent, Failure: call.FailureDenied, Detail: detail, Note: "credential " + name + ": " + detail,
	}
}

func onLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return true // in-memory connections of tests leave no machine
	}
	ip, ok := netip.AddrFromSlice(tcp.IP)
	return ok && ip.Unmap().IsLoopback()
}
