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
		answer(200), answer(301), answer(302, call.Header{Name: "Location", Value: "/next"}),
		answer(302, call.Header{Name: "Location", Value: "/later"}, call.Header{Name: "Retry-After", Value: "1"}),
		answer(307, call.Header{Name: "Location", Value: "https://other.example.com/next"}), answer(404), answer(409), answer(422), answer(501), answer(502),
		answer(503), answer(503, call.Header{Name: "Retry-After", Value: "1"}), answer(429, call.Header{Name: "Retry-After", Value: "0"}),
		{Evidence: call.EvidenceNotSent, Failure: call.FailureConnect},
		{Evidence: call.EvidenceNotSent, Failure: call.FailureConnectionLost, Reused: true},
		{Evidence: call.EvidenceNotSent, Failure: call.FailureNameResolution, Terminal: true},
		{Evidence: call.EvidenceRefused, Failure: call.FailureConnectionLost},
		{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureConnectionLost},
		{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureAttemptTimeout, TimedOut: true},
		{Evidence: call.EvidencePartialResponse, Failure: call.FailureConnectionLost, Status: 200},
		{Evidence: call.EvidencePartialResponse, Failure: call.FailureProtocol},
		{Evidence: call.EvidenceNotSent, Failure: call.FailureProtocol, Terminal: true},
	}
}

// walk is one random life of a plan, with all that was said on the way.
type walk struct {
	call    *call.Call
	policy  *policy.Effective
	work    time.Time
	flying  []flying
	results []landing // in the order in which they came
	hedges  uint32
	hops    uint32
	method  string // of the request that is made now
	foreign bool   // it has left its origin
	before  int    // results of earlier requests
	left    bool   // the caller has gone when a result that counts came
	settled bool   // the request that is made now had a success
	cancel  bool   // the plan has asked for the end of what is in flight
	final   call.Final
	endedAt time.Time
}

// flying is an attempt in flight and what it will give.
type flying struct {
	number uint32
	ends   time.Time
	result call.Result
}

// landing is a result, late when the call was over by then, and what the request was.
type landing struct {
	call.Result
	number      uint32
	late        bool
	safe, keyed bool
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
	p.Redirects.MaxHops = rapid.Uint32Range(0, 2).Draw(t, "max hops")
	p.Hedge.Enabled, p.Hedge.Percentile, p.Hedge.Delay = rapid.Bool().Draw(t, "hedge"), 0, millis("delay", 0, 300)
	p.Hedge.MaxHedges = rapid.Uint32Range(0, 3).Draw(t, "max hedges")
	p.Hedge.Methods = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"GET", "PUT", "POST", "PURGE"}), rapid.ID).Draw(t, "hedged methods")
	if rapid.Bool().Draw(t, "rejections") {
		p.Retry.RejectionStatuses = policy.Statuses(429, 503)
	}
	arrived := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	target, err := call.ParseTarget("https://api.example.com/a")
	if err != nil {
		t.Fatal(err)
	}
	c := &call.Call{
		Method:        rapid.SampledFrom([]string{"GET", "PUT", "POST", "PATCH", "PURGE"}).Draw(t, "method"),
		Target:        target,
		Body:          make([]byte, rapid.IntRange(0, 1).Draw(t, "body")),
		RepeatSafety:  call.RepeatSafety(rapid.Int32Range(0, 2).Draw(t, "safety")),
		SingleUseBody: rapid.Bool().Draw(t, "single use"),
		Arrived:       arrived,
		Deadline:      arrived.Add(millis("deadline", 0, 3000)),
	}
	if rapid.Bool().Draw(t, "keyed") {
		c.OperationID = "order-1"
	}
	w := &walk{call: c, policy: &p, method: c.Method}
	w.run(t, arrived)
	return w
}

func (w *walk) run(t *rapid.T, now time.Time) {
	rnd := func() float64 { return rapid.Float64Range(0, 0.999).Draw(t, "rnd") }
	plan := engine.NewPlan(w.call, w.policy, guard.New(guard.Config{}), rnd)
	w.work = plan.WorkDeadline()
	step := plan.Next(now, engine.Event{Kind: engine.EventStarted})
	for range 200 {
		switch step.Kind {
		case engine.StepSend:
			w.send(t, &step)
			step = engine.Step{Kind: engine.StepListen, HedgeAt: step.HedgeAt}
		case engine.StepListen:
			var ev engine.Event
			ev, now = w.listen(t, now, &step)
			step = plan.Next(now, ev)
		case engine.StepWithdraw:
			step = plan.Next(now, drawShared(t, engine.EventGranted, call.ReasonBudgetExhausted))
		case engine.StepHedge:
			ev := engine.Event{Kind: engine.EventHedgeRefused}
			if rapid.IntRange(0, 3).Draw(t, "hedge refused") > 0 {
				ev = engine.Event{Kind: engine.EventHedgeAdmitted, HedgeAt: now.Add(w.policy.Hedge.Delay)}
			}
			step = plan.Next(now, ev)
		case engine.StepAdmit:
			if len(w.flying) > 0 {
				t.Fatal("an attempt that is no hedge starts beside another")
			}
			ev := drawShared(t, engine.EventAdmitted, call.ReasonBreakerOpen)
			now = now.Add(ev.Queued)
			ev.Until = now.Add(ev.Until.Sub(time.Time{}))
			if w.policy.Hedge.Enabled {
				ev.HedgeAt = now.Add(w.policy.Hedge.Delay)
			}
			step = plan.Next(now, ev)
		case engine.StepWait:
			if !step.Until.Before(w.work) {
				t.Fatalf("a wait until %s after the work deadline", step.Until.Sub(w.work))
			}
			now = step.Until
			step = plan.Next(now, engine.Event{Kind: engine.EventWaited})
		case engine.StepFinal:
			if len(w.flying) > 0 {
				t.Fatal("the call is over and an attempt is in flight")
			}
			w.final, w.endedAt = *step.Final, now
			return
		}
	}
	t.Fatal("a call without an end")
}

