package deferred

import (
	"time"

	"github.com/sallyport/sallyport/call"
)

const (
	// shortDelay is the wait where an attempt was refused without a hint when to come again, longDelay the longest that is waited for one hint.
	shortDelay = 250 * time.Millisecond
	longDelay  = time.Minute
)

// next is what a record becomes by what one dispatch gave. refused: no attempt was spent, and its origin is better left alone until the
// record is due again.
func next(r *Record, f *call.Final, t *Terms, now time.Time, random float64) (became Record, refused bool) {
	n := *r
	n.Updated = now
	n.Outcome, n.Reason, n.Detail, n.Effect, n.FirstSend = f.Outcome, f.Reason, f.Detail, f.Effect, f.FirstSend
	if f.Response != nil {
		n.Response = f.Response
	}
	n.PossibleDuplicate = n.PossibleDuplicate || duplicates(r, f)
	if len(f.Attempts) > 0 {
		n.Spent++
	}
	switch {
	case f.Outcome == call.OutcomeSuccess:
		return n.ended(StateCompleted, FailureNone, now, t.CompletedRetention), false
	case f.Outcome == call.OutcomeCancelled:
		return n.cancelled(t, now), false
	case delayed(f):
		n.Spent = r.Spent
		return n.again(now, min(max(f.RetryAfter, shortDelay), longDelay)), true
	case f.Effect == call.EffectUnknown && !t.Repeatable, f.Reason == call.ReasonKeyExpired:
		return n.ended(StateUnknown, FailureNone, now, 0), false
	case !worth(f):
		return n.ended(StateFailed, FailurePermanent, now, 0), false
	case n.Spent >= n.attemptsAllowed(t):
		return n.ended(StateFailed, FailureExhausted, now, 0), false
	}
	wait := max(n.wait(t, f, random), f.RetryAfter)
	if at := keyUntil(&n, t); n.Effect == call.EffectUnknown && !at.IsZero() && now.Add(wait).After(at) {
		n.Reason = call.ReasonKeyExpired // a pruned key would make a second effect
		return n.ended(StateUnknown, FailureNone, now, 0), false
	}
	return n.again(now, wait), false
}

// duplicates: this dispatch sent what one before it may have brought about.
func duplicates(r *Record, f *call.Final) bool {
	return r.Effect == call.EffectUnknown && f.Sends > 0
}

// delayed: a rule of ours, or a hold, kept the attempt from being made. It is none.
func delayed(f *call.Final) bool {
	if len(f.Attempts) > 0 {
		return false
	}
	switch f.Outcome {
	case call.OutcomeBreakerOpen, call.OutcomeThrottled, call.OutcomeOverloaded, call.OutcomeBudgetExhausted, call.OutcomeDeadlineExceeded:
		return true
	}
	return false
}

// worth: another attempt may end better.
func worth(f *call.Final) bool {
	switch f.Outcome {
	case call.OutcomeRetriesExhausted, call.OutcomeBudgetExhausted, call.OutcomeThrottled, call.OutcomeDeadlineExceeded,
		call.OutcomeBreakerOpen, call.OutcomeOverloaded, call.OutcomeUnknown:
		return true
	}
	return false
}

// attemptsAllowed is how many attempts there may be since it was submitted or redriven.
func (r *Record) attemptsAllowed(t *Terms) uint32 {
	if r.Backoff == 0 {
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
	for range r.Spent - 1 {
		if wait >= longestWait/2 {
			wait = longestWait
			break
		}
		wait *= 2
	}
	return time.Duration(float64(min(wait, longestWait)) * (0.8 + 0.4*random))
}

// longestWait bounds a backoff that doubles.
const longestWait = 30 * 24 * time.Hour

func keyUntil(r *Record, t *Terms) time.Time {
	if t.KeyUntil == nil || r.FirstSend.IsZero() {
		return time.Time{}
	}
	return t.KeyUntil(r.FirstSend)
}

// again makes the record wait. One that would be due after its end is not tried again, and is expired then.
func (r *Record) again(now time.Time, wait time.Duration) Record {
	n := *r
	n.State, n.NextAttempt = StateRetrying, now.Add(wait)
	if len(r.Attempts) == 0 && r.Spent == 0 && r.Epoch <= 1 && r.FirstSend.IsZero() {
		n.State = StatePending
	}
	return n
}

// ended makes the record finished.
func (r *Record) ended(s State, f Failure, now time.Time, retention time.Duration) Record {
	n := *r
	n.State, n.Failure, n.NextAttempt, n.Ended = s, f, time.Time{}, now
	if retention > 0 {
		n.Until = now.Add(retention)
	}
	return n
}

// cancelled is what becomes of a record whose attempt was cancelled. One that may have had an effect that nobody knows says so.
func (r *Record) cancelled(t *Terms, now time.Time) Record {
	return r.ended(StateCancelled, FailureNone, now, t.CancelledRetention)
}
