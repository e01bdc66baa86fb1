package deferred

import (
	"time"

	"github.com/sallyport/sallyport/call"
)

const (
	// shortDelay is the wait where an attempt was refused without a hint when to come again.
	shortDelay = 250 * time.Millisecond
	// longDelay is after how long it is asked again at the latest where the refusal is ours: an operator may have lifted it.
	longDelay = time.Minute
	// longestWait bounds a backoff that doubles.
	longestWait = 30 * 24 * time.Hour
)

// silence is who had better be left alone until the record is due again.
type silence uint8

const (
	silenceNone silence = iota
	// silenceLane: its caller at its origin. A hold after a 429 is of one credential, and parks nobody else.
	silenceLane
	// silenceOrigin: everybody at its origin.
	silenceOrigin
)

// dispatch is one that has ended.
type dispatch struct {
	final *call.Final
	terms *Terms
	// asked: somebody has cancelled the call.
	asked bool
	// random is in [0, 1).
	random float64
}

// next is what a record becomes by a dispatch that ended at now, by the rules of semantics.md §11.
func next(r *Record, d *dispatch, now time.Time) (Record, silence) {
	n, quiet := r.judged(d, now)
	if d.asked && !n.State.Finished() {
		n = n.ended(StateCancelled, FailureNone, now, d.terms.CancelledRetention)
	}
	return n, quiet
}

func (r *Record) judged(d *dispatch, now time.Time) (Record, silence) {
	f, t := d.final, d.terms
	n := *r
	n.Updated, n.Reason, n.Detail = now, f.Reason, f.Detail
	if quiet, refused := refusal(f); refused {
		return n.delayed(t, f, now), quiet
	}
	n.take(r, f)
	n.Outcome = f.Outcome
	switch {
	case f.Outcome == call.OutcomeSuccess, f.Told.Outcome == call.OutcomeSuccess: // cancelled in the moment of its success
		n.Outcome, n.Reason = call.OutcomeSuccess, call.ReasonSuccess
		n.Spent++
		return n.ended(StateCompleted, FailureNone, now, t.CompletedRetention), silenceNone
	case f.Outcome == call.OutcomeCancelled && d.asked:
		return n.ended(StateCancelled, FailureNone, now, t.CancelledRetention), silenceNone
	case f.Outcome == call.OutcomeCancelled:
		return n.interrupted(t, f, now), silenceNone
	case f.Reason == call.ReasonKeyExpired:
		return n.keyLost(t, now), silenceNone
	}
	n.Spent++
	switch {
	case !worth(f), !mayFollow(&n, t, f):
		return n.dead(FailurePermanent, t, now), silenceNone
	case n.Spent >= n.attemptsAllowed(t):
		n.Reason = call.ReasonAttemptsExhausted
		return n.dead(FailureExhausted, t, now), silenceNone
	case n.past(now):
		return n.dead(FailureExpired, t, now), silenceNone
	}
	n.Reason, n.Detail = whyAgain(f)
	return n.again(t, now, max(n.wait(t, f, d.random), f.RetryAfter)), silenceNone // a server's delay is never shortened
}

// take takes over what a dispatch tells beside its outcome.
func (r *Record) take(before *Record, f *call.Final) {
	if f.Response != nil {
		r.Response = f.Response
	}
	if !f.FirstSend.IsZero() && (r.FirstSend.IsZero() || f.FirstSend.Before(r.FirstSend)) {
		r.FirstSend = f.FirstSend
	}
	// What one before it may have done is not undone by an attempt that did nothing.
	if f.Effect > call.EffectNone || before.Effect == call.EffectUnspecified && f.Effect != call.EffectUnspecified {
		r.Effect = f.Effect
	}
	r.Tried += uint32(len(f.Attempts)) //nolint:gosec // one, and the hops of a redirect
	r.PossibleDuplicate = r.PossibleDuplicate || before.Effect == call.EffectUnknown && left(f)
}

// left: the upstream may have processed an attempt of this dispatch.
func left(f *call.Final) bool {
	for i := range f.Attempts {
		switch f.Attempts[i].Result.Evidence {
		case call.EvidenceNotSent, call.EvidenceRefused:
		default:
			return true
		}
	}
	return false
}