// send draws what will become of an attempt.
func (w *walk) send(t *rapid.T, step *engine.Step) {
	a := step.Attempt
	if !a.Start.Before(w.work) {
		t.Fatalf("attempt %d starts at the work deadline or after it", a.Number)
	}
	if a.Deadline.After(w.work) || a.Timeout <= 0 {
		t.Fatalf("attempt %d has %s, until %s after the work deadline", a.Number, a.Timeout, a.Deadline.Sub(w.work))
	}
	w.hop(t, a)
	w.startsRightly(t, a)
	f := flying{number: a.Number, result: rapid.SampledFrom(possible()).Draw(t, "result"), ends: a.Deadline}
	if !f.result.TimedOut {
		f.ends = a.Start.Add(time.Duration(rapid.Int64Range(0, int64(a.Timeout)).Draw(t, "took")))
	}
	w.flying = append(w.flying, f)
}

// listen is what happens first among the attempts in flight and the time of the hedge. Attempts that are cancelled end at once, and may
// have a result of their own all the same.
func (w *walk) listen(t *rapid.T, now time.Time, step *engine.Step) (engine.Event, time.Time) {
	w.cancel = w.cancel || step.Cancel
	if step.Cancel {
		for i := range w.flying {
			if f := &w.flying[i]; rapid.Bool().Draw(t, "cut") {
				evidence := rapid.SampledFrom([]call.Evidence{call.EvidenceNotSent, call.EvidenceSentNoResponse}).Draw(t, "cut at")
				f.result = call.Result{Evidence: evidence, Failure: call.FailureCancelled}
			}
			w.flying[i].ends = earliest(w.flying[i].ends, now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "lingers"))*time.Millisecond))
		}
	}
	first := slices.MinFunc(w.flying, func(a, b flying) int { return a.ends.Compare(b.ends) })
	if !step.HedgeAt.IsZero() && step.HedgeAt.Before(first.ends) {
		now = latest(now, step.HedgeAt)
		return engine.Event{Kind: engine.EventHedgeDue, Gone: w.gone(t, now)}, now
	}
	w.flying = slices.DeleteFunc(w.flying, func(f flying) bool { return f.number == first.number })
	now = latest(now, first.ends)
	gone := w.gone(t, now)
	// The first success ends the call even when it comes after the end of it, unless the caller has gone.
	late := w.cancel && (w.left || w.settled || !succeeded(&first.result))
	w.results = append(w.results, landing{first.result, first.number, late, w.method == "GET", w.keyed()})
	w.left = w.left || gone && !late
	w.settled = w.settled || succeeded(&first.result)
	return engine.Event{Kind: engine.EventResult, Number: first.number, Result: &first.result, Gone: gone}, now
}

func succeeded(r *call.Result) bool { return r.Response != nil && r.Status < 400 }

func (w *walk) gone(t *rapid.T, now time.Time) bool {
	return now.Before(w.work) && rapid.IntRange(0, 9).Draw(t, "gone") == 0
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
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

// TestPlanKeepsItsPromises: whatever happens, the promises of semantics.md §1, §2 and §8 hold, by an oracle that knows only the
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
		if want := w.effect(); f.Effect != want {
			t.Fatalf("effect %s, want %s", f.Effect, want)
		}
		w.endsTruly(t)
	})
}

