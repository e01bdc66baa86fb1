package deferred

import "github.com/sallyport/sallyport/call"

// Told is how a finished record is told of to a direct call under its operation id, by the rules that a direct call's own end follows
// (semantics.md §3); zero: the id is free again.
func (r *Record) Told() call.Told {
	switch {
	case r.State == StateCompleted:
		return call.Told{Outcome: call.OutcomeSuccess, Reason: call.ReasonSuccess}
	case r.State == StateUnknown, r.Effect == call.EffectUnknown && !r.Repeatable:
		return call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}
	case r.Effect != call.EffectAnswered, r.mendable():
		return call.Told{}
	case r.State == StateFailed:
		return call.Told{Outcome: call.OutcomeHTTPError, Reason: r.Reason}
	case !r.Repeatable: // cancelled, and answered all the same
		return call.Told{Outcome: call.OutcomeHTTPError, Reason: call.ReasonStatusNotRetryable}
	}
	return call.Told{}
}

// mendable: its answer is one that a new token or a later time mends.
func (r *Record) mendable() bool {
	if r.Response == nil {
		return false
	}
	switch r.Response.Status {
	case 401, 403, 407, 425, 429:
		return true
	}
	return false
}
