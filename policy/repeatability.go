package policy

import (
	"slices"

	"github.com/sallyport/sallyport/call"
)

// Repeatability is what may be said of an operation before anything is sent (semantics.md §2.4).
type Repeatability uint8

const (
	// RepeatNever says that only what provably was not processed is sent again.
	RepeatNever Repeatability = iota
	// RepeatByKey says that the upstream honours the operation's key, within key_ttl.
	RepeatByKey
	// RepeatAlways says that it may be repeated: by its method, or by the word of a trusted caller, or since
	// duplicates are accepted.
	RepeatAlways
)

// Contract reports whether the policy's idempotency contract covers the method: then every operation has a key, the same on
// each of its attempts (draft-ietf-httpapi-idempotency-key-header).
func (e *Effective) Contract(method string) bool {
	return e.Idempotency.Enabled && slices.Contains(e.Idempotency.Methods, method)
}

// Keyed reports whether the call is sent under such a contract. A key without a contract is an ordinary field, and no key goes to
// another origin.
func (e *Effective) Keyed(c *call.Call) bool {
	return c.OperationID != "" && !c.Foreign && e.Contract(c.Method)
}

// Repeatability judges the call's operation.
func (e *Effective) Repeatability(c *call.Call) Repeatability {
	switch {
	case c.RepeatSafety == call.RepeatSafetyNever:
		return RepeatNever
	case slices.Contains(e.Retry.IdempotentMethods, c.Method), c.DuplicatesAccepted,
		c.RepeatSafety == call.RepeatSafetyIdempotent && e.Retry.TrustCallers:
		return RepeatAlways
	case e.Keyed(c):
		return RepeatByKey
	}
	return RepeatNever
}
