package engine_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

// possible are results an attempt can give. The plan is told nothing else.
func possible() []call.Result {
	answer := func(status int, headers ...call.Header) call.Result {
		return call.Result{Evidence: call.EvidenceAnswered, Status: status, Response: &call.Response{Status: status, Headers: headers}}
	}
	return []call.Result{
		answer(200), answer(301), answer(404), answer(409), answer(422), answer(501), answer(502),
		answer(503), answer(503, call.Header{Name: "Retry-After", Value: "1"}), answer(429, call.Header{Name: "Retry-After", Value: "0"}),
		{Evidence: call.EvidenceNotSent, Failure: call.FailureConnect},
		{Evidence: call.EvidenceNotSent, Failure: call.FailureConnectionLost, Reused: true},
		{Evidence: call.EvidenceNotSent, Failure: call.FailureNameResolution, Terminal: true},
		{Evidence: call.EvidenceRefused, Failure: call.FailureConnectionLost},
		{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureConnectionLost},
		{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureAttemptTimeout, TimedOut: true},
		{Evidence: call.EvidencePartialResponse, Failure: call.FailureConnectionLost, Status: 200},
		{Evidence: call.EvidencePartialResponse, Failure: call.FailureProtocol},
	}
}

// walk is one random life of a plan, with all that was said on the way.
type walk struct {
	call    *call.Call
	policy  *policy.Effective
	work    time.Time
	results []call.Result
	final   call.Final
	endedAt time.Time
}

func drawWalk(t *rapid.T, base *policy.Effective) *walk {
	p := *base
	millis := func(name string, low, high int) time.Duration {
		return time.Duration(rapid.IntRange(low, high).Draw(t, name)) * time.Millisecond
	}
	p.Deadline.MinAttemptTime = millis("min attempt", 0, 200)
	p.Attempt.Timeout = millis("timeout", 1, 1000)
	p.Attempt.WidenLast = rapid.Bool().Draw(t, "widen")
	p.Retry.MaxAttempts = rapid.Uint32Range(1, 5).Draw(t, "max attempts")
	p.Retry.Backoff.Base, p.Retry.Backoff.Cap = millis("base", 0, 200), millis("cap", 200, 400)
	p.Retry.TrustCallers = rapid.Bool().Draw(t, "trust")
	p.Idempotency.Enabled = rapid.Bool().Draw(t, "contract")
	p.Idempotency.KeyTTL = millis("key ttl", 1, 2000)
	if rapid.Bool().Draw(t, "rejections") {
		p.Retry.RejectionStatuses = policy.Statuses(429, 503)
	}
	arrived := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	c := &call.Call{
		Method:        rapid.SampledFrom([]string{"GET", "PUT", "POST", "PATCH", "PURGE"}).Draw(t, "method"),
		Target:        call.Target{Scheme: "https", Host: "api.example.com", Port: 443},
		Body:          make([]byte, rapid.IntRange(0, 1).Draw(t, "body")),
		RepeatSafety:  call.RepeatSafety(rapid.Int32Range(0, 2).Draw(t, "safety")),
		SingleUseBody: rapid.Bool().Draw(t, "single use"),
		Arrived:       arrived,
		Deadline:      arrived.Add(millis("deadline", 0, 3000)),
	}
	if rapid.Bool().Draw(t, "keyed") {
		c.OperationID = "order-1"
	}
	w := &walk{call: c, policy: &p}
	w.run(t, arrived)
	return w
}

