package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// sayf writes for a person to read. When nobody reads any more there is nobody to tell.
func sayf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// plain makes text of any origin safe for a terminal and keeps it on one line: what is not printable is shown by its code. Upstreams
// choose headers and words, and a terminal obeys escapes wherever they come from.
func plain(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !showable(r) || r == utf8.RuneError }) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case showable(r):
			b.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}

// isText reports whether a body can be printed as it is: valid UTF-8 whose only controls are line ends and tabs. A lone carriage
// return goes back to the start of a line and could overwrite what stands there.
func isText(body []byte) bool {
	if !utf8.Valid(body) {
		return false
	}
	s := strings.ReplaceAll(string(body), "\r\n", "\n")
	return strings.IndexFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && !showable(r) }) < 0
}

// showable: it has a shape, or joins letters. Controls have none, and those that turn the direction of writing make a text read
// as another (Unicode TR #36 §2.5).
func showable(r rune) bool {
	switch r {
	case '\u00ad', '\u200c', '\u200d', '\ufeff':
		return true
	}
	return unicode.IsGraphic(r)
}
