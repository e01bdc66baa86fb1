package breaker

import "time"

// minimumPatience is the least time with which a cut attempt is fit to be the probe (semantics.md §6).
const minimumPatience = time.Second

// patientLocked says whether a probe with this time would tell something even by its time-out: the policy's attempt timeout, or
// max(2·p95, 1s).
func (b *Breaker) patientLocked(a *Attempt) bool {
	if !a.Cut {
		return true
	}
	p95, known := b.baseline.p95()
	return a.Timeout >= minimumPatience && (!known || a.Timeout >= later(p95, p95))
}

// excusedLocked says whether a time-out of this ticket is its caller's impatience (see [Attempt.Cut]).
func (b *Breaker) excusedLocked(t *Ticket) bool {
	if !t.cut || b.config.TimeoutFloor <= 0 {
		return false
	}
	if t.timeout < b.config.TimeoutFloor {
		return true
	}
	p95, known := b.baseline.p95()
	return known && t.timeout < later(p95, p95)
}

// countLocked puts a result into the books, and says whether it counts as more than a sign of impatience.
func (b *Breaker) countLocked(t *Ticket, r *Result, at time.Duration) bool {
	if b.window.full() {
		b.window, b.callers = newWindow(), callers{streak: 1}
	}
	if r.answered() {
		b.answered = at
	}
	if r.Kind == Failed && r.TimedOut && b.excusedLocked(t) {
		b.window.record(at, b.config.Window, counts{excused: 1})
		return false
	}
	if r.Kind == OK && !b.failingLocked(at) {
		b.baseline.learn(at, b.config.Window, r.Latency)
	}
	c := counts{counted: 1}
	if r.Kind != OK {
		c.failed = 1
	}
	if b.config.SlowCallThreshold > 0 && r.Latency > b.config.SlowCallThreshold {
		c.slow = 1
	}
	switch r.Kind {
	case OK:
		if b.consecutive > 0 {
			b.consecutive = 0
			b.callers.streak++
		}
		// The origin has answered for itself; what others said of it is old news.
		b.suspiciousUntil = longAgo
	case Failed:
		b.consecutive++
	}
	bucket := b.window.record(at, b.config.Window, c)
	b.callers.note(&b.window, t.caller, bucket, c.failed > 0 || c.slow > 0, r.Kind == Failed)
	return true
}

// failingLocked freezes the baseline: while attempts fail, what still comes back is no measure of the origin when it is well, and
// following it would excuse ever longer time-outs. Failing means that no success came since a failure, or that failures and excused
// time-outs make up half of what the failure rate would open at.
func (b *Breaker) failingLocked(at time.Duration) bool {
	if b.consecutive > 0 {
		return true
	}
	b.window.expire(at, b.config.Window)
	sum := b.window.sum()
	bad := float64(sum.failed) + float64(sum.excused)
	return bad > 0 && 2*bad >= b.config.FailureRate*(float64(sum.counted)+float64(sum.excused))
}

// tripLocked names the rule that opens a closed breaker after a result, or none. The black hole comes before the rates and after the
// row of failures, which names the same trouble more exactly.
func (b *Breaker) tripLocked(r *Result, counted bool, at time.Duration) Cause {
	if b.mode != Auto {
		return 0
	}
	c, sum := &b.config, b.window.sum()
	row, least := c.ConsecutiveFailures, max(c.MinRequests, 1)
	if at < b.suspiciousUntil {
		row, least = row-row/2, least-least/2
	}
	switch {
	case counted && row > 0 && r.Kind == Failed && b.consecutive >= row && b.callers.failedInStreak(&b.window, c.MinDistinctCallers):
		return CauseConsecutive
	case sum.counted+sum.excused >= least && at-b.answered >= c.Window:
		// However short their time and whoever made them: otherwise a black hole with impatient callers would stay hidden.
		return CauseNoAnswer
	case !counted || sum.counted < least || !b.callers.hurtInWindow(&b.window, c.MinDistinctCallers):
		return 0
	// Divided, not multiplied: 7 of 100 is 0.07 as written, while 0.07·100 is more than 7.
	case sum.failed > 0 && float64(sum.failed)/float64(sum.counted) >= c.FailureRate:
		return CauseFailureRate
	case sum.slow > 0 && float64(sum.slow)/float64(sum.counted) >= c.SlowCallRate:
		return CauseSlowCalls
	}
	return 0
}
