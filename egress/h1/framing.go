package h1

import (
	"math"
	"strings"
	"time"
)

// framing is what the fields of a head say of the bytes after it.
type framing struct {
	// chunked, or length bytes; neither (-1) means until the connection ends.
	chunked bool
	length  int64
	// close: no other answer follows. keepAlive: how long the peer keeps the connection, 0 when it does not say.
	close     bool
	keepAlive time.Duration
}

// judge reads the framing fields (RFC 9112 §6). What leaves room for two readings is refused, not resolved: problem then
// names it.
func judge(fields []Field, minor int) (f framing, problem string) {
	f.length = -1
	var length string
	codings, keepAlive := 0, false
	for _, h := range fields {
		switch len(h.Name) { // the length first: most fields are none of these, and a fold of case costs more
		case len("Connection"):
			switch {
			case strings.EqualFold(h.Name, "Connection"):
				f.close = f.close || hasToken(h.Value, "close")
				keepAlive = keepAlive || hasToken(h.Value, "keep-alive")
			case strings.EqualFold(h.Name, "Keep-Alive"):
				d, said := keepAliveTimeout(h.Value)
				f.keepAlive = d
				// An idle life of zero is a refusal to keep the connection.
				f.close = f.close || said && d == 0
			}
		case len("Content-Length"):
			if !strings.EqualFold(h.Name, "Content-Length") {
				continue
			}
			if problem := judgeLength(h.Value, &length); problem != "" {
				return f, problem
			}
		case len("Transfer-Encoding"):
			if !strings.EqualFold(h.Name, "Transfer-Encoding") {
				continue
			}
			codings++
			f.chunked = strings.EqualFold(h.Value, "chunked")
		}
	}
	switch {
	case codings > 1 || codings == 1 && !f.chunked:
		return f, "a transfer coding other than one chunked"
	case f.chunked && minor == 0:
		return f, "a transfer coding in HTTP/1.0" // RFC 9112 §6.1: to be treated as faulty framing
	case f.chunked && length != "":
		return f, "Content-Length beside Transfer-Encoding" // RFC 9112 §6.1: ought to be handled as an error
	case length != "":
		n, ok := parseLength(length)
		if !ok {
			return f, "Content-Length"
		}
		f.length = n
	}
	f.close = f.close || minor == 0 && !keepAlive // RFC 9112 §9.3
	return f, ""
}

// judgeLength takes one Content-Length field into length. A list of equal values is the one value (RFC 9112 §6.3, rule 5);
// equal means written alike.
func judgeLength(value string, length *string) (problem string) {
	for more := true; more; {
		var e string
		e, value, more = element(value)
		if _, ok := parseLength(e); !ok {
			return "Content-Length"
		}
		if *length != "" && *length != e {
			return "different Content-Length values"
		}
		*length = e
	}
	return ""
}

// parseLength takes 1*DIGIT that fit an int64; no sign, no blank.
func parseLength(s string) (n int64, ok bool) {
	for i := range len(s) {
		if !isDigit(s[i]) || n > (math.MaxInt64-int64(s[i]-'0'))/10 {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, s != ""
}

// keepAliveTimeout reads timeout=N in seconds; anything else the field says is the peer's own business.
func keepAliveTimeout(value string) (d time.Duration, said bool) {
	const longest = int64(24 * time.Hour / time.Second)
	for more := true; more; {
		var e string
		e, value, more = element(value)
		name, arg, _ := strings.Cut(e, "=")
		if !strings.EqualFold(trimBlanks(name), "timeout") {
			continue
		}
		if n, ok := parseLength(trimBlanks(arg)); ok {
			return time.Duration(min(n, longest)) * time.Second, true
		}
	}
	return 0, false
}

// judgeAnnouncedTrailers refuses a chunked answer that announces its framing for later.
func judgeAnnouncedTrailers(fields []Field) (problem string) {
	for _, h := range fields {
		if strings.EqualFold(h.Name, "Trailer") && (hasToken(h.Value, "Content-Length") ||
			hasToken(h.Value, "Transfer-Encoding") || hasToken(h.Value, "Trailer")) {
			return "framing fields announced as trailers"
		}
	}
	return ""
}
