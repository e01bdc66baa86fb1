package policy

import (
	"net/netip"
	"strings"
)

// CoversHost reports whether a host pattern covers a host, both as a table spells them: lower case, no trailing dot, addresses
// canonical. "*.example.com" covers one or more labels, not the apex.
func CoversHost(pattern, host string) bool {
	if suffix, wild := strings.CutPrefix(pattern, "*"); wild {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return pattern == host
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
	name, wild := strings.CutPrefix(pattern, "*.")
	name = strings.TrimSuffix(name, ".")
	switch {
	case strings.Contains(name, "*"):
		return `a "*" stands for whole labels at the start only: write *.example.com, or leave hosts out to cover any`
	case name == "" || len(name) > 253:
		return "a host has 1 to 253 characters"
	case strings.ContainsAny(name, ":/@[]"):
		return "write the host alone: no scheme, port, user or path"
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || !plain(label) {
			return "a label has 1 to 63 letters, digits, hyphens or underscores, no hyphen at an end; write other letters as xn--"
		}
	}
	// A name that ends in a number is an address in some spelling (WHATWG URL, ends-in-a-number checker).
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(strings.ToLower(last), "0x") {
		if wild {
			return "an address has no wildcard"
		}
		return "ends in a number but is no canonical address"
	}
	return ""
}

// plain reports whether every byte is a letter, digit, hyphen or underscore.
func plain(label string) bool {
	for i := range len(label) {
		switch c := label[i] | 0x20; {
		case 'a' <= c && c <= 'z', '0' <= label[i] && label[i] <= '9', label[i] == '-', label[i] == '_':
		default:
			return false
		}
	}
	return true
}
