package engine

import (
	"fmt"
	"time"

	"github.com/sallyport/sallyport/call"
)

// detail is one sentence for a person. It names no secret, no body text and no address behind a denied name.
func (p *Plan) detail(f *call.Final) string {
	switch f.Reason {
	case call.ReasonSuccess:
		if len(f.Attempts) > 1 {
			return fmt.Sprintf("answered %d at attempt %d", f.Response.Status, p.last().Number)
		}
		return "" // the common case costs nothing
	case call.ReasonStatusNotRetryable:
		if p.verdict(p.response) == verdictStop {
			return p.lastFailure() + ", and its " + p.policy.Retry.VerdictHeader.Name + " field says not to repeat it"
		}
		return p.lastFailure() + ", which is not repeated"
	case call.ReasonNotRepeatable:
		return p.lastFailure() + "; " + p.whyNotRepeatable()
	case call.ReasonBodyNotReplayable:
		if p.last().Result.Forwarded {
			return p.lastFailure() + "; the caller has a part of the answer already"
		}
		return p.lastFailure() + "; the body can be sent once only"
	case call.ReasonAttemptsExhausted:
		return fmt.Sprintf("%s; no attempt is left of %d", p.lastFailure(), p.maxAttempts)
	case call.ReasonDeadline:
		return p.deadlineDetail()
	case call.ReasonRetryAfterTooLong:
		return fmt.Sprintf("the upstream asks for a wait of %s, more than this call can give", f.RetryAfter.Round(time.Millisecond))
	case call.ReasonBudgetExhausted:
		return p.lastFailure() + "; the retry budget that all callers of this origin share is spent"
	case call.ReasonBreakerOpen:
		if p.forced {
			return "an operator holds the breaker of this origin open"
		}
		return "the breaker of this origin is open: too many attempts failed, of all callers together"
	case call.ReasonOriginHeld:
		return fmt.Sprintf("the origin asked not to be called for another %s", f.RetryAfter.Round(time.Millisecond))
	case call.ReasonConcurrencyLimit:
		return "the origin has as many attempts in flight as it may, and the queue had no slot in time"
	case call.ReasonCancelled:
		return "the caller went away"
	case call.ReasonEgressDenied:
		if p.denial != "" {
			return p.denial
		}
		return p.lastFailure()
	case call.ReasonRedirectLimit:
		return fmt.Sprintf("%s; the policy follows %d redirects at most", p.lastFailure(), p.policy.Redirects.MaxHops)
	case call.ReasonMalformedResponse:
		if p.hops.problem != "" {
			return p.hops.problem
		}
		return p.lastFailure()
	case call.ReasonOperationConflict:
		return "the upstream says that this key was used with another payload"
	case call.ReasonKeyExpired:
		return p.lastFailure() + "; the upstream may have forgotten the key, a repeat could act twice"
	}
	return p.lastFailure() // a failure of its own: malformed, too large, refused certificate, no such name
}

func (p *Plan) deadlineDetail() string {
	if len(p.attempts) == 0 {
		return "no time was left for an attempt once the caller's margin is kept"
	}
	if p.last().Result.Failure == call.FailureCancelled {
		return "the time was up during the attempt" // the context ended first, by a hair
	}
	return p.lastFailure() + "; the remaining time cannot hold another attempt"
}

func (p *Plan) whyNotRepeatable() string {
	if p.call.RepeatSafety == call.RepeatSafetyNever {
		return "the caller forbids to repeat what may have been sent"
	}
	return p.call.Method + " without an idempotency contract must not be repeated after it may have been sent"
}

func (p *Plan) lastFailure() string {
	if len(p.attempts) == 0 {
		return "nothing was sent"
	}
	r := &p.last().Result
	if r.Evidence == call.EvidenceAnswered {
		return fmt.Sprintf("answered %d", r.Status)
	}
	return r.Detail
}
