package policy

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
