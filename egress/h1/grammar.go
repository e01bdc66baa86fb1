package h1

import "strings"

// tokenLow and tokenHigh are the tchar of RFC 9110 §5.6.2 as sets of bits, for bytes 0–63 and 64–127.
const (
	tokenLow  = uint64(1<<'!' | 1<<'#' | 1<<'$' | 1<<'%' | 1<<'&' | 1<<'\'' | 1<<'*' | 1<<'+' | 1<<'-' | 1<<'.' | 0x3ff<<'0')
	tokenHigh = uint64(0x3ffffff<<('A'-64) | 0x3ffffff<<('a'-64) | 1<<('^'-64) | 1<<('_'-64) | 1<<('`'-64) | 1<<('|'-64) | 1<<('~'-64))
)

func isToken[T string | []byte](s T) bool {
	for i := range len(s) {
		set := tokenLow
		if s[i] >= 64 {
			set = tokenHigh
		}
		if s[i] >= 128 || set>>(s[i]&63)&1 == 0 {
			return false
		}
	}
	return len(s) > 0
}

// isFieldValue holds for visible bytes, blanks and obs-text (RFC 9110 §5.5): no control but HTAB.
func isFieldValue[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// visible holds where not even a blank is.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' }

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// trimBlanks takes off the optional white space around a value (OWS, RFC 9110 §5.6.3).
func trimBlanks[T string | []byte](s T) T {
	for len(s) > 0 && isBlank(s[0]) {
		s = s[1:]
	}
	for len(s) > 0 && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// element cuts the first element off a comma-separated list.
func element(list string) (first, rest string, more bool) {
	first, rest, more = strings.Cut(list, ",")
	return trimBlanks(first), rest, more
}

// hasToken reports whether a list has the token, compared without case.
func hasToken(list, token string) bool {
	for more := true; more; {
		var e string
		e, list, more = element(list)
		if strings.EqualFold(e, token) {
			return true
		}
	}
	return false
}
