package call

import (
	"bytes"
	"strconv"
)

// The limits of what a caller may send. Lengths are those of the trimmed values; the total is of names and values.
const (
	maxFields           = 100
	maxFieldNameBytes   = 64
	maxFieldValueBytes  = 8 << 10
	maxFieldsTotalBytes = 32 << 10
)

// CleanHeaders returns the caller's fields that may be sent, in order, names as written and values without surrounding blanks.
//
// Silently left out is what is not the caller's to set and follows from elsewhere: hop-by-hop fields and those Connection names,
// framing, Host, forwarding, trace context. Refused, with an [InvalidError] for "request.headers[i].name" or ".value", is what
// can only be an error or an attack: names that are no token, control bytes, method overrides, sizes beyond the limits. Fields
// that are left out are checked as well.
//
// When nothing has to change, the result is in itself.
func CleanHeaders(in []Header) ([]Header, error) {
	if len(in) > maxFields {
		return nil, &InvalidError{Field: "request.headers", Problem: "holds more than 100 fields"}
	}
	hop := HopByHop{}
	total, unchanged := 0, true
	for i := range in {
		h := &in[i]
		fate := fateOf(h.Name)
		if problem := checkName(h.Name, fate); problem != "" {
			return nil, invalidHeader(i, "name", problem)
		}
		value := trimBlanks(h.Value)
		if problem := checkValue(value); problem != "" {
			return nil, invalidHeader(i, "value", problem)
		}
		if total += len(h.Name) + len(value); total > maxFieldsTotalBytes {
			return nil, &InvalidError{Field: "request.headers", Problem: "is longer than 32 KiB in all"}
		}
		if fate == nominates {
			hop.Nominate(value)
		}
		unchanged = unchanged && fate == sent && len(value) == len(h.Value)
	}
	if unchanged {
		return in, nil
	}
	out := make([]Header, 0, len(in))
	for _, h := range in {
		if fateOf(h.Name) == sent && !hop.Drops(h.Name) {
			out = append(out, Header{Name: h.Name, Value: trimBlanks(h.Value)})
		}
	}
	return out, nil
}

// fate is what becomes of a caller's field.
type fate uint8

const (
	sent fate = iota
	dropped
	nominates // dropped, and names others to drop
	refused
)

// fateOf judges by the name alone.
func fateOf(name string) fate {
	var buf [maxFieldNameBytes]byte
	folded := foldName(&buf, name)
	switch string(folded) {
	case "connection":
		return nominates
	// They follow from the URL and the body.
	case "host", "content-length":
		return dropped
	// It would make the exchange one of two steps.
	case "expect":
		return dropped
	// Who forwarded what is not the caller's to say.
	case "via", "forwarded", "x-real-ip", "true-client-ip", "cf-connecting-ip":
		return dropped
	// Some front ends route by these instead of the URL that was judged.
	case "x-original-url", "x-rewrite-url", "x-original-host":
		return dropped
	// The guard words of metadata services.
	case "metadata", "metadata-flavor", "x-google-metadata-request":
		return dropped
	// Trace context is the attempt's own.
	case "traceparent", "tracestate", "baggage":
		return dropped
	}
	switch {
	case isMethodOverride(folded):
		return refused
	case isHopByHop(folded),
		bytes.HasPrefix(folded, []byte("proxy-")),
		bytes.HasPrefix(folded, []byte("x-forwarded-")),
		bytes.HasPrefix(folded, []byte("x-envoy-")),
		bytes.HasPrefix(folded, []byte("x-aws-ec2-metadata-token")):
		return dropped
	}
	return sent
}

func checkName(name string, f fate) string {
	switch {
	case name == "":
		return "must not be empty"
	case name[0] == ':':
		return "must not be a pseudo-header; set method and url of the request"
	case len(name) > maxFieldNameBytes:
		return "is longer than 64 bytes"
	case !ValidToken(name):
		return "must be a token: letters, digits and !#$%&'*+-.^_`|~"
	case f == refused:
		return "must not turn the method into another one; set the method of the request"
	}
	return ""
}

func checkValue(value string) string {
	switch {
	case len(value) > maxFieldValueBytes:
		return "is longer than 8 KiB"
	case !ValidFieldValue(value):
		return "must not hold control bytes, line breaks included"
	}
	return ""
}

func invalidHeader(i int, part, problem string) error {
	return &InvalidError{Field: "request.headers[" + strconv.Itoa(i) + "]." + part, Problem: problem}
}