// countsAttempts: never more than allowed, one free resend aside.
func (w *walk) countsAttempts(t *rapid.T) {
	allowed := int(w.policy.Retry.MaxAttempts)
	free := slices.ContainsFunc(w.results, func(r landing) bool { return r.Evidence == call.EvidenceNotSent && r.Reused })
	if free {
		allowed++
	}
	if len(w.results) > allowed+int(w.hops) {
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
	return w.method == "GET" || w.method == "PUT" ||
		w.call.RepeatSafety == call.RepeatSafetyIdempotent && w.policy.Retry.TrustCallers || w.keyed()
}

func (w *walk) keyed() bool {
	return w.policy.Idempotency.Enabled && w.call.OperationID != "" && !w.foreign && (w.method == "POST" || w.method == "PATCH")
}

// hop goes over to another request, as the last answer that counts said.
func (w *walk) hop(t *rapid.T, a *call.Attempt) {
	kinds := []call.Kind{call.KindRedirect, call.KindProbe}
	var last *landing
	for i := range w.results {
		if !w.results[i].late {
			last = &w.results[i]
		}
	}
	if !slices.Contains(kinds, a.Kind) || last == nil || last.Response == nil || len(last.Response.Headers) == 0 || last.Status/100 != 3 {
		if a.Kind == call.KindRedirect {
			t.Fatal("a hop after no redirect")
		}
		return
	}
	if last.Status == 307 {
		if !w.repeatable() && !w.foreign { // once there, it stays within that origin
			t.Fatal("an operation that must not be repeated was led to another origin")
		}
		w.foreign = true
	} else if w.method == "POST" {
		w.method = "GET"
	}
	w.cancel, w.settled, w.before = false, false, len(w.results)
	if w.hops++; w.hops > w.policy.Redirects.MaxHops {
		t.Fatalf("hop %d of %d", w.hops, w.policy.Redirects.MaxHops)
	}
}

// startsRightly: an attempt that follows results is safe beside every one of them, a hedge is of a call that may be hedged and runs
// beside another, and a body that can be sent once only is never read twice.
func (w *walk) startsRightly(t *rapid.T, a *call.Attempt) {
	if w.cancel {
		t.Fatalf("attempt %d starts after the end of the call", a.Number)
	}
	if a.Kind == call.KindHedge {
		w.hedgesRightly(t, a)
	} else if len(w.flying) > 0 {
		t.Fatalf("attempt %d of kind %s beside another", a.Number, a.Kind)
	}
	for i, r := range w.results {
		dropped := w.method == "GET" && w.call.Method != "GET" // the body, by a redirect
		if r.Evidence == call.EvidenceNotSent || r.late {
			continue
		}
		if w.call.SingleUseBody && len(w.call.Body) > 0 && !dropped {
			t.Fatalf("a single-use body was sent again after attempt %d", r.number)
		}
		rejected := r.Evidence == call.EvidenceAnswered && w.policy.Retry.RejectionStatuses.Has(r.Status) &&
			w.call.RepeatSafety != call.RepeatSafetyNever
		if i >= w.before && a.Kind != call.KindHedge && r.Evidence != call.EvidenceRefused && !w.repeatable() && !rejected {
			t.Fatalf("unsafe repeat after attempt %d, %s", r.number, r.Evidence)
		}
	}
}

func (w *walk) hedgesRightly(t *rapid.T, a *call.Attempt) {
	hedged := w.keyed() || slices.Contains(w.policy.Hedge.Methods, w.call.Method)
	if !w.policy.Hedge.Enabled || !hedged || len(w.flying) == 0 || w.call.RepeatSafety == call.RepeatSafetyNever ||
		w.call.SingleUseBody && len(w.call.Body) > 0 {
		t.Fatalf("attempt %d is a hedge", a.Number)
	}
	w.hedges++
	if w.hedges > w.policy.Hedge.MaxHedges {
		t.Fatalf("hedge %d of %d", w.hedges, w.policy.Hedge.MaxHedges)
	}
}

// effect by the words of contract.md §1.
func (w *walk) effect() call.Effect {
	known, settled := call.EffectNone, false // by the answer that ended the listening
	for _, r := range w.results {
		if r.late && settled {
			continue // the success has told of the operation
		}
		safe := r.safe
		settled = r.Evidence == call.EvidenceAnswered && r.Status < 400
		answered := r.Evidence == call.EvidenceAnswered
		switch success := answered && r.Status < 400; {
		case r.Evidence == call.EvidenceNotSent || r.Evidence == call.EvidenceRefused:
		case success, safe && answered:
			known = call.EffectAnswered
		case safe && known == call.EffectAnswered:
		case known == call.EffectUnknown:
		case answered && w.policy.Retry.RejectionStatuses.Has(r.Status):
		case answered && r.Status == 409 && r.keyed:
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
	// A peer that refused a body that can be sent once only leaves no effect; the call has no answer all the same. Nor has a safe hop
	// that was lost after its redirect was answered.
	safeHop := w.hops > 0 && w.method == "GET"
	if last := len(w.results) - 1; f.Outcome == call.OutcomeUnknown && (w.results[last].Response != nil ||
		f.Effect != call.EffectUnknown && !safeHop && w.results[last].Evidence != call.EvidenceRefused) {
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
	settled := false
	for _, r := range w.results {
		if r.Response != nil && (!r.late || w.left && !settled) {
			last = r.Response
		}
		settled = settled || succeeded(&r.Result)
	}
	if settled && w.hops == 0 && w.policy.Redirects.MaxHops == 0 && f.Outcome != call.OutcomeSuccess && f.Outcome != call.OutcomeCancelled {
		t.Fatalf("a success came and the call ended %s", f.Outcome)
	}
	if f.Response != last {
		t.Fatalf("the last answer was replaced: %s %s, %+v, attempts %+v", f.Outcome, f.Reason, f.Response, f.Attempts)
	}
}
