package engine

import (
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

func (p *Plan) final(now time.Time, o call.Outcome, reason call.Reason) Step {
	p.over = call.Final{
		Outcome:     o,
		Effect:      p.effect,
		Reason:      reason,
		Response:    p.response,
		Attempts:    p.attempts,
		RetrySafe:   p.retrySafe(now),
		OperationID: p.asked.OperationID,
		Elapsed:     now.Sub(p.call.Arrived),
		FirstSend:   p.firstSend,
	}
	f := &p.over
	for i := range p.attempts {
		if p.attempts[i].Result.Evidence != call.EvidenceNotSent {
			f.Sends++
		}
	}
	f.Next = p.next(now, f)
	if p.retryAfter != 0 {
		f.RetryAfter = p.retryAfter
	} else if o == call.OutcomeThrottled || f.Next == call.NextStepRetry || f.Next == call.NextStepRetrySameID {
		f.RetryAfter = p.earliest(now)
	}
	f.Detail, f.Note = p.detail(f), p.note
	f.Told = p.remembered(f)
	return Step{Kind: StepFinal, Final: f}
}

// refused: the call ended by a rule of ours before anything was dialled for its next attempt.
func refused(f *call.Final) bool {
	switch f.Reason {
	case call.ReasonBudgetExhausted, call.ReasonBreakerOpen, call.ReasonOriginHeld, call.ReasonConcurrencyLimit:
		return true
	case call.ReasonEgressDenied: // a literal address, or the hop of a redirect; not a name found forbidden by an attempt
		return len(f.Attempts) == 0 || f.Attempts[len(f.Attempts)-1].Result.Failure != call.FailureDenied
	case call.ReasonDeadline:
		return len(f.Attempts) == 0
	}
	return false
}

// retrySafe: submitting the call again cannot add an effect.
func (p *Plan) retrySafe(now time.Time) bool {
	switch p.hops.repeat {
	case policy.RepeatAlways:
		return true
	case policy.RepeatByKey:
		return p.effect == call.EffectNone || !p.keyPast(now)
	}
	return p.effect == call.EffectNone
}

// next is what the caller should do; the first that fits (contract.md §1, next).
func (p *Plan) next(now time.Time, f *call.Final) call.NextStep {
	unknown := f.Effect == call.EffectUnknown
	switch {
	case f.Outcome == call.OutcomeSuccess:
		return call.NextStepDone
	case !unknown && (f.Outcome == call.OutcomeOperationConflict || f.Outcome == call.OutcomeDenied || f.Outcome == call.OutcomeUnreachable):
		return call.NextStepFixRequest
	case unknown && p.policy.Keyed(p.asked) && p.hops.repeat != policy.RepeatNever && !p.keyPast(now):
		return call.NextStepRetrySameID
	case unknown && p.hops.repeat == policy.RepeatAlways:
		return call.NextStepRetry
	case unknown:
		return call.NextStepReconcile
	case f.Effect == call.EffectNone:
		return call.NextStepRetry
	case f.RetrySafe && p.response != nil && p.policy.Retry.Statuses.Has(p.response.Status):
		return call.NextStepRetry
	}
	return call.NextStepFixRequest
}

// keyPast: the operation's key may be forgotten upstream by now.
func (p *Plan) keyPast(now time.Time) bool {
	return !p.firstSend.IsZero() && now.After(p.firstSend.Add(p.policy.Idempotency.KeyTTL))
}

// earliest is the delay that the last answers asked for, 0 when they asked for none.
func (p *Plan) earliest(now time.Time) time.Duration {
	if len(p.attempts) == 0 {
		return 0
	}
	until := p.beside.notBefore
	a := p.last()
	ended := a.Start.Add(a.Duration)
	if asked, ok := serverDelay(&a.Result, ended); ok && ended.Add(asked).After(until) {
		until = ended.Add(asked)
	}
	return max(0, until.Sub(now))
}

// serverDelay reads Retry-After from a complete answer (RFC 9110 §10.2.3).
func serverDelay(r *call.Result, now time.Time) (time.Duration, bool) {
	if r.Response == nil {
		return 0, false
	}
	values := fieldValues(r.Response.Headers, "Retry-After")
	if len(values) == 0 {
		return 0, false
	}
	date := ""
	if d := fieldValues(r.Response.Headers, "Date"); len(d) > 0 {
		date = d[0]
	}
	return backoff.RetryAfter(values, date, now)
}
