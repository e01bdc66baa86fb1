package engine

import (
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// remembered is how a call that ends so is told of to whoever asks again under its operation id; zero where the id is free again
// (semantics.md §3). What is kept is what a repeat could not mend: successes, definitive errors, conflicts, and all that an operation
// which must not be repeated may have done.
func (p *Plan) remembered(f *call.Final) call.Told {
	once := p.hops.repeat == policy.RepeatNever // the weakest of its requests: a hop may have lost the key
	switch {
	case p.hasSucceeded(f, once):
		return call.Told{Outcome: call.OutcomeSuccess, Reason: call.ReasonSuccess}
	case f.Effect == call.EffectNone:
		return call.Told{}
	case once && f.Effect == call.EffectUnknown:
		if f.Outcome == call.OutcomeCancelled {
			return call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}
		}
	case once:
		if p.hops.followed == 0 && p.onlyMendable() {
			return call.Told{}
		}
		if f.Outcome == call.OutcomeCancelled {
			return call.Told{Outcome: call.OutcomeHTTPError, Reason: call.ReasonStatusNotRetryable}
		}
	case f.Effect == call.EffectUnknown, !p.definitive(f):
		return call.Told{} // made again, it does no harm
	}
	return call.Told{Outcome: f.Outcome, Reason: f.Reason}
}

// hasSucceeded also when the caller went away in the moment of its success. A redirect that was not followed then is none of an operation
// that may be repeated, whose next call follows it.
func (p *Plan) hasSucceeded(f *call.Final, once bool) bool {
	switch f.Outcome {
	case call.OutcomeSuccess:
		return true
	case call.OutcomeCancelled:
		return p.beside.settled && p.response != nil && (once || !p.leadsOn(p.response))
	}
	return false
}

// definitive: an error that would come back.
func (p *Plan) definitive(f *call.Final) bool {
	switch f.Outcome {
	case call.OutcomeHTTPError, call.OutcomeOperationConflict, call.OutcomeResponseRejected:
		return p.response != nil && p.policy.Response.DefinitiveStatuses.Has(p.response.Status) && !p.mendable(p.response.Status)
	}
	return false
}

// onlyMendable: no answer tells of the operation but those that a new token or a later time mends, and those that the policy says did
// nothing.
func (p *Plan) onlyMendable() bool {
	some := false
	for i := range p.attempts {
		r := &p.attempts[i].Result
		switch {
		case r.Evidence != call.EvidenceAnswered:
		case p.mendable(r.Status):
			some = true
		case !p.policy.Retry.RejectionStatuses.Has(r.Status):
			return false
		}
	}
	return some
}

func (p *Plan) mendable(status int) bool {
	switch status {
	case 401, 403, 407, 425, 429:
		return true
	}
	return p.inProgress(status)
}
