package policy

import "strings"

// appendPath appends a path as policies compare it, up to limit bytes. Escapes of unreserved characters are decoded, for a
// server takes /%64eep as /deep (RFC 3986 §6.2.2.2) and a caller must not get around a policy by the spelling; other escapes
// get upper-case digits (§6.2.2.1). What goes upstream stays as it was written.
func appendPath(dst []byte, path string, limit int) []byte {
	for i := 0; i < len(path) && len(dst) < limit; i++ {
		c := path[i]
		if c != '%' || i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
			dst = append(dst, c)
			continue
		}
		high, low := path[i+1], path[i+2]
		i += 2
		if c = unhex(high)<<4 | unhex(low); isUnreserved(c) {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', upperHex(high), upperHex(low))
	}
	return dst
}

// normalPrefix is a path_prefix as it is compared: "/deep/" and "/deep" are one; "/" stays.
func normalPrefix(prefix string) string {
	p := string(appendPath(nil, prefix, len(prefix)+1))
	if trimmed := strings.TrimRight(p, "/"); trimmed != "" || p == "" {
		return trimmed
	}
	return "/"
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func upperHex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 'A'
	}
	return c
}

// isUnreserved follows RFC 3986 §2.3.
func isUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
