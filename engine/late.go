package engine

import (
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// late is what a plan keeps of an attempt that outlives its caller (semantics.md §3, late answers).
type late struct {
	told bool // the caller has its answer: whatever comes is judged, and nothing more is sent
	gone bool // it went away before its time was up
}

// runsOn: an attempt of the present request may outlive the caller. Of an operation that must not be repeated its answer is the one way
// to learn what became of it; whatever may be repeated is.
func (p *Plan) runsOn() bool {
	return p.asked.MayRunOn && p.repeat == policy.RepeatNever && p.policy.Repeatability(p.asked) == policy.RepeatNever
}

// allowance is what an attempt has that starts now, if it has to, and whether its own limit cuts it shorter than the policy's: as if
// nobody's time were up before its own.
func (p *Plan) allowance(now time.Time) (allowed time.Duration, cut bool) {
	allowed, _ = p.timeout(now)
	if p.runsOn() {
		limit := p.policy.Attempt.Timeout
		if t := p.call.AttemptTimeout; t != 0 {
			limit = min(limit, t)
		}
		allowed = max(allowed, limit)
	}
	return allowed, allowed < p.policy.Attempt.Timeout
}

// latest is when an attempt ends that its caller does not.
func (p *Plan) latest(a *call.Attempt) time.Time {
	limit := p.policy.Attempt.Timeout
	if t := p.call.AttemptTimeout; t != 0 {
		limit = min(limit, t)
	}
	return a.Start.Add(max(a.Timeout, limit))
}

// outlived splits off the plan that hears of the attempt in flight, while p goes on to tell the caller.
func (p *Plan) outlived(gone bool) Plan {
	q := *p
	q.attempts = slices.Clone(p.attempts)
	q.late = late{told: true, gone: gone}
	return q
}

// stopLate ends a call whose caller has been told, where another attempt would follow.
func (p *Plan) stopLate(now time.Time) Step {
	if p.late.gone {
		return p.stop(now, call.OutcomeCancelled, call.ReasonCancelled)
	}
	return p.stop(now, call.OutcomeDeadlineExceeded, call.ReasonDeadline)
}
