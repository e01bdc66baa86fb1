package deferred

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// tried is the outcome of a dispatch that made one attempt.
func tried(o call.Outcome, reason call.Reason, e call.Effect, ev call.Evidence, status int) *call.Final {
	f := &call.Final{Outcome: o, Reason: reason, Effect: e, Attempts: []call.Attempt{{Number: 1, Kind: call.KindPrimary, Start: noon}}}
	f.Attempts[0].Result = call.Result{Evidence: ev, Status: status}
	if ev != call.EvidenceNotSent {
		f.Sends, f.FirstSend = 1, noon.Add(-time.Second)
	}
	if ev == call.EvidenceAnswered {
		f.Response = &call.Response{Status: status}
	}
	return f
}

func refused(o call.Outcome, after time.Duration) *call.Final {
	return &call.Final{Outcome: o, Effect: call.EffectNone, RetryAfter: after}
}

func with(r Record, f func(*Record)) Record {
	f(&r)
	return r
}

func TestNext(t *testing.T) {
	const (
		success   = call.OutcomeSuccess
		exhausted = call.OutcomeRetriesExhausted
	)
	simple := Record{State: StateSending, Epoch: 1, MaxRetries: 5, Backoff: time.Second, Created: noon.Add(-time.Hour), Expire: noon.Add(time.Hour)}
	byPolicy := with(simple, func(r *Record) { r.MaxRetries, r.Backoff = 0, 0 })
	repeatable := Terms{
		Repeatable: true, MaxAttempts: 3, CompletedRetention: time.Hour, CancelledRetention: 2 * time.Hour,
		Wait: func(k uint32, throttled bool, _ float64) time.Duration {
			if throttled {
				return 90 * time.Second
			}
			return time.Duration(k) * 10 * time.Second
		},
	}
	once := repeatable
	once.Repeatable = false
	keyed := repeatable
	keyed.KeyUntil = func(first time.Time) time.Time { return first.Add(31 * time.Second) } // noon + 30s

	ok := tried(success, call.ReasonSuccess, call.EffectAnswered, call.EvidenceAnswered, 200)
	refusedThere := tried(exhausted, call.ReasonAttemptsExhausted, call.EffectNone, call.EvidenceRefused, 0)
	notSent := tried(exhausted, call.ReasonAttemptsExhausted, call.EffectNone, call.EvidenceNotSent, 0)
	lost := tried(exhausted, call.ReasonAttemptsExhausted, call.EffectUnknown, call.EvidenceSentNoResponse, 0)
	busy := tried(exhausted, call.ReasonAttemptsExhausted, call.EffectUnknown, call.EvidenceAnswered, 503)
	rejected := tried(exhausted, call.ReasonAttemptsExhausted, call.EffectNone, call.EvidenceAnswered, 503)
	throttled := tried(exhausted, call.ReasonAttemptsExhausted, call.EffectUnknown, call.EvidenceAnswered, 429)
	barred := tried(call.OutcomeHTTPError, call.ReasonNotRepeatable, call.EffectUnknown, call.EvidenceAnswered, 503)
	unknown := tried(call.OutcomeUnknown, call.ReasonNotRepeatable, call.EffectUnknown, call.EvidenceSentNoResponse, 0)
	large := tried(call.OutcomeUnknown, call.ReasonBodyNotReplayable, call.EffectUnknown, call.EvidenceSentNoResponse, 0)
	bad := tried(call.OutcomeHTTPError, call.ReasonStatusNotRetryable, call.EffectAnswered, call.EvidenceAnswered, 400)
	echo := tried(call.OutcomeHTTPError, call.ReasonStatusNotRetryable, call.EffectUnknown, call.EvidenceAnswered, 404)
	tooLarge := tried(call.OutcomeResponseRejected, call.ReasonResponseTooLarge, call.EffectUnknown, call.EvidencePartialResponse, 200)
	noName := tried(call.OutcomeUnreachable, call.ReasonFailureNotRetryable, call.EffectNone, call.EvidenceNotSent, 0)
	cancelled := tried(call.OutcomeCancelled, call.ReasonCancelled, call.EffectUnknown, call.EvidenceSentNoResponse, 0)
	cancelledUnsent := tried(call.OutcomeCancelled, call.ReasonCancelled, call.EffectNone, call.EvidenceNotSent, 0)
	cancelledAnswered := tried(call.OutcomeCancelled, call.ReasonCancelled, call.EffectAnswered, call.EvidenceAnswered, 400)
	cancelledSuccess := tried(call.OutcomeCancelled, call.ReasonCancelled, call.EffectAnswered, call.EvidenceAnswered, 200)
	cancelledSuccess.Told = call.Told{Outcome: success, Reason: call.ReasonSuccess}
	later := func(f *call.Final, after time.Duration) *call.Final {
		c := *f
		c.RetryAfter = after
		return &c
	}
	keyGone := &call.Final{Outcome: call.OutcomeUnknown, Reason: call.ReasonKeyExpired, Effect: call.EffectUnknown}
	denied := &call.Final{Outcome: call.OutcomeDenied, Reason: call.ReasonEgressDenied, Effect: call.EffectNone}

	spent := func(n uint32) func(*Record) { return func(r *Record) { r.Spent, r.Tried = n, n } }
	unsure := func(r *Record) {
		r.Effect, r.Tried, r.Spent, r.FirstSend = call.EffectUnknown, 1, 1, noon.Add(-time.Minute)
	}
	redriven := func(r *Record) {
		r.Effect, r.Tried, r.FirstSend = call.EffectUnknown, 1, noon.Add(-time.Minute)
	}

	for _, row := range []struct {
		name    string
		record  Record
		final   *call.Final
		terms   Terms
		asked   bool
		state   State
		failure Failure
		reason  call.Reason
		wait    time.Duration // random is 0.5: no jitter
		spent   uint32
		dup     bool
		quiet   silence
	}{
		{name: "a success", record: simple, final: ok, terms: once, state: StateCompleted, reason: call.ReasonSuccess, spent: 1},
		{name: "a success at last", record: with(simple, spent(5)), final: ok, terms: once, state: StateCompleted, reason: call.ReasonSuccess, spent: 6},
		{name: "a success after a lost one", record: with(simple, unsure), final: ok, terms: repeatable, state: StateCompleted, reason: call.ReasonSuccess, spent: 2, dup: true},
		{name: "a definitive no", record: simple, final: bad, terms: repeatable, state: StateFailed, failure: FailurePermanent, reason: call.ReasonStatusNotRetryable, spent: 1},
		{name: "no such name", record: simple, final: noName, terms: once, state: StateFailed, failure: FailurePermanent, reason: call.ReasonFailureNotRetryable, spent: 1},
		{name: "denied", record: simple, final: denied, terms: once, state: StateFailed, failure: FailurePermanent, reason: call.ReasonEgressDenied, spent: 1},
		{name: "first repeat", record: simple, final: busy, terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: time.Second, spent: 1},
		{name: "third repeat", record: with(simple, spent(2)), final: lost, terms: repeatable, state: StateRetrying, reason: call.ReasonFailureRetryable, wait: 4 * time.Second, spent: 3},
		{name: "the last repeat", record: with(simple, spent(4)), final: busy, terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: 16 * time.Second, spent: 5},
		{name: "none left", record: with(simple, spent(5)), final: busy, terms: repeatable, state: StateFailed, failure: FailureExhausted, reason: call.ReasonAttemptsExhausted, spent: 6},
		{name: "no repeats wanted", record: with(simple, func(r *Record) { r.MaxRetries = 0 }), final: busy, terms: repeatable, state: StateFailed, failure: FailureExhausted, reason: call.ReasonAttemptsExhausted, spent: 1},
		{name: "the policy's wait", record: with(byPolicy, spent(1)), final: busy, terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: 20 * time.Second, spent: 2},
		{name: "the policy's wait after a 429", record: byPolicy, final: throttled, terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: 90 * time.Second, spent: 1},
		{name: "the policy's number", record: with(byPolicy, spent(2)), final: busy, terms: repeatable, state: StateFailed, failure: FailureExhausted, reason: call.ReasonAttemptsExhausted, spent: 3},
		{name: "a number without a backoff", record: with(byPolicy, func(r *Record) { r.MaxRetries = 7; spent(2)(r) }), final: busy, terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: 30 * time.Second, spent: 3},
		{name: "Retry-After is longer", record: simple, final: later(busy, 20*time.Minute), terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: 20 * time.Minute, spent: 1},
		{name: "Retry-After is shorter", record: with(simple, spent(4)), final: later(busy, time.Second), terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: 16 * time.Second, spent: 5},
		{name: "Retry-After beyond the end waits for the end", record: simple, final: later(busy, 2*time.Hour), terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: 2 * time.Hour, spent: 1},
		{name: "its end came during the attempt", record: with(simple, func(r *Record) { r.Expire = noon }), final: busy, terms: repeatable, state: StateFailed, failure: FailureExpired, reason: call.ReasonDeadline, spent: 1},
		{name: "a backoff that doubles beyond all bounds", record: with(simple, func(r *Record) { spent(900)(r); r.MaxRetries = 1000 }), final: busy, terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: longestWait, spent: 901},

		{name: "lost, once only", record: simple, final: unknown, terms: once, state: StateUnknown, reason: call.ReasonNotRepeatable, spent: 1},
		{name: "lost, once only, though the dispatch says exhausted", record: simple, final: lost, terms: once, state: StateUnknown, reason: call.ReasonAttemptsExhausted, spent: 1},
		{name: "answered but not definitively, once only", record: simple, final: barred, terms: once, state: StateUnknown, reason: call.ReasonNotRepeatable, spent: 1},
		{name: "an answer too large, once only", record: simple, final: tooLarge, terms: once, state: StateUnknown, reason: call.ReasonResponseTooLarge, spent: 1},
		{name: "an answer too large, repeatable", record: simple, final: tooLarge, terms: repeatable, state: StateFailed, failure: FailurePermanent, reason: call.ReasonResponseTooLarge, spent: 1},
		{name: "a no after a lost one, repeatable", record: with(simple, unsure), final: echo, terms: repeatable, state: StateFailed, failure: FailurePermanent, reason: call.ReasonStatusNotRetryable, spent: 2, dup: true},
		{name: "not sent, once only", record: simple, final: notSent, terms: once, state: StateRetrying, reason: call.ReasonFailureRetryable, wait: time.Second, spent: 1},
		{name: "refused there, once only", record: simple, final: refusedThere, terms: once, state: StateRetrying, reason: call.ReasonFailureRetryable, wait: time.Second, spent: 1},
		{name: "rejected by an answer, once only", record: simple, final: rejected, terms: once, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: time.Second, spent: 1},
		{name: "never sent, once only, none left", record: with(simple, spent(5)), final: notSent, terms: once, state: StateFailed, failure: FailureExhausted, reason: call.ReasonAttemptsExhausted, spent: 6},
		{name: "not barred by these terms", record: simple, final: barred, terms: repeatable, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: time.Second, spent: 1},
		{name: "a body too large for the engine's memory", record: simple, final: large, terms: repeatable, state: StateRetrying, reason: call.ReasonFailureRetryable, wait: time.Second, spent: 1},

		{name: "redriven though unknown, not sent", record: with(simple, redriven), final: notSent, terms: once, state: StateRetrying, reason: call.ReasonFailureRetryable, wait: time.Second, spent: 1},
		{name: "redriven though unknown, lost again", record: with(simple, redriven), final: unknown, terms: once, state: StateUnknown, reason: call.ReasonNotRepeatable, spent: 1, dup: true},
		{name: "redriven though unknown, none left", record: with(simple, func(r *Record) { redriven(r); r.Spent = 5 }), final: notSent, terms: once, state: StateUnknown, reason: call.ReasonAttemptsExhausted, spent: 6},
		{name: "redriven though unknown, denied", record: with(simple, redriven), final: denied, terms: once, state: StateUnknown, reason: call.ReasonEgressDenied, spent: 1},

		{name: "an open breaker", record: simple, final: refused(call.OutcomeBreakerOpen, 5*time.Second), terms: once, state: StatePending, wait: 5 * time.Second, quiet: silenceOrigin},
		{name: "an open breaker before a repeat", record: with(simple, unsure), final: refused(call.OutcomeBreakerOpen, 5*time.Second), terms: repeatable, state: StateRetrying, wait: 5 * time.Second, spent: 1, quiet: silenceOrigin},
		{name: "a breaker forced open for long", record: simple, final: refused(call.OutcomeBreakerOpen, time.Hour/2), terms: once, state: StatePending, wait: time.Minute, quiet: silenceOrigin},
		{name: "a full bulkhead", record: with(simple, spent(5)), final: refused(call.OutcomeOverloaded, 0), terms: repeatable, state: StateRetrying, wait: shortDelay, spent: 5, quiet: silenceOrigin},
		{name: "an empty budget", record: with(simple, spent(1)), final: refused(call.OutcomeBudgetExhausted, time.Second), terms: repeatable, state: StateRetrying, wait: time.Second, spent: 1, quiet: silenceOrigin},
		{name: "a hold is of one credential, and never shortened", record: simple, final: refused(call.OutcomeThrottled, 20*time.Minute), terms: once, state: StatePending, wait: 20 * time.Minute, quiet: silenceLane},
		{name: "no time left in a queue", record: simple, final: refused(call.OutcomeDeadlineExceeded, 0), terms: once, state: StatePending, wait: shortDelay, quiet: silenceLane},
		{name: "refused at its end", record: with(simple, func(r *Record) { r.Expire = noon }), final: refused(call.OutcomeBreakerOpen, 0), terms: once, state: StateFailed, failure: FailureExpired, reason: call.ReasonDeadline, quiet: silenceOrigin},

		{name: "the key outlives the wait", record: with(byPolicy, spent(1)), final: busy, terms: keyed, state: StateRetrying, reason: call.ReasonStatusRetryable, wait: 20 * time.Second, spent: 2},
		{name: "the key does not outlive the wait", record: with(with(simple, spent(5)), func(r *Record) { r.MaxRetries = 9 }), final: busy, terms: keyed, state: StateUnknown, reason: call.ReasonKeyExpired, spent: 6},
		{name: "the key does not matter where nothing was done", record: with(with(simple, spent(5)), func(r *Record) { r.MaxRetries = 9 }), final: refusedThere, terms: keyed, state: StateRetrying, reason: call.ReasonFailureRetryable, wait: 32 * time.Second, spent: 6},
		{name: "the key does not outlive a refusal", record: with(with(simple, unsure), func(r *Record) { r.FirstSend = noon }), final: refused(call.OutcomeThrottled, time.Minute), terms: keyed, state: StateUnknown, reason: call.ReasonKeyExpired, spent: 1, quiet: silenceLane},
		{name: "the key had gone", record: with(simple, unsure), final: keyGone, terms: keyed, state: StateUnknown, reason: call.ReasonKeyExpired, spent: 1},

		{name: "cancelled", record: simple, final: cancelled, terms: once, asked: true, state: StateCancelled, reason: call.ReasonCancelled},
		{name: "cancelled in the moment of its success", record: simple, final: cancelledSuccess, terms: once, asked: true, state: StateCompleted, reason: call.ReasonSuccess, spent: 1},
		{name: "cancelled after an answer that would be repeated", record: simple, final: busy, terms: repeatable, asked: true, state: StateCancelled, reason: call.ReasonStatusRetryable, spent: 1},
		{name: "cancelled after a definitive no", record: simple, final: bad, terms: repeatable, asked: true, state: StateFailed, failure: FailurePermanent, reason: call.ReasonStatusNotRetryable, spent: 1},
		{name: "cut by the end of the broker", record: simple, final: cancelled, terms: repeatable, state: StateRetrying, reason: call.ReasonCancelled},
		{name: "cut by the end of the broker, once only", record: simple, final: cancelled, terms: once, state: StateUnknown, reason: call.ReasonCancelled},
		{name: "cut by the end of the broker before it was sent", record: simple, final: cancelledUnsent, terms: once, state: StateRetrying, reason: call.ReasonCancelled},
		{name: "cut by the end of the broker when it was answered, once only", record: simple, final: cancelledAnswered, terms: once, state: StateFailed, failure: FailurePermanent, reason: call.ReasonCancelled},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, quiet := next(&row.record, &dispatch{final: row.final, terms: &row.terms, asked: row.asked, random: 0.5}, noon)
			if n.State != row.state || n.Failure != row.failure || n.Reason != row.reason || n.Spent != row.spent || n.PossibleDuplicate != row.dup || quiet != row.quiet {
				t.Fatalf("state %d failure %d reason %d spent %d duplicate %v quiet %d", n.State, n.Failure, n.Reason, n.Spent, n.PossibleDuplicate, quiet)
			}
			if n.State.Finished() {
				if !n.NextAttempt.IsZero() || !n.Ended.Equal(noon) {
					t.Fatalf("finished, and due at %v, ended %v", n.NextAttempt, n.Ended)
				}
				kept := map[State]time.Duration{StateCompleted: time.Hour, StateCancelled: 2 * time.Hour}[n.State]
				if kept == 0 && !n.Until.IsZero() || kept != 0 && !n.Until.Equal(noon.Add(kept)) {
					t.Fatalf("kept until %v", n.Until)
				}
				return
			}
			if got := n.NextAttempt.Sub(noon); got != row.wait {
				t.Fatalf("waits %v, want %v", got, row.wait)
			}
		})
	}
}

