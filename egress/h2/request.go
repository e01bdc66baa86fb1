package h2

import (
	"slices"
	"strings"

	"github.com/sallyport/sallyport/call"
)

// Request is built by [Request.Start] and [Request.Field], and belongs to the connection while a RoundTrip runs.
type Request struct {
	// Body is the content. With Bodyless no Content-Length is written and Body must be empty (RFC 9110 §8.6).
	Body     []byte
	Bodyless bool
	// Next, if any, gives the content in pieces instead, each good until it is asked for the next, and io.EOF at the end.
	// Stop has it return at once; it is called when the stream is over.
	Next func() ([]byte, error)
	Stop func()
	// Unindexed names fields beside Authorization and Cookie that are kept out of the compression's memory: secrets, which nobody shall
	// guess by the size of what is sent (RFC 7541 §7.1), and what is different every time.
	Unindexed []string
	// Departure is asked before the first byte is handed to the connection; nil: nobody is.
	Departure *call.Departure

	method, path, authority string
	fields                  []call.Header
	refused                 string // the first reason not to send it
}

// Start begins a request and forgets the last one.
func (r *Request) Start(method, target, host string) {
	*r = Request{method: method, path: target, authority: host, fields: r.fields[:0]}
	if !visible(method) || !visible(target) || !visible(host) || target == "" {
		r.refuse("a blank or control byte in method, target or host")
	}
}

// Field adds one field. Names and values are checked long before; the check here is the last line of defence, and makes RoundTrip
// fail. Names go out in lower case (RFC 9113 §8.2).
func (r *Request) Field(name, value string) {
	switch {
	case !call.ValidToken(name), !call.ValidFieldValue(value):
		r.refuse("an illegal byte in a field")
	case reserved(name):
		r.refuse("a field that belongs to the protocol")
	}
	r.fields = append(r.fields, call.Header{Name: name, Value: value})
}

// refuse keeps the first reason.
func (r *Request) refuse(problem string) {
	if r.refused == "" {
		r.refused = problem
	}
}

func (r *Request) unindexed(name string) bool {
	return strings.EqualFold(name, "Authorization") || strings.EqualFold(name, "Cookie") ||
		slices.ContainsFunc(r.Unindexed, func(u string) bool { return strings.EqualFold(u, name) })
}

// reserved names what the package writes itself, and what has no place in HTTP/2 (RFC 9113 §8.2.2).
func reserved(name string) bool {
	for _, r := range [...]string{
		"Host", "Content-Length", "Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "TE", "HTTP2-Settings",
	} {
		if strings.EqualFold(r, name) {
			return true
		}
	}
	return false
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
