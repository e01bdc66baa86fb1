package call

import (
	"net/netip"
	"strconv"
	"strings"
)

// Target is a URL that was read strictly: one spelling, one meaning.
type Target struct {
	// Scheme is "http" or "https".
	Scheme string
	// Host is the name in lower case without a trailing dot, or the address without brackets. It is what is matched, resolved,
	// dialled, and what the certificate must name.
	Host string
	// Address is the literal address, invalid when Host is a name.
	Address netip.Addr
	// Port is the port written, or the scheme's.
	Port uint16
	// Authority is the Host field of the request: host as written but for a trailing dot, brackets kept, and the port when one was
	// written.
	Authority string
	// Path is the path as written, "/" when there was none.
	Path string
	// RequestTarget is path and query exactly as written (RFC 9112 §3.2.1).
	RequestTarget string
	// Origin is scheme://host:port, the port always there: the key of all shared state.
	Origin string
}

// maxURLBytes bounds a URL: servers give up at about the same length.
const maxURLBytes = 8 << 10

// ParseTarget reads an absolute http or https URL, or says in an [InvalidError] for "request.url" why it cannot be one.
//
// It is its own parser because net/url repairs: here nothing is folded, unescaped or resolved, so what was checked is what goes
// out. Refused is whatever two readers could take for two things: userinfo, fragments, backslashes, dot segments, and hosts that
// are neither a plain name nor an address in its one canonical form.
func ParseTarget(raw string) (Target, error) {
	t, problem := parseTarget(raw)
	if problem != "" {
		return Target{}, &InvalidError{Field: "request.url", Problem: problem}
	}
	return t, nil
}

// Ambiguous reports whether some servers would read the path as another one: an encoded separator (%2f, %5c), an empty segment
// (//) or a path parameter (;). It goes out as written, but a rule for a path prefix cannot be relied on.
func (t *Target) Ambiguous() bool {
	for i := range len(t.Path) {
		switch t.Path[i] {
		case ';':
			return true
		case '/':
			if i > 0 && t.Path[i-1] == '/' {
				return true
			}
		case '%':
			if c, ok := unescape(t.Path[i:]); ok && (isSeparator(c) || c == ';') {
				return true
			}
		}
	}
	return false
}

// parseTarget returns a problem, "" when there is none. No problem repeats any part of the URL: it may hold a password.
func parseTarget(raw string) (Target, string) {
	if problem := checkURLBytes(raw); problem != "" {
		return Target{}, problem
	}
	t := Target{}
	scheme, rest, ok := strings.Cut(raw, "://")
	switch {
	case ok && strings.EqualFold(scheme, "http"): // RFC 3986 §3.1: a scheme is the same in any case
		t.Scheme, t.Port = "http", 80
	case ok && strings.EqualFold(scheme, "https"):
		t.Scheme, t.Port = "https", 443
	default:
		return Target{}, "must begin with http:// or https://"
	}

	authority := rest
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		authority, t.RequestTarget = rest[:end], rest[end:]
	}
	if problem := t.setAuthority(authority); problem != "" {
		return Target{}, problem
	}
	if t.RequestTarget == "" || t.RequestTarget[0] == '?' {
		// RFC 9112 §3.2.1: an empty path is sent as "/".
		t.RequestTarget = "/" + t.RequestTarget
	}
	t.Path, _, _ = strings.Cut(t.RequestTarget, "?")
	if problem := checkPath(t.Path); problem != "" {
		return Target{}, problem
	}
	return t, ""
}

// setAuthority fills Host, Address, Port, Authority and Origin.
func (t *Target) setAuthority(authority string) string {
	if strings.IndexByte(authority, '@') >= 0 {
		return "must not hold a user name or password; send an Authorization field instead"
	}
	host, port, problem := splitPort(authority)
	if problem != "" {
		return problem
	}
	if port != "" {
		if t.Port = parsePort(port); t.Port == 0 {
			return "the port must be a decimal number from 1 to 65535 without leading zeros"
		}
	}

	name := host
	if strings.HasPrefix(host, "[") {
		t.Address, problem = parseIPv6(host)
	} else {
		name = strings.TrimSuffix(host, ".")
		t.Address, problem = parseName(name, len(name) < len(host))
	}
	if problem != "" {
		return problem
	}

	t.Authority = authority
	if len(name) < len(host) {
		t.Authority = name + authority[len(host):]
	}
	bracketed := strings.ToLower(name)
	t.Host = bracketed
	if t.Address.IsValid() {
		t.Host = t.Address.String()
		bracketed = t.Host
		if t.Address.Is6() {
			bracketed = "[" + t.Host + "]"
		}
	}
	t.Origin = t.Scheme + "://" + bracketed + ":" + strconv.Itoa(int(t.Port))
	return ""
}
