package call

import "bytes"

// Header is one field as it stands on the wire. Value holds the bytes as they are, UTF-8 or not.
type Header struct {
	Name, Value string
}

// The bytes of a token but for digits and letters, as bit sets of the first and the second 64 bytes.
const (
	tokenMarksLow  = 1<<'!' | 1<<'#' | 1<<'$' | 1<<'%' | 1<<'&' | 1<<'\'' | 1<<'*' | 1<<'+' | 1<<'-' | 1<<'.' | tokenDigits
	tokenMarksHigh = 1<<('^'-64) | 1<<('_'-64) | 1<<('`'-64) | 1<<('|'-64) | 1<<('~'-64) | tokenLetters

	tokenDigits  = (1<<10 - 1) << '0'
	tokenLetters = (1<<26-1)<<('A'-64) | (1<<26-1)<<('a'-64)
)

// ValidToken reports whether s is a token (RFC 9110 §5.6.2): a field name, a method.
func ValidToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		marks := uint64(tokenMarksLow)
		if c >= 64 {
			marks = tokenMarksHigh
		}
		if c >= 128 || marks&(1<<(c%64)) == 0 {
			return false
		}
	}
	return s != ""
}

// ValidFieldValue reports whether s may stand as a field value: no control byte but the tab (RFC 9110 §5.5). Bytes above ASCII are
// legal, whatever they mean. An empty value is one.
func ValidFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

// ReservedField reports whether a name is nobody's to set, a policy's and a credential's included: framing and Host follow from the
// request, hop-by-hop, Via and Proxy-* fields belong to the way, trace context to the attempt, and a method override would turn a method that
// was judged into another one. Names are compared as everywhere: without case, and _ as -.
func ReservedField(name string) bool {
	if len(name) > 0 && name[0] == ':' { // pseudo-headers, RFC 9113 §8.3
		return true
	}
	if len(name) > maxFieldNameBytes {
		return false
	}
	var buf [maxFieldNameBytes]byte
	folded := foldName(&buf, name)
	switch string(folded) {
	case "host", "content-length", "expect", "via", "traceparent", "tracestate", "baggage":
		return true
	}
	return isHopByHop(folded) || isMethodOverride(folded) || bytes.HasPrefix(folded, []byte("proxy-"))
}

// foldName writes a name in lower case with - for _ into buf: servers behind CGI-like gateways cannot tell the two apart, so a test
// that could would be passed by X_Forwarded_For. A name longer than buf is cut; none of the names tested for is as long.
func foldName(buf *[maxFieldNameBytes]byte, name string) []byte {
	n := min(len(name), len(buf))
	for i := range n {
		buf[i] = foldByte(name[i])
	}
	return buf[:n]
}

func foldByte(c byte) byte {
	switch {
	case c == '_':
		return '-'
	case c-'A' < 26:
		return c | 0x20
	}
	return c
}

// SameField reports whether two names mean one field: case does not matter, and _ is taken for -, as servers behind CGI-like
// gateways take it.
func SameField(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if foldByte(a[i]) != foldByte(b[i]) {
			return false
		}
	}
	return true
}

// trimBlanks cuts optional whitespace (RFC 9110 §5.6.3), which is no part of a value.
func trimBlanks(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
