package operation

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/call"
)

// fingerprintVersion begins what is hashed. Ledgers outlive programs: a change of what follows needs another one, and old records
// would conflict with every repeat.
const fingerprintVersion = "sallyport operation 1"

// FingerprintOf tells what was asked: the SHA-256 of method, URL, body, and the fields that reach the upstream by the caller's will.
//
// Left out is what may differ between two tries of one operation: trace context and date, credentials (a token may have been renewed),
// cookies, and the field that carries the key, named keyField ("" for none). Names count without case and in order of the alphabet, the values of one name in the
// order given; of the URL counts what goes out, so that a default port written or not is the same.
func FingerprintOf(c *call.Call, keyField string) Fingerprint {
	h := sha256.New()
	add(h, fingerprintVersion)
	add(h, c.Method)
	add(h, c.Target.Origin)
	add(h, c.Target.RequestTarget)
	fields := make([]call.Header, 0, len(c.Headers))
	for _, f := range c.Headers {
		f.Name = folded(f.Name)
		if !variable(f.Name) && (keyField == "" || f.Name != folded(keyField)) {
			fields = append(fields, f)
		}
	}
	slices.SortStableFunc(fields, func(a, b call.Header) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range fields {
		add(h, f.Name)
		add(h, f.Value)
	}
	add(h, "") // no field has this name: here the body begins
	_, _ = h.Write(c.Body)
	return Fingerprint(h.Sum(nil))
}

// add writes text behind its length, so that no two lists give the same bytes.
func add(h hash.Hash, text string) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(text)))
	_, _ = h.Write(length[:]) // never fails (hash.Hash)
	_, _ = h.Write([]byte(text))
}

// folded is a name as [call.SameField] compares it.
func folded(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// variable: a field of that folded name may differ between two tries of one operation.
func variable(name string) bool {
	switch name {
	case "authorization", "cookie", "cookie2", "date",
		"traceparent", "tracestate", "baggage", "b3", "uber-trace-id", "x-amzn-trace-id", "x-cloud-trace-context", "grpc-trace-bin", "sentry-trace":
		return true
	}
	return strings.HasPrefix(name, "x-b3-") || strings.HasPrefix(name, "x-datadog-")
}