func TestBackoffIsAFifthMoreOrLess(t *testing.T) {
	r := Record{Backoff: 100 * time.Millisecond, MaxRetries: 9}
	for k := uint32(1); k < 9; k++ {
		r.Spent = k
		for _, random := range []float64{0, 0.25, 0.5, math.Nextafter(1, 0)} {
			want := time.Duration(100 * float64(time.Millisecond) * math.Pow(2, float64(k-1)) * (0.8 + 0.4*random))
			if got := r.wait(&Terms{}, &call.Final{}, random); got < want-1 || got > want+1 {
				t.Errorf("repeat %d, random %v: %v, want %v", k, random, got, want)
			}
		}
	}
}

// TestNothingUnsafeIsRepeated walks every outcome, reason, effect, evidence and word of the terms, likely or not.
func TestNothingUnsafeIsRepeated(t *testing.T) {
	for o := call.OutcomeUnspecified; o <= call.OutcomeDeferred; o++ {
		for reason := call.ReasonUnspecified; reason <= call.ReasonDeferred; reason++ {
			for e := call.EffectUnspecified; e <= call.EffectUnknown; e++ {
				for ev := call.EvidenceUnspecified; ev <= call.EvidenceAnswered; ev++ {
					for _, word := range []struct{ repeatable, asked, unknown bool }{
						{}, {repeatable: true}, {asked: true}, {unknown: true}, {repeatable: true, unknown: true},
					} {
						f := tried(o, reason, e, ev, 503)
						terms := Terms{Repeatable: word.repeatable, MaxAttempts: 2, Wait: func(uint32, bool, float64) time.Duration { return time.Second }}
						r := Record{State: StateSending, Epoch: 1}
						if word.unknown {
							r.Effect, r.FirstSend, r.Tried = call.EffectUnknown, noon.Add(-time.Hour), 1
						}
						n, quiet := next(&r, &dispatch{final: f, terms: &terms, asked: word.asked, random: 0.5}, noon)
						at := fmt.Sprintf("outcome %d reason %d effect %d evidence %d %+v: state %d", o, reason, e, ev, word, n.State)
						left := ev != call.EvidenceNotSent && ev != call.EvidenceRefused
						switch {
						case n.State == StatePending, n.State == StateSending, quiet != silenceNone:
							t.Fatal(at + ": an attempt was made")
						case n.State == StateRetrying && !word.repeatable && left && n.Effect != call.EffectNone:
							t.Fatal(at + ": it may have been applied, and is repeated")
						case n.State == StateFailed && !word.repeatable && n.Effect == call.EffectUnknown:
							t.Fatal(at + ": it may have been applied, and is called failed")
						case n.State == StateUnknown && n.Effect != call.EffectUnknown:
							t.Fatal(at + ": unknown, and its effect is not")
						case n.State == StateRetrying && word.asked:
							t.Fatal(at + ": cancelled, and is repeated")
						case (n.State == StateCompleted) != (o == call.OutcomeSuccess):
							t.Fatal(at + ": completed")
						case word.unknown && e == call.EffectNone && n.Effect != call.EffectUnknown:
							t.Fatal(at + ": an attempt that did nothing undid what one before it may have done")
						case n.PossibleDuplicate != (word.unknown && left):
							t.Fatalf("%s: duplicate %v", at, n.PossibleDuplicate)
						}
					}
				}
			}
		}
	}
}

