package engine

import (
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/call"
)

// told is what a result means for what is shared between callers.
type told struct {
	// success and failure are for the budget: a success, a failure worth repeating but for the one that earned the free resend.
	success, failure bool
	// superseded: the attempt was cancelled because another one answered.
	superseded bool
	// hold is how long the upstream asks to be left alone; 0: not at all.
	hold time.Duration
}

// holdFor is the wait that a 503 or 429 worth repeating asks for, where the policy obeys it, up to hold_max.
func (p *Plan) holdFor(r *call.Result, now time.Time) time.Duration {
	if !p.policy.Retry.Hold || r.Status != 503 && r.Status != 429 {
		return 0
	}
	asked, ok := serverDelay(r, now)
	if !ok {
		return 0
	}
	return min(asked, p.policy.Retry.HoldMax)
}

// breakerResult is what a result says about its origin (semantics.md §6), of an attempt that took that long and was given so much.
func breakerResult(r *call.Result, latency, given time.Duration) breaker.Result {
	b := breaker.Result{Kind: breaker.Failed, TimedOut: r.TimedOut, Latency: latency}
	if r.TimedOut {
		b.Given = given
	}
	switch {
	case r.Evidence == call.EvidenceAnswered && r.Status == 429:
		b.Kind = breaker.Throttled
	case r.Evidence == call.EvidenceAnswered:
		b.Answered = true
		if r.Status < 500 || r.Status == 501 || r.Status == 505 {
			b.Kind = breaker.OK
		}
	case r.Starved:
		b.Kind = breaker.Ignored // the caller was slow
	case r.Failure == call.FailureResponseTooLarge:
		b.Kind = breaker.OK // it is alive, and talkative
	case r.Terminal, r.Evidence == call.EvidenceRefused, r.Evidence == call.EvidenceNotSent && r.Reused,
		r.Failure == call.FailureDenied, r.Failure == call.FailureCancelled:
		b.Kind = breaker.Ignored // no such name, a refused certificate or stream, the keep-alive race, ourselves, the caller
	}
	return b
}