func (w *walk) run(t *rapid.T, now time.Time) {
	rnd := func() float64 { return rapid.Float64Range(0, 0.999).Draw(t, "rnd") }
	plan := engine.NewPlan(w.call, w.policy, guard.New(guard.Config{}), rnd)
	w.work = plan.WorkDeadline()
	step := plan.Next(now, engine.Event{Kind: engine.EventStarted})
	for range 100 {
		switch step.Kind {
		case engine.StepSend:
			a := step.Attempt
			if !a.Start.Before(w.work) {
				t.Fatalf("attempt %d starts at the work deadline or after it", a.Number)
			}
			if a.Deadline.After(w.work) || a.Timeout <= 0 {
				t.Fatalf("attempt %d has %s, until %s after the work deadline", a.Number, a.Timeout, a.Deadline.Sub(w.work))
			}
			r := rapid.SampledFrom(possible()).Draw(t, "result")
			now = a.Start.Add(time.Duration(rapid.Int64Range(0, int64(a.Timeout)).Draw(t, "took")))
			if r.TimedOut {
				now = a.Deadline
			}
			w.results = append(w.results, r)
			step = plan.Next(now, engine.Event{Kind: engine.EventResult, Result: r, Gone: now.Before(w.work) && rapid.IntRange(0, 9).Draw(t, "gone") == 0})
		case engine.StepWithdraw:
			step = plan.Next(now, drawShared(t, engine.EventGranted, call.ReasonBudgetExhausted))
		case engine.StepAdmit:
			ev := drawShared(t, engine.EventAdmitted, call.ReasonBreakerOpen)
			now = now.Add(ev.Queued)
			ev.Until = now.Add(ev.Until.Sub(time.Time{}))
			step = plan.Next(now, ev)
		case engine.StepWait:
			if !step.Until.Before(w.work) {
				t.Fatalf("a wait until %s after the work deadline", step.Until.Sub(w.work))
			}
			now = step.Until
			step = plan.Next(now, engine.Event{Kind: engine.EventWaited})
		case engine.StepFinal:
			w.final, w.endedAt = step.Final, now
			return
		}
	}
	t.Fatal("a call without an end")
}

// drawShared is what something shared says: mostly that it agrees.
func drawShared(t *rapid.T, agrees engine.EventKind, reason call.Reason) engine.Event {
	switch rapid.IntRange(0, 19).Draw(t, "shared") {
	case 0:
		return engine.Event{Kind: engine.EventRefused, Reason: reason, RetryAfter: time.Second}
	case 1:
		if agrees == engine.EventAdmitted {
			return engine.Event{Kind: engine.EventHeld, Until: time.Time{}.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "hold")) * time.Millisecond)}
		}
	case 2:
		if agrees == engine.EventAdmitted {
			return engine.Event{Kind: agrees, Queued: time.Duration(rapid.IntRange(1, 300).Draw(t, "queued")) * time.Millisecond}
		}
	}
	return engine.Event{Kind: agrees}
}

// TestPlanKeepsItsPromises: whatever happens, the promises of semantics.md §1 and §2 hold, by an oracle that knows only the
// results in their order.
func TestPlanKeepsItsPromises(t *testing.T) {
	base := defaults(t)
	rapid.Check(t, func(t *rapid.T) {
		w := drawWalk(t, base)
		f := w.final
		if len(f.Attempts) != len(w.results) {
			t.Fatalf("%d attempts told of %d", len(f.Attempts), len(w.results))
		}
		w.countsAttempts(t)
		w.repeatsSafely(t)
		if want := w.effect(); f.Effect != want {
			t.Fatalf("effect %s, want %s", f.Effect, want)
		}
		w.endsTruly(t)
	})
}

// countsAttempts: never more than allowed, one free resend aside.
func (w *walk) countsAttempts(t *rapid.T) {
	allowed := int(w.policy.Retry.MaxAttempts)
	free := slices.ContainsFunc(w.results, func(r call.Result) bool { return r.Evidence == call.EvidenceNotSent && r.Reused })
	if free {
		allowed++
	}
	if len(w.results) > allowed {
		t.Fatalf("%d attempts, allowed %d", len(w.results), allowed)
	}
	sends := uint32(0)
	for _, r := range w.results {
		if r.Evidence != call.EvidenceNotSent {
			sends++
		}
	}
	if w.final.Sends != sends {
		t.Fatalf("sends %d, want %d", w.final.Sends, sends)
	}
}

