package budget

import (
	"fmt"
	"time"
)

// Reason says which bound refused.
type Reason int

// The reasons.
const (
	// ReasonSpent: what all callers together may spend is spent.
	ReasonSpent Reason = iota + 1
	// ReasonCallerShare: this caller has taken its share while others contend; they may still be granted.
	ReasonCallerShare
)

// RefusedError is the budget's no. It is never the upstream's: the last real answer stays the call's answer.
type RefusedError struct {
	// Budget is the name of the budget that refused.
	Budget string
	// Reason says which bound it was.
	Reason Reason
	// RetryAfter is when an extra attempt will be allowed if nothing else happens until then; 0: no time is known, because
	// only successes or first attempts can refill it. An estimate: others may come first, and those granted and still to be sent
	// are taken as sent now.
	RetryAfter time.Duration
}

// Error tells whose no it is, and why.
func (e *RefusedError) Error() string {
	why := "is spent"
	if e.Reason == ReasonCallerShare {
		why = "has given this caller its share while others contend"
	}
	if e.RetryAfter > 0 {
		return fmt.Sprintf("retry budget %q %s; ask again in %v", e.Budget, why, e.RetryAfter)
	}
	return fmt.Sprintf("retry budget %q %s", e.Budget, why)
}
