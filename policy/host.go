package policy

import (
	"net/netip"
	"strings"

	"github.com/sallyport/sallyport/call"
)

// CoversHost reports whether a host pattern covers a host, both as a table spells them: lower case, no trailing dot, addresses
// canonical. "*.example.com" covers one or more labels, not the apex.
func CoversHost(pattern, host string) bool {
	if suffix, wild := strings.CutPrefix(pattern, "*"); wild {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return pattern == host
}

// HostPattern gives a pattern as a person writes it the spelling that [CoversHost] reads, or says why no host is covered by it.
func HostPattern(pattern string) (normal, problem string) {
	if problem = hostProblem(pattern); problem != "" {
		return "", problem
	}
	return normalHost(pattern), ""
}

// normalHost gives a pattern the spelling of [call.Target].Host.
func normalHost(pattern string) string {
	if a, ok := literal(pattern); ok {
		return a.String()
	}
	return strings.ToLower(strings.TrimSuffix(pattern, "."))
}

// literal reads an address, bare or in the brackets of a URL. An IPv4-mapped one is its IPv4, as the guard judges it.
func literal(host string) (netip.Addr, bool) {
	if in, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(in, "]"); !ok {
			return netip.Addr{}, false
		}
	}
	a, err := netip.ParseAddr(host)
	return a.Unmap(), err == nil && a.Zone() == ""
}

// hostProblem says why a pattern can never be a target's host, "" when it can.
func hostProblem(pattern string) string {
	if _, ok := literal(pattern); ok {
		return ""
	}
	name := strings.TrimSuffix(strings.TrimPrefix(pattern, "*."), ".")
	switch {
	case strings.Contains(name, "*"):
		return `a "*" stands for whole labels at the start only: write *.example.com, or leave hosts out to cover any`
	case strings.ContainsAny(name, ":/@[]"):
		return "write the host alone: no scheme, port, user or path"
	}
	return call.NameProblem(name)
}
