package breaker

import "time"

// Refusal is why an attempt was not admitted.
type Refusal int32

// The refusals.
const (
	// RefusedOpen: the cooldown lasts.
	RefusedOpen Refusal = iota + 1
	// RefusedProbing: half-open, and the one probe is under way.
	RefusedProbing
	// RefusedUnfit: half-open and no probe is under way, but this attempt makes a poor one (see [Breaker.Admit]), and the time
	// in which a better one may come is not over.
	RefusedUnfit
	// RefusedRamp: just closed, and only a share is admitted yet.
	RefusedRamp
	// RefusedForced: an operator holds it open.
	RefusedForced
)

// String gives the reason as a phrase for a person.
func (r Refusal) String() string {
	switch r {
	case RefusedOpen:
		return "breaker open"
	case RefusedProbing:
		return "breaker half-open, a probe is under way"
	case RefusedUnfit:
		return "breaker half-open, this attempt is not fit to be the probe"
	case RefusedRamp:
		return "breaker just closed, admissions are still rising"
	case RefusedForced:
		return "breaker forced open"
	default:
		return "breaker refused"
	}
}

// RefusedError is the breaker's own no; nothing was sent.
type RefusedError struct {
	// RetryAfter is the earliest useful moment to come again, from now: what is left of the cooldown; while half-open what is left
	// of the probe's lease, at most OpenBase; 0 where nobody knows (forced open).
	RetryAfter time.Duration
	// Reason is which no it is.
	Reason Refusal
}

// Error says which no it is.
func (e *RefusedError) Error() string { return e.Reason.String() }
