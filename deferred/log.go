package deferred

import (
	"time"

	"github.com/sallyport/sallyport/call"
)

// logged are the attempts of one dispatch as they stand in the log of the call: numbered on, their times since it was submitted, and the last
// with what was decided for the call, of which the dispatch knew nothing. begun is when the dispatch began.
func logged(before, after *Record, attempts []call.Attempt, begun time.Time) []call.Attempt {
	all := append([]call.Attempt(nil), attempts...)
	for i := range all {
		a := &all[i]
		a.Number = before.Tried + uint32(i) + 1
		a.Offset += begun.Sub(before.Created)
		if before.Tried > 0 && i == 0 {
			a.Waited += max(0, before.NextAttempt.Sub(before.Updated))
			if a.Kind == call.KindPrimary {
				a.Kind = call.KindRetry
			}
		}
	}
	if len(all) > 0 {
		last := &all[len(all)-1]
		last.Decision = call.Decision{Verdict: call.VerdictStop, Reason: after.Reason}
		if !after.State.Finished() {
			last.Decision = call.Decision{Verdict: call.VerdictRetry, Reason: after.Reason, Wait: after.NextAttempt.Sub(after.Updated)}
		}
	}
	return all
}

// Orphaned is what a record becomes that is SENDING though nobody works on it, since its broker ended, and the attempt that tells of it. A
// byte of it may have left.
func Orphaned(r *Record, now time.Time) (Record, call.Attempt) {
	f := lostIn(r, r.Updated, now, "the broker ended during this attempt")
	n := *r
	n.take(r, f)
	n.Outcome, n.Updated, n.Detail = call.OutcomeUnknown, now, f.Detail
	if r.Repeatable {
		n.State, n.NextAttempt, n.Reason = StateRetrying, now, call.ReasonFailureRetryable
		n.PossibleDuplicate = true // it is repeated
	} else {
		n.Reason = call.ReasonNotRepeatable
		n = n.ended(StateUnknown, FailureNone, now, 0)
	}
	return n, logged(r, &n, f.Attempts, r.Updated)[0]
}

// lostIn is an attempt of which nobody knows what became.
func lostIn(r *Record, begun, now time.Time, detail string) *call.Final {
	return &call.Final{
		Outcome: call.OutcomeUnknown, Effect: call.EffectUnknown, Reason: call.ReasonNotRepeatable, Detail: detail, Sends: 1, FirstSend: begun,
		Attempts: []call.Attempt{{
			Number: 1, Kind: call.KindPrimary, Origin: r.Origin, Start: begun, Duration: max(0, now.Sub(begun)),
			Result: call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureConnectionLost, Detail: detail},
		}},
	}
}
