package policy

// Covers reports whether the credential is for that host; one without hosts is for every host of its policy.
func (c *Credential) Covers(host string) bool {
	if len(c.Hosts) == 0 {
		return true
	}
	for _, pattern := range c.Hosts {
		if CoversHost(pattern, host) {
			return true
		}
	}
	return false
}
