package h1_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/egress/h1"
)

// stricter lists every reason for which we refuse an answer that net/http takes, by the text of our error, each with what must then be
// true of the answer. A refusal for another reason, or without its cause, fails the fuzzing.
var stricter = map[string]*regexp.Regexp{
	// net/http takes every HTTP/d.d, and leaves the judgement to its caller.
	"not an HTTP/1.0 or HTTP/1.1 answer": regexp.MustCompile(`(^|\n)HTTP/([02-9]\.[0-9]) `),
	// … any number of blanks before the status, HTTP/1.2 to 1.9.
	"status line": regexp.MustCompile(`(^|\n)HTTP/1\.([2-9] |[01]  )`),
	// … "+20" and "-00" as a status.
	"status is not three digits":                 regexp.MustCompile(`(^|\n)HTTP/1\.[01] [-+ ]`),
	"status outside 100 to 599":                  regexp.MustCompile(`(^|\n)HTTP/1\.[01] (0|[6-9])`),
	"101 to a request that asked for no upgrade": regexp.MustCompile(`(^|\n)HTTP/1\.[01] 101`),
	"reason phrase":                              regexp.MustCompile(`(^|\n)HTTP/1\.[01] [0-9]{3} [^\n]*[\x00-\x08\x0b-\x1f\x7f]`),
	"control byte in a field value":              regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f]`),
	"field name":                                 regexp.MustCompile(`\n[^\n:]*[ \t][^\n:]*:`),
	"a transfer coding other than one chunked":   regexp.MustCompile(`HTTP/1\.0`), // where net/http ignores the field
	"a transfer coding in HTTP/1.0":              regexp.MustCompile(`HTTP/1\.0`),
	"Content-Length beside Transfer-Encoding":    regexp.MustCompile(`(?is)content-length.*transfer-encoding|transfer-encoding.*content-length`),
	"chunk size":                                 regexp.MustCompile(`\n[0-9a-fA-F]+([ \t]+\r|;[^\n]*[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f])`),
	"a line of the chunked coding without CRLF":  regexp.MustCompile(`[^\r]\n`),
	"too many interim answers":                   regexp.MustCompile(`(?s)(HTTP/1\.[01] 1.*){101}`),
	"chunk extensions":                           regexp.MustCompile(`\n[0-9a-fA-F]+;`),
	"line over the limit":                        regexp.MustCompile(`[^\n]{1000}`),
	"a folded line before any field":             regexp.MustCompile(`\n[ \t]`),
}

// lengthList is the one answer we take and net/http does not: a list of equal lengths (RFC 9112 §6.3, rule 5).
var lengthList = regexp.MustCompile(`(?i)\ncontent-length:[ \t]*([0-9]+)[ \t]*(\r?\n[ \t]+)*,`)

// reading is what a reader makes of an answer.
type reading struct {
	status   int
	body     []byte
	fields   http.Header
	trailers http.Header
}

// read reads raw with our reader, in pieces of the given size.
func read(t *testing.T, raw []byte, method string, piece int) (reading, error) {
	t.Helper()
	p := &peer{takes: -1}
	for f := range slices.Chunk(raw, piece) {
		p.fragments = append(p.fragments, slices.Clone(f))
	}
	lim := roomy()
	lim.HeaderBytes, lim.Headers = 1<<20, 1<<20
	r, err := exchange(t, h1.New(p), method, lim)
	got := reading{status: r.Status, body: r.Body, fields: http.Header{}, trailers: http.Header{}}
	for _, f := range r.Fields {
		got.fields.Add(f.Name, f.Value)
	}
	for _, f := range r.Trailers {
		got.trailers.Add(f.Name, f.Value)
	}
	return got, err
}

// oracle reads raw with net/http, interim answers skipped.
func oracle(raw []byte, method string) (reading, error) {
	in := bufio.NewReaderSize(bytes.NewReader(raw), len(raw)+4096)
	for {
		r, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return reading{}, err
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return reading{}, err
		}
		if 100 <= r.StatusCode && r.StatusCode < 200 && r.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		got := reading{status: r.StatusCode, body: body, fields: r.Header, trailers: r.Trailer}
		if got.trailers == nil {
			got.trailers = http.Header{}
		}
		return got, nil
	}
}

// kept takes out what net/http changes on purpose.
func kept(h http.Header, barred ...string) http.Header {
	out := http.Header{}
	for name, values := range h {
		if slices.Contains(barred, name) || len(values) == 0 {
			continue
		}
		for _, v := range values {
			// Folds: net/http leaves blanks where an empty line was folded in.
			out[name] = append(out[name], strings.Join(strings.FieldsFunc(v, func(r rune) bool { return r == ' ' || r == '\t' }), " "))
		}
	}
	return out
}

func FuzzReadResponse(f *testing.F) {
	for _, a := range answers() {
		f.Add([]byte(a.raw), a.method == "HEAD", byte(len(a.raw)))
	}
	f.Add([]byte("HTTP/1.0 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"), false, byte(0))
	f.Add([]byte("HTTP/1.1 200 OK\nContent-Length: 3, 3\n\nabc"), false, byte(3))
	f.Fuzz(func(t *testing.T, raw []byte, head bool, piece byte) {
		if len(raw) > 64<<10 {
			t.Skip()
		}
		method := "GET"
		if head {
			method = "HEAD"
		}
		ours, err := read(t, raw, method, len(raw)+1)
		again, errAgain := read(t, raw, method, int(piece)+1)
		if kindOf(t, err) != kindOf(t, errAgain) || err != nil && err.Error() != errAgain.Error() {
			t.Fatalf("%v in one piece, %v in pieces of %d", err, errAgain, int(piece)+1)
		}
		if ours.status != again.status || !bytes.Equal(ours.body, again.body) || !equal(ours.fields, again.fields) || !equal(ours.trailers, again.trailers) {
			t.Fatalf("%+v in one piece, %+v in pieces of %d", ours, again, int(piece)+1)
		}

		theirs, theirErr := oracle(raw, method)
		switch {
		case err != nil && theirErr != nil:
		case err != nil:
			e, _ := errors.AsType[*h1.Error](err)
			cause, known := stricter[e.Problem]
			if !known || !cause.Match(raw) {
				t.Fatalf("stricter without a reason on the list: %v in %q", err, raw)
			}
		case theirErr != nil:
			if !lengthList.Match(raw) {
				t.Fatalf("laxer than net/http: %v in %q", theirErr, raw)
			}
		default:
			if ours.status != theirs.status || !bytes.Equal(ours.body, theirs.body) {
				t.Fatalf("%d %q, net/http %d %q", ours.status, ours.body, theirs.status, theirs.body)
			}
			// net/http takes the framing out, makes one of equal lengths, and adds a Cache-Control to "Pragma: no-cache".
			changed := []string{"Transfer-Encoding", "Trailer", "Content-Length"}
			if _, own := ours.fields["Cache-Control"]; !own && theirs.fields.Get("Pragma") == "no-cache" {
				changed = append(changed, "Cache-Control")
			}
			// … and removes a Connection field that says close.
			if _, there := theirs.fields["Connection"]; !there && strings.Contains(strings.ToLower(strings.Join(ours.fields["Connection"], ",")), "close") {
				changed = append(changed, "Connection")
			}
			if a, b := kept(ours.fields, changed...), kept(theirs.fields, changed...); !equal(a, b) {
				t.Fatalf("fields %q, net/http %q", a, b)
			}
			barred := []string{
				"Content-Length", "Transfer-Encoding", "Trailer", "Host", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade",
				"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info",
			}
			if a, b := kept(ours.trailers), kept(theirs.trailers, barred...); !equal(a, b) {
				t.Fatalf("trailers %q, net/http %q", a, b)
			}
		}
	})
}

func equal(a, b http.Header) bool { return maps.EqualFunc(a, b, slices.Equal) }