func TestRedrivenHasAsLongAsItHad(t *testing.T) {
	r := Record{State: StateFailed, Failure: FailureExpired, Created: noon, Expire: noon.Add(time.Hour), Ended: noon.Add(time.Hour), Spent: 3, Tried: 3}
	for k := 1; k <= 2; k++ {
		due := noon.Add(time.Duration(k) * 24 * time.Hour)
		r = r.Redriven(due.Add(-time.Minute), due)
		if r.State != StateRetrying || r.Failure != FailureNone || r.Spent != 0 || r.Tried != 3 || !r.NextAttempt.Equal(due) || !r.Expire.Equal(due.Add(time.Hour)) || !r.Ended.IsZero() {
			t.Fatalf("%+v", r)
		}
	}
	early := Record{State: StateFailed, Created: noon, Expire: noon.Add(time.Hour)}
	if got := early.Redriven(noon, noon).Expire; !got.Equal(noon.Add(time.Hour)) {
		t.Fatalf("expires %v", got)
	}
}

func TestOrphaned(t *testing.T) {
	begun := noon.Add(-time.Minute)
	r := Record{State: StateSending, Epoch: 3, Tried: 2, Spent: 2, Repeatable: true, Created: noon.Add(-time.Hour), Updated: begun, Origin: "http://a:80"}
	n, a := Orphaned(&r, noon)
	if n.State != StateRetrying || !n.PossibleDuplicate || !n.NextAttempt.Equal(noon) || n.Spent != 2 || n.Tried != 3 || n.Effect != call.EffectUnknown || !n.FirstSend.Equal(begun) {
		t.Fatalf("%+v", n)
	}
	if a.Number != 3 || a.Kind != call.KindRetry || a.Result.Evidence != call.EvidenceSentNoResponse || !a.Start.Equal(begun) || a.Duration != time.Minute || a.Decision.Verdict != call.VerdictRetry {
		t.Fatalf("%+v", a)
	}
	r.Repeatable = false
	n, a = Orphaned(&r, noon)
	if n.State != StateUnknown || n.PossibleDuplicate || !n.NextAttempt.IsZero() || !n.Ended.Equal(noon) || a.Decision.Verdict != call.VerdictStop {
		t.Fatalf("%+v %+v", n, a)
	}
	r.Effect = call.EffectUnknown // redriven though unknown
	if n, _ = Orphaned(&r, noon); !n.PossibleDuplicate {
		t.Fatal("it may have been sent twice")
	}
}

func TestWhatWasNeverTriedHadNoEffect(t *testing.T) {
	for _, was := range []call.Effect{call.EffectUnspecified, call.EffectNone, call.EffectUnknown} {
		r := Record{State: StatePending, Effect: was, Repeatable: true}
		want := max(was, call.EffectNone)
		if expired, cancelled := r.Expired(noon), r.Cancelled(noon, noon.Add(time.Hour)); expired.Effect != want || cancelled.Effect != want {
			t.Errorf("%v: expired with %v, cancelled with %v", was, expired.Effect, cancelled.Effect)
		}
	}
}
