package egress

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// secretMax bounds the size of a secret's file.
const secretMax = 8 << 10

// Secrets are the values that policies' credentials refer to by name. They are held in memory only and never printed.
type Secrets struct {
	values map[string]string
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
		if info.Size() > secretMax {
			return nil, fmt.Errorf("secrets: %s has %d bytes, more than the %d a secret may have", path, info.Size(), secretMax)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("secrets: %w", err)
		}
		s.values[e.Name()] = strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	}
	return s, nil
}

// Check reports what keeps a credential from being used; nil when nothing does.
func (s *Secrets) Check(c *policy.Credential) error {
	value, ok := s.value(c.Secret)
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

func (s *Secrets) value(name string) (string, bool) {
	if s == nil {
		return "", false
	}
	v, ok := s.values[name]
	return v, ok
}

// Authorize gives the fields that the broker adds to an attempt for that host; callers never hold them. Where two credentials
// claim a field the first has it.
func (s *Secrets) Authorize(p *policy.Effective, host string, add func(name, value string)) {
	for i := range p.Credentials {
		c := &p.Credentials[i]
		if value, ok := s.value(c.Secret); ok && p.CredentialFor(c.Header, host) == c {
			add(c.Header, c.Prefix+value)
		}
	}
}

// withheld refuses to send a credential in clear over a network: plain http is for loopback only. Nil when there is nothing to
// refuse.
func (t *Transport) withheld(c *call.Call, p *policy.Effective, cn *conn) *call.Result {
	if len(p.Credentials) == 0 || c.Target.Scheme == "https" || onLoopback(cn.raw.RemoteAddr()) {
		return nil
	}
	for i := range p.Credentials {
		if p.Credentials[i].Covers(c.Target.Host) {
			return &call.Result{
				Evidence: call.EvidenceNotSent, Failure: call.FailureDenied,
				Detail: "a credential of the policy is not sent over plain http; use https",
				Note:   "credential over plain http: " + p.Credentials[i].Secret,
			}
		}
	}
	return nil
}

func onLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return true // in-memory connections of tests leave no machine
	}
	ip, ok := netip.AddrFromSlice(tcp.IP)
	return ok && ip.Unmap().IsLoopback()
}
