package call

// checkURLBytes bounds a URL and refuses the bytes no URL may hold. What is left goes out as written.
func checkURLBytes(raw string) string {
	switch {
	case raw == "":
		return "must not be empty"
	case len(raw) > maxURLBytes:
		return "is longer than 8 KiB"
	}
	for i := range len(raw) {
		switch c := raw[i]; {
		case c <= ' ' || c == 0x7f:
			return "must not hold blanks or control bytes; percent-encode them"
		case c >= 0x80:
			return "must be ASCII; write the host as xn-- and percent-encode the rest"
		case c == '\\':
			return "must not hold a backslash: some readers take it for a slash"
		case c == '#':
			return "must not hold a fragment: it is never sent"
		}
	}
	return ""
}

// checkPath refuses what would be another path after somebody's normalisation: dot segments (RFC 3986 §5.2.4) in every spelling,
// also between encoded separators, and encoded NUL, CR and LF. The query is not looked at: no reader resolves it.
func checkPath(path string) string {
	dots, others := 0, 0
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			var ok bool
			if c, ok = unescape(path[i:]); !ok {
				return "the path holds a percent sign without two hexadecimal digits; write it as %25"
			}
			if c == 0 || c == '\n' || c == '\r' {
				return "the path must not hold %00, %0a or %0d"
			}
			i += 2
		}
		switch {
		case isSeparator(c):
			if isDotSegment(dots, others) {
				return problemDotSegment
			}
			dots, others = 0, 0
		case c == '.':
			dots++
		default:
			others++
		}
	}
	if isDotSegment(dots, others) {
		return problemDotSegment
	}
	return ""
}

const problemDotSegment = "the path must not hold . or .. as a segment, raw or encoded; write the path it leads to"

func isDotSegment(dots, others int) bool { return others == 0 && (dots == 1 || dots == 2) }

func isSeparator(c byte) bool { return c == '/' || c == '\\' }

// unescape reads the %XX that s begins with.
func unescape(s string) (byte, bool) {
	if len(s) < 3 || !isHex(s[1]) || !isHex(s[2]) {
		return 0, false
	}
	return hexValue(s[1])<<4 | hexValue(s[2]), true
}

func hexValue(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func isDigit(c byte) bool { return c-'0' < 10 }

func isAlpha(c byte) bool { return c|0x20-'a' < 26 }

func isHex(c byte) bool { return isDigit(c) || c|0x20-'a' < 6 }
