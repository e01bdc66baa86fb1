package engine

import (
	"github.com/sallyport/sallyport/call"
)

// effectOf is what one attempt by itself leaves known (contract.md §1, Effect). after is what was known before it.
//
// An unknown effect is sticky: a DELETE that was lost and then answers 404 may be the echo of its own success, so that only a
// success settles it. A safe method has nothing to settle: any complete answer tells all.
func (p *Plan) effectOf(after call.Effect, r *call.Result) call.Effect {
	switch r.Evidence {
	case call.EvidenceNotSent, call.EvidenceRefused:
		return after
	case call.EvidenceAnswered:
	default:
		if p.safe && after == call.EffectAnswered {
			return after // a complete answer counts before a lost attempt as well as after it
		}
		return call.EffectUnknown
	}
	if p.safe || p.succeeded(r) || p.settled(after, r) {
		return call.EffectAnswered
	}
	switch {
	case after == call.EffectUnknown:
		return call.EffectUnknown
	case p.policy.Retry.RejectionStatuses.Has(r.Status):
		return after // the policy's word that such an answer did nothing
	case p.inProgress(r.Status):
		return call.EffectUnknown
	case p.policy.Response.DefinitiveStatuses.Has(r.Status):
		return call.EffectAnswered
	}
	return call.EffectUnknown
}

// succeeded: a complete answer that the policy calls a success.
func (p *Plan) succeeded(r *call.Result) bool {
	return r.Evidence == call.EvidenceAnswered && p.policy.Response.SuccessStatuses.Has(r.Status)
}

// settled: after an attempt whose effect is unknown, this answer is the echo of its success (retry.success_after_unknown).
func (p *Plan) settled(after call.Effect, r *call.Result) bool {
	return !p.safe && after == call.EffectUnknown && r.Evidence == call.EvidenceAnswered &&
		p.policy.Retry.SuccessAfterUnknown.Has(r.Status)
}

// inProgress: under the idempotency contract this answer says that the operation is still running upstream.
func (p *Plan) inProgress(status int) bool {
	return p.keyed && p.policy.Idempotency.InProgressStatuses.Has(status)
}