// repeatable by the operation alone, as the contract words it.
func (w *walk) repeatable() bool {
	if w.call.RepeatSafety == call.RepeatSafetyNever {
		return false
	}
	return w.call.Method == "GET" || w.call.Method == "PUT" ||
		w.call.RepeatSafety == call.RepeatSafetyIdempotent && w.policy.Retry.TrustCallers || w.keyed()
}

func (w *walk) keyed() bool {
	return w.policy.Idempotency.Enabled && w.call.OperationID != "" && (w.call.Method == "POST" || w.call.Method == "PATCH")
}

// repeatsSafely: what may have been sent is followed by another attempt only where repeating is safe, and a body that can be
// sent once only is never read twice.
func (w *walk) repeatsSafely(t *rapid.T) {
	for i, r := range w.results[:max(0, len(w.results)-1)] {
		if r.Evidence == call.EvidenceNotSent {
			continue
		}
		if w.call.SingleUseBody && len(w.call.Body) > 0 {
			t.Fatalf("a single-use body was sent again after attempt %d", i+1)
		}
		rejected := r.Evidence == call.EvidenceAnswered && w.policy.Retry.RejectionStatuses.Has(r.Status) &&
			w.call.RepeatSafety != call.RepeatSafetyNever
		if r.Evidence != call.EvidenceRefused && !w.repeatable() && !rejected {
			t.Fatalf("unsafe repeat after attempt %d, %s", i+1, r.Evidence)
		}
	}
}

// effect by the words of contract.md §1.
func (w *walk) effect() call.Effect {
	known := call.EffectNone
	for _, r := range w.results {
		safe := w.call.Method == "GET"
		answered := r.Evidence == call.EvidenceAnswered
		switch success := answered && r.Status < 400; {
		case r.Evidence == call.EvidenceNotSent || r.Evidence == call.EvidenceRefused:
		case success, safe && answered:
			known = call.EffectAnswered
		case safe && known == call.EffectAnswered:
		case known == call.EffectUnknown:
		case answered && w.policy.Retry.RejectionStatuses.Has(r.Status):
		case answered && r.Status == 409 && w.keyed():
			known = call.EffectUnknown
		case answered && (r.Status == 404 || r.Status == 409 || r.Status == 422 || r.Status == 501):
			known = call.EffectAnswered
		default:
			known = call.EffectUnknown
		}
	}
	return known
}

// endsTruly: the outcome is not called better or worse than it was.
func (w *walk) endsTruly(t *rapid.T) {
	f := w.final
	if f.RetrySafe && f.Effect != call.EffectNone && !w.repeatable() {
		t.Fatal("called safe to retry")
	}
	if f.Outcome == call.OutcomeSuccess && (f.Effect != call.EffectAnswered || f.Next != call.NextStepDone) {
		t.Fatalf("a success with effect %s, next %s", f.Effect, f.Next)
	}
	// A peer that refused a body that can be sent once only leaves no effect; the call has no answer all the same.
	if last := len(w.results) - 1; f.Outcome == call.OutcomeUnknown && (w.results[last].Response != nil ||
		f.Effect != call.EffectUnknown && w.results[last].Evidence != call.EvidenceRefused) {
		t.Fatalf("unknown with effect %s", f.Effect)
	}
	if f.Effect == call.EffectUnknown && f.Outcome != call.OutcomeSuccess &&
		(f.Next == call.NextStepDone || f.Next == call.NextStepFixRequest) {
		t.Fatalf("an unknown effect and next %s", f.Next)
	}
	if f.Next == call.NextStepRetry && !f.RetrySafe {
		t.Fatal("told to retry what is not safe to retry")
	}
	if f.Elapsed != w.endedAt.Sub(w.call.Arrived) {
		t.Fatalf("elapsed %s", f.Elapsed)
	}
	var last *call.Response
	for _, r := range w.results {
		if r.Response != nil {
			last = r.Response
		}
	}
	if f.Response != last {
		t.Fatal("the last answer was replaced")
	}
}
