package policy

import "github.com/sallyport/sallyport/call"

// Covers reports whether the credential is for that host. One without hosts is for none: validation refuses it, since a secret
// must never go wherever a policy happens to match.
func (c *Credential) Covers(host string) bool {
	for _, pattern := range c.Hosts {
		if CoversHost(pattern, host) {
			return true
		}
	}
	return false
}

// CredentialFor is the credential that has the field of that name in requests to that host; nil when none has.
func (e *Effective) CredentialFor(header, host string) *Credential {
	for i := range e.Credentials {
		if c := &e.Credentials[i]; call.SameField(c.Header, header) && c.Covers(host) {
			return c
		}
	}
	return nil
}