// refusal: a rule of ours, or a hold, kept the attempt from being made. It is none.
func refusal(f *call.Final) (silence, bool) {
	if len(f.Attempts) > 0 {
		return silenceNone, false
	}
	switch f.Outcome {
	case call.OutcomeBreakerOpen, call.OutcomeOverloaded, call.OutcomeBudgetExhausted:
		return silenceOrigin, true
	case call.OutcomeThrottled, call.OutcomeDeadlineExceeded: // the latter in a queue of ours
		return silenceLane, true
	}
	return silenceNone, false
}

// delayed makes the record wait since it was refused.
func (r *Record) delayed(t *Terms, f *call.Final, now time.Time) Record {
	wait := max(f.RetryAfter, shortDelay)
	if f.Outcome != call.OutcomeThrottled {
		wait = min(wait, longDelay)
	}
	if r.past(now) {
		return r.dead(FailureExpired, t, now)
	}
	return r.again(t, now, wait)
}

// worth: another attempt may end better. What the engine did not repeat since repeating is not safe, or its body was too large for its
// memory, is judged by the terms of the deferred call.
func worth(f *call.Final) bool {
	switch f.Outcome {
	case call.OutcomeRetriesExhausted, call.OutcomeBudgetExhausted, call.OutcomeThrottled, call.OutcomeDeadlineExceeded,
		call.OutcomeBreakerOpen, call.OutcomeOverloaded, call.OutcomeUnknown:
		return true
	case call.OutcomeHTTPError:
		return f.Reason == call.ReasonNotRepeatable || f.Reason == call.ReasonBodyNotReplayable
	}
	return false
}

// mayFollow: another attempt is safe after this dispatch.
func mayFollow(n *Record, t *Terms, f *call.Final) bool {
	return t.Repeatable || len(f.Attempts) > 0 && !left(f) || n.Effect == call.EffectNone
}

// whyAgain is the rule by which it is tried again, and what went wrong.
func whyAgain(f *call.Final) (call.Reason, string) {
	if len(f.Attempts) == 0 {
		return f.Reason, f.Detail
	}
	last := &f.Attempts[len(f.Attempts)-1].Result
	if last.Evidence == call.EvidenceAnswered {
		return call.ReasonStatusRetryable, last.Detail
	}
	return call.ReasonFailureRetryable, last.Detail
}

// attemptsAllowed is how many attempts there may be since it was submitted or redriven.
func (r *Record) attemptsAllowed(t *Terms) uint32 {
	if r.Backoff == 0 && r.MaxRetries == 0 {
		return t.MaxAttempts
	}
	return r.MaxRetries + 1
}

// wait is the backoff before the next attempt: the submission's, doubled with each repeat, a fifth more or less; else the policy's.
func (r *Record) wait(t *Terms, f *call.Final, random float64) time.Duration {
	if r.Backoff == 0 {
		return t.Wait(r.Spent, f.Response != nil && f.Response.Status == 429, random)
	}
	wait := r.Backoff
	for k := uint32(1); k < r.Spent && wait < longestWait; k++ {
		wait *= 2
	}
	return time.Duration(float64(min(wait, longestWait)) * (0.8 + 0.4*random))
}

// again makes the record wait; it is parked at once where its key would be forgotten by then. One that would be due at its end or later is
// not tried again: it is expired then.
func (r *Record) again(t *Terms, now time.Time, wait time.Duration) Record {
	n := *r
	n.NextAttempt = now.Add(wait)
	if until := n.keyUntil(t); !until.IsZero() && n.Effect > call.EffectNone && n.NextAttempt.After(until) && !n.past(n.NextAttempt) {
		return n.keyLost(t, now)
	}
	n.State = StateRetrying
	if n.Tried == 0 {
		n.State = StatePending
	}
	return n
}

func (r *Record) keyUntil(t *Terms) time.Time {
	if t.KeyUntil == nil || r.FirstSend.IsZero() {
		return time.Time{}
	}
	return t.KeyUntil(r.FirstSend)
}

