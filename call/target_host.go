package call

import (
	"net/netip"
	"strings"
)

// The limits of a DNS name (RFC 1035 §2.3.4).
const (
	maxNameBytes  = 253
	maxLabelBytes = 63
)

// splitPort cuts the port off an authority without userinfo; port is "" when none is written. A colon without a port is refused.
func splitPort(authority string) (host, port, problem string) {
	hostEnd := strings.IndexByte(authority, ':')
	if strings.HasPrefix(authority, "[") {
		hostEnd = strings.IndexByte(authority, ']') + 1
		if hostEnd == 0 {
			return "", "", "an IPv6 address must end with a closing bracket"
		}
	}
	if hostEnd < 0 || hostEnd == len(authority) {
		return authority, "", ""
	}
	host, port = authority[:hostEnd], authority[hostEnd:]
	switch {
	case port == ":":
		return "", "", "a port must follow the colon"
	case port[0] != ':':
		return "", "", "only a port may follow an IPv6 address"
	case strings.Count(port, ":") > 1:
		return "", "", "an IPv6 address must stand in brackets"
	}
	return host, port[1:], ""
}

// parsePort returns 0 for what is no canonical port: a second spelling of a port would be a second origin.
func parsePort(s string) uint16 {
	if len(s) > 5 || s[0] == '0' {
		return 0
	}
	n := 0
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0
		}
		n = n*10 + int(s[i]-'0')
	}
	if n > 65535 {
		return 0
	}
	return uint16(n)
}

// parseIPv6 reads an address in brackets. An IPv4-mapped one is the IPv4 address it reaches: one server, one origin, one policy.
func parseIPv6(host string) (netip.Addr, string) {
	addr, err := netip.ParseAddr(host[1 : len(host)-1])
	if err != nil || !addr.Is6() {
		return netip.Addr{}, "only an IPv6 address may stand in brackets"
	}
	if addr.Zone() != "" {
		return netip.Addr{}, "an IPv6 address must not have a zone"
	}
	return addr.Unmap(), ""
}

// parseName checks a name without its trailing dot, which dotted tells. What ends like a number must be a canonical IPv4 address,
// which it returns: C libraries and browsers read 127.1, 0x7f000001 or 0177.0.0.1 as addresses, others look them up as names.
//
// Names outside ASCII come as A-labels (xn--…): which characters fold into which is the caller's business. An A-label that hides a
// plain ASCII name ends with a hyphen, and is refused for that.
func parseName(name string, dotted bool) (netip.Addr, string) {
	switch {
	case name == "":
		return netip.Addr{}, "must name a host"
	case len(name) > maxNameBytes:
		return netip.Addr{}, "the host name is longer than 253 characters"
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if problem := checkLabel(label); problem != "" {
			return netip.Addr{}, problem
		}
		last = label
	}
	if !isNumeric(last) {
		return netip.Addr{}, ""
	}
	addr, err := netip.ParseAddr(name) // no leading zeros, exactly four parts
	if err != nil || !addr.Is4() || dotted {
		return netip.Addr{}, "an IPv4 address must be written as four decimal numbers without leading zeros"
	}
	return addr, ""
}

// NameProblem says why a name, without a trailing dot, can be no target's host; "" when it can. It is for names alone: what ends like
// a number is an address in some spelling, or none.
func NameProblem(name string) string {
	_, problem := parseName(name, true)
	return problem
}

func checkLabel(label string) string {
	switch {
	case label == "":
		return "the host name has an empty label"
	case len(label) > maxLabelBytes:
		return "a label of the host name is longer than 63 characters"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "a label of the host name must not begin or end with a hyphen"
	}
	for i := range len(label) {
		// The underscore is no letter of a host name (RFC 1123 §2.1), but of names in use.
		if c := label[i]; !isAlpha(c) && !isDigit(c) && c != '-' && c != '_' {
			return "a host name holds only letters, digits, hyphens, underscores and dots; write other alphabets as xn--"
		}
	}
	return ""
}

// isNumeric is the "ends in a number" test of the WHATWG URL standard for the last label: decimal, octal or hexadecimal.
func isNumeric(label string) bool {
	hex := false
	if len(label) >= 2 && label[0] == '0' && label[1]|0x20 == 'x' {
		label, hex = label[2:], true
	}
	for i := range len(label) {
		if c := label[i]; !isDigit(c) && (!hex || !isHex(c)) {
			return false
		}
	}
	return true
}