// keyLost ends a record whose next attempt would come when the upstream may have forgotten its key: it would make a second effect.
func (r *Record) keyLost(t *Terms, now time.Time) Record {
	n := *r
	n.Reason = call.ReasonKeyExpired
	if n.Effect == call.EffectUnknown {
		return n.ended(StateUnknown, FailureNone, now, 0)
	}
	return n.dead(FailurePermanent, t, now) // an answer is at hand
}

// interrupted is what becomes of a record whose attempt the end of the broker cut: as after a crash, but with what is known of it. It is not
// counted, as one that a crash cut is not.
func (r *Record) interrupted(t *Terms, f *call.Final, now time.Time) Record {
	if !mayFollow(r, t, f) {
		return r.dead(FailurePermanent, t, now)
	}
	return r.again(t, now, 0)
}

// forbidden: it may have been applied while it was repeatable, and the policies of today forbid to repeat it. One that was redriven though
// it was unknown is not Repeatable: somebody has decided.
func (r *Record) forbidden(t *Terms) bool {
	return r.Effect == call.EffectUnknown && r.Repeatable && !t.Repeatable
}

// parked is what a record becomes whose next attempt is forbidden.
func (r *Record) parked(now time.Time) Record {
	n := *r
	n.Outcome, n.Reason = call.OutcomeUnknown, call.ReasonNotRepeatable
	n.Detail = "it may have been applied, and policies have changed since: those of today forbid to repeat it"
	return n.ended(StateUnknown, FailureNone, now, 0)
}

// past: its end has come.
func (r *Record) past(now time.Time) bool { return !r.Expire.IsZero() && !now.Before(r.Expire) }

// dead ends a record that did not succeed. It is no failure, but unknown, if it may have succeeded and must not be made again.
func (r *Record) dead(f Failure, t *Terms, now time.Time) Record {
	switch {
	case r.Effect == call.EffectUnknown && !t.Repeatable:
		return r.ended(StateUnknown, FailureNone, now, 0)
	case f == FailureExpired:
		return r.Expired(now)
	}
	return r.ended(StateFailed, f, now, 0)
}

// ended makes the record finished.
func (r *Record) ended(s State, f Failure, now time.Time, retention time.Duration) Record {
	n := *r
	n.State, n.Failure, n.NextAttempt, n.Updated, n.Ended = s, f, time.Time{}, now, now
	if n.Effect == call.EffectUnspecified { // it was never tried
		n.Effect = call.EffectNone
	}
	if retention > 0 {
		n.Until = now.Add(retention)
	}
	return n
}

// Cancelled is what a record becomes that waited when it was cancelled; until is when it may go, zero: not before it is purged.
func (r *Record) Cancelled(now, until time.Time) Record {
	n := r.ended(StateCancelled, FailureNone, now, 0)
	n.Outcome, n.Reason, n.Until = call.OutcomeCancelled, call.ReasonCancelled, until
	return n
}

// Expired is what a record becomes that waited until its Expire.
func (r *Record) Expired(now time.Time) Record {
	n := r.ended(StateFailed, FailureExpired, now, 0)
	n.Outcome, n.Reason = call.OutcomeDeadlineExceeded, call.ReasonDeadline
	return n
}

// Redriven is what a FAILED or UNKNOWN record becomes that is to be sent again at due: its history is kept, it is NotBefore due, and from
// then on has as long as it had at first, since its end has mostly passed by the time somebody looks after dead letters.
func (r *Record) Redriven(now, due time.Time) Record {
	n := *r
	n.State, n.Failure, n.Spent = StateRetrying, FailureNone, 0
	n.Repeatable = r.Repeatable && r.State != StateUnknown // see forbidden
	n.Updated, n.NextAttempt, n.NotBefore, n.Ended, n.Until = now, due, due, time.Time{}, time.Time{}
	if r.Expire.IsZero() {
		return n
	}
	from := r.Created
	if r.NotBefore.After(from) {
		from = r.NotBefore
	}
	if until := due.Add(r.Expire.Sub(from)); until.After(r.Expire) {
		n.Expire = until
	}
	return n
}
