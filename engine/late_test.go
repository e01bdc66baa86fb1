package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

// leaver is a Sender whose every request leaves after a while, and is answered a while after that. It ends as egress does.
type leaver struct {
	departs, answers time.Duration
	result           call.Result
	heard            int32 // of the answer when the time is up
	panics           bool

	mu     sync.Mutex // protects the fields below
	sent   []call.Attempt
	ends   int
	causes []error
}

func (l *leaver) Send(ctx context.Context, _ *call.Call, _ *policy.Effective, a call.Attempt) call.Result {
	l.mu.Lock()
	l.sent = append(l.sent, a)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ends++
		if ctx.Err() != nil {
			l.causes = append(l.causes, context.Cause(ctx))
		}
	}()
	d, until := a.Departure, a.Deadline
	if r, ok := l.until(ctx, l.departs, until, call.EvidenceNotSent); !ok {
		return r
	}
	if d != nil {
		d.Way = call.Result{RemoteAddress: "192.0.2.1:443", Protocol: "HTTP/1.1", Reused: true}
		if !d.Depart() {
			return call.Result{Evidence: call.EvidenceNotSent, Failure: call.FailureAttemptTimeout, Detail: "kept back"}
		}
		d.Heard.Store(l.heard)
		until = d.Latest
	}
	if r, ok := l.until(ctx, l.answers, until, call.EvidenceSentNoResponse); !ok {
		return r
	}
	if l.panics {
		panic("of the test")
	}
	return l.result
}

func (*leaver) until(ctx context.Context, long time.Duration, deadline time.Time, e call.Evidence) (call.Result, bool) {
	done, up := time.NewTimer(long), time.NewTimer(time.Until(deadline))
	defer done.Stop()
	defer up.Stop()
	select {
	case <-done.C:
		return call.Result{}, true
	case <-up.C:
		return call.Result{Evidence: e, Failure: call.FailureAttemptTimeout, TimedOut: true, Detail: "no answer in time"}, false
	case <-ctx.Done():
		if context.Cause(ctx) == call.ErrTimeUp { //nolint:errorlint // as it was given
			return call.Result{Evidence: e, Failure: call.FailureAttemptTimeout, TimedOut: true, Detail: "no answer in time"}, false
		}
		return call.Result{Evidence: e, Failure: call.FailureCancelled, Detail: "cancelled"}, false
	}
}

// ends counts what an observer is told.
type ends struct {
	traced
	mu       sync.Mutex // protects the fields below
	attempts []call.Attempt
	outlived int
}

func (e *ends) AttemptEnded(_ context.Context, a *call.Attempt, _ engine.Shared) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.attempts = append(e.attempts, *a)
}

func (e *ends) AttemptOutlives(ctx context.Context, _ uint32) context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.outlived++
	return ctx
}

func (e *ends) told() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.attempts)
}

// patient is the policy of an upstream that may take its time.
func patient(t *testing.T) *policy.Effective {
	t.Helper()
	p := worked(t)
	p.Attempt.Timeout = 10 * time.Second
	p.Concurrency = policy.Concurrency{MaxInFlight: 8, MaxPending: 8, PendingWait: time.Second}
	return p
}

// post makes a POST that may run on, with so much time.
func (s *shop) post(ctx context.Context, budget time.Duration, change func(*call.Call)) call.Final {
	now := time.Now()
	c := &call.Call{
		Method: "POST", Caller: "one", Arrived: now, Deadline: now.Add(budget), OperationID: "order-1", MayRunOn: true,
		Target: call.Target{Scheme: "https", Host: "l.example.com", Port: 443, Origin: "https://l.example.com:443"},
	}
	if change != nil {
		change(c)
	}
	return s.engine.Do(ctx, c, s.policy)
}

func lateShop(t *testing.T, p *policy.Effective, s engine.Sender) (*shop, *ends, *engine.Origins) {
	t.Helper()
	seen, origins := &ends{}, engine.NewOrigins()
	return &shop{engine: engine.New(s, seen, guard.New(guard.Config{}), origins), policy: p}, seen, origins
}

func inFlight(o *engine.Origins) (n uint32) {
	for _, s := range o.Read(time.Now(), func(string) bool { return true }) {
		for _, scope := range s.Scopes {
			n += scope.Concurrency.InFlight
		}
	}
	return n
}

func TestLateAnswerComesAfterTheCallerWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &leaver{departs: 10 * time.Millisecond, answers: 3 * time.Second, result: status(201)}
		s, seen, origins := lateShop(t, patient(t), u)
		f := s.post(t.Context(), time.Second, nil)
		ended(t, f, call.OutcomeUnknown, call.ReasonNotRepeatable, 1)
		a := f.Attempts[0]
		if f.Effect != call.EffectUnknown || f.Elapsed != time.Second || f.Next != call.NextStepReconcile || f.Sends != 1 || f.Late == nil {
			t.Errorf("%s after %s, %s, %d sends, late %t", f.Effect, f.Elapsed, f.Next, f.Sends, f.Late != nil)
		}
		if a.Timeout != time.Second || a.Duration != time.Second || a.Result.Evidence != call.EvidenceSentNoResponse ||
			a.Result.Failure != call.FailureAttemptTimeout || !a.Result.TimedOut || a.Result.RemoteAddress != "192.0.2.1:443" || !a.Result.Reused ||
			a.Decision != (call.Decision{Verdict: call.VerdictStop, Reason: call.ReasonNotRepeatable}) || a.Departure != nil {
			t.Errorf("%+v", a)
		}
		if f.Told != (call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}) || !f.FirstSend.Equal(a.Start) {
			t.Errorf("told %+v, first send %s", f.Told, f.FirstSend)
		}
		if n, told, outlived := inFlight(origins), seen.told(), seen.outlived; n != 1 || told != 0 || outlived != 1 {
			t.Errorf("%d in flight, %d told as ended, %d as outliving", n, told, outlived)
		}
		late := <-f.Late
		ended(t, late, call.OutcomeSuccess, call.ReasonSuccess, 1)
		if late.Effect != call.EffectAnswered || late.Response.Status != 201 || late.Elapsed != 3010*time.Millisecond || late.Late != nil ||
			late.Told != (call.Told{Outcome: call.OutcomeSuccess, Reason: call.ReasonSuccess}) {
			t.Errorf("late: %s, %+v after %s, %+v", late.Effect, late.Response, late.Elapsed, late.Told)
		}
		if a := late.Attempts[0]; a.Timeout != time.Second || a.Duration != 3010*time.Millisecond || a.SpanID != "span" {
			t.Errorf("late: %+v", a)
		}
		if f.Attempts[0].Result.Status != 0 {
			t.Error("what the caller got has changed")
		}
		s.engine.Wait(t.Context())
		if n := inFlight(origins); n != 0 || len(seen.attempts) != 1 || seen.attempts[0].Result.Status != 201 || len(u.sent) != 1 {
			t.Errorf("%d in flight, %d told as ended, %d sends", n, len(seen.attempts), len(u.sent))
		}
	})
}

// TestNobodyNeedsToWaitForALateAnswer: it leaves nothing behind either way (goleak looks).
func TestNobodyNeedsToWaitForALateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := lateShop(t, patient(t), &leaver{answers: 3 * time.Second, result: status(201)})
		if f := s.post(t.Context(), time.Second, nil); f.Late == nil {
			t.Error("no late answer")
		}
		s.engine.Wait(t.Context())
	})
}

func TestOnlyWhatMustNotBeRepeatedAndWasSentRunsOn(t *testing.T) {
	keyed := func(p *policy.Effective) { p.Idempotency.Enabled = true }
	for _, row := range []struct {
		name    string
		policy  func(*policy.Effective)
		call    func(*call.Call)
		sender  *leaver
		outcome call.Outcome
		effect  call.Effect
		late    bool
	}{
		{"sent", nil, nil, &leaver{answers: 5 * time.Second}, call.OutcomeUnknown, call.EffectUnknown, true},
		{"not allowed to", nil, func(c *call.Call) { c.MayRunOn = false }, &leaver{answers: 5 * time.Second}, call.OutcomeUnknown, call.EffectUnknown, false},
		{"not sent yet", nil, nil, &leaver{departs: 5 * time.Second}, call.OutcomeDeadlineExceeded, call.EffectNone, false},
		{"sent a moment too late", nil, nil, &leaver{departs: time.Second + 1}, call.OutcomeDeadlineExceeded, call.EffectNone, false},
		{"sent a moment before", nil, nil, &leaver{departs: time.Second - 1, answers: 5 * time.Second}, call.OutcomeUnknown, call.EffectUnknown, true},
		{"repeatable by its method", nil, func(c *call.Call) { c.Method = "PUT" }, &leaver{answers: 5 * time.Second}, call.OutcomeDeadlineExceeded, call.EffectUnknown, false},
		{"repeatable by its key", keyed, nil, &leaver{answers: 5 * time.Second}, call.OutcomeDeadlineExceeded, call.EffectUnknown, false},
		{"keyed, and never to be repeated", keyed, func(c *call.Call) { c.RepeatSafety = call.RepeatSafetyNever }, &leaver{answers: 5 * time.Second}, call.OutcomeUnknown, call.EffectUnknown, true},
		{"its own time is up", func(p *policy.Effective) { p.Attempt.Timeout = 500 * time.Millisecond }, nil, &leaver{answers: 5 * time.Second}, call.OutcomeUnknown, call.EffectUnknown, false},
		{"its own time is up, of the call", nil, func(c *call.Call) { c.AttemptTimeout = time.Second }, &leaver{answers: 5 * time.Second}, call.OutcomeUnknown, call.EffectUnknown, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := patient(t)
				p.Retry.MaxAttempts = 1
				if row.policy != nil {
					row.policy(p)
				}
				u := row.sender
				u.result = status(201)
				s, seen, origins := lateShop(t, p, u)
				f := s.post(t.Context(), time.Second, row.call)
				if f.Outcome != row.outcome || f.Effect != row.effect || (f.Late != nil) != row.late || f.Elapsed > time.Second {
					t.Errorf("%s, %s after %s, late %t", f.Outcome, f.Effect, f.Elapsed, f.Late != nil)
				}
				s.engine.Wait(t.Context())
				if n := inFlight(origins); n != 0 || len(seen.attempts) != 1 || u.ends != 1 {
					t.Errorf("%d in flight, %d told, %d ended", n, len(seen.attempts), u.ends)
				}
			})
		})
	}
}

func TestVanishedCallerLeavesASentAttemptRunning(t *testing.T) {
	for _, row := range []struct {
		name   string
		sender *leaver
		effect call.Effect
		told   call.Told
		late   call.Told
	}{
		{
			"sent", &leaver{answers: 3 * time.Second, result: status(201)}, call.EffectUnknown,
			call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable},
			call.Told{Outcome: call.OutcomeSuccess, Reason: call.ReasonSuccess},
		},
		{"not sent", &leaver{departs: 3 * time.Second}, call.EffectNone, call.Told{}, call.Told{}},
		{
			"an answer that says nothing was done", &leaver{answers: 3 * time.Second, result: status(503)}, call.EffectUnknown,
			call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable},
			call.Told{},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := patient(t)
				p.Retry.RejectionStatuses = policy.Statuses(503)
				u := row.sender
				s, _, _ := lateShop(t, p, u)
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(200*time.Millisecond, cancel).Stop()
				f := s.post(ctx, time.Minute, nil)
				if f.Outcome != call.OutcomeCancelled || f.Effect != row.effect || f.Elapsed != 200*time.Millisecond || f.Told != row.told {
					t.Fatalf("%s, %s after %s, told %+v", f.Outcome, f.Effect, f.Elapsed, f.Told)
				}
				if f.Attempts[0].Result.Failure != call.FailureCancelled {
					t.Errorf("failure %s", f.Attempts[0].Result.Failure)
				}
				if row.effect == call.EffectNone {
					if f.Late != nil {
						t.Error("something runs on that was not sent")
					}
					return
				}
				late := <-f.Late
				if late.Told != row.late || len(u.sent) != 1 || late.Elapsed != 3*time.Second {
					t.Errorf("late: %s, %s, told %+v, %d sends after %s", late.Outcome, late.Reason, late.Told, len(u.sent), late.Elapsed)
				}
				s.engine.Wait(t.Context())
			})
		})
	}
}

func TestPartOfAnAnswerIsToldAtTheDeadline(t *testing.T) {
	for heard, want := range map[int32]call.Result{
		0:   {Evidence: call.EvidenceSentNoResponse},
		1:   {Evidence: call.EvidencePartialResponse},
		200: {Evidence: call.EvidencePartialResponse, Status: 200},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _, _ := lateShop(t, patient(t), &leaver{heard: heard, answers: 3 * time.Second, result: status(201)})
			r := s.post(t.Context(), time.Second, nil).Attempts[0].Result
			if r.Evidence != want.Evidence || r.Status != want.Status {
				t.Errorf("%d: %s, %d", heard, r.Evidence, r.Status)
			}
			s.engine.Wait(t.Context())
		})
	}
}

// TestLateAttemptEndsWithItsOwnTime and fails for the breaker like any that had all its time.
func TestLateAttemptEndsWithItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := patient(t)
		p.Breaker.ConsecutiveFailures, p.Breaker.MinDistinctCallers = 1, 1
		s, seen, origins := lateShop(t, p, &leaver{answers: forever})
		f := s.post(t.Context(), 100*time.Millisecond, nil) // impatient: it would be excused if its time had ended here
		late := <-f.Late
		ended(t, late, call.OutcomeUnknown, call.ReasonNotRepeatable, 1)
		if late.Elapsed != p.Attempt.Timeout || late.Effect != call.EffectUnknown || late.Attempts[0].Timeout != 100*time.Millisecond {
			t.Errorf("%s after %s", late.Effect, late.Elapsed)
		}
		s.engine.Wait(t.Context())
		if st := origins.Read(time.Now(), func(string) bool { return true })[0].Scopes[0].Breaker.State.String(); !strings.EqualFold(st, "open") || len(seen.attempts) != 1 {
			t.Errorf("the breaker is %s", st)
		}
	})
}

// TestTornDownAttemptIsExcusedAsBefore: where no place is left, the attempt ends with its caller's time, and that is nobody's failure.
func TestTornDownAttemptIsExcusedAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := patient(t)
		p.Concurrency.MaxInFlight = 4 // one place
		p.Breaker.ConsecutiveFailures, p.Breaker.MinDistinctCallers = 1, 1
		u := &leaver{answers: 5 * time.Second, result: status(201)}
		s, seen, origins := lateShop(t, p, u)
		first := s.post(t.Context(), 100*time.Millisecond, nil)
		second := s.post(t.Context(), 100*time.Millisecond, nil)
		if first.Late == nil || second.Late != nil {
			t.Fatalf("late: %t, %t, want the first alone", first.Late != nil, second.Late != nil)
		}
		ended(t, second, call.OutcomeUnknown, call.ReasonNotRepeatable, 1)
		if r := second.Attempts[0].Result; r.Failure != call.FailureAttemptTimeout || r.Evidence != call.EvidenceSentNoResponse || second.Elapsed != 100*time.Millisecond {
			t.Errorf("%s, %s after %s", r.Failure, r.Evidence, second.Elapsed)
		}
		if st := origins.Read(time.Now(), func(string) bool { return true })[0].Scopes[0].Breaker.State.String(); !strings.EqualFold(st, "closed") {
			t.Errorf("the breaker is %s: impatience is not the origin's fault", st)
		}
		<-first.Late
		s.engine.Wait(t.Context())
		if third := s.post(t.Context(), 100*time.Millisecond, nil); third.Late == nil {
			t.Error("the place did not come back")
		}
		s.engine.Wait(t.Context())
		if len(seen.attempts) != 3 {
			t.Errorf("%d ends", len(seen.attempts))
		}
	})
}

func TestLateAttemptsAreBounded(t *testing.T) {
	for maxInFlight, want := range map[uint32]int{0: 128, 1: 1, 7: 1, 8: 2, 64: 16, 10_000: 128} {
		synctest.Test(t, func(t *testing.T) {
			p := patient(t)
			p.Concurrency.MaxInFlight, p.Concurrency.MaxPending = maxInFlight, 0
			p.Breaker.ConsecutiveFailures, p.Breaker.MinRequests = 0, 1_000_000
			s, _, _ := lateShop(t, p, &leaver{answers: 5 * time.Second, result: status(201)})
			var mu sync.Mutex
			late := 0
			var all sync.WaitGroup
			for range 140 {
				all.Go(func() {
					if f := s.post(t.Context(), time.Second, nil); f.Late != nil {
						mu.Lock()
						defer mu.Unlock()
						late++
					}
				})
			}
			all.Wait()
			if late != want {
				t.Errorf("max_in_flight %d: %d run on, want %d", maxInFlight, late, want)
			}
			s.engine.Wait(t.Context())
		})
	}
}

func TestWaitCancelsWhatRunsOnWhenItsTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &leaver{answers: 5 * time.Second, result: status(201)}
		s, seen, origins := lateShop(t, patient(t), u)
		f := s.post(t.Context(), time.Second, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		s.engine.Wait(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited %s", took)
		}
		late := <-f.Late
		if late.Effect != call.EffectUnknown || late.Told != (call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}) || late.Elapsed != 2*time.Second {
			t.Errorf("%s, %+v after %s", late.Effect, late.Told, late.Elapsed)
		}
		if n := inFlight(origins); n != 0 || len(seen.attempts) != 1 {
			t.Errorf("%d in flight, %d ends", n, len(seen.attempts))
		}
		if f := s.post(t.Context(), time.Second, nil); f.Late != nil || f.Outcome != call.OutcomeUnknown {
			t.Errorf("%s, late %t after the end", f.Outcome, f.Late != nil)
		}
		s.engine.Wait(ctx) // nothing to wait for, whatever ctx says
	})
}

func TestPanicOfALateAttemptHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen, origins := lateShop(t, patient(t), &leaver{answers: 5 * time.Second, panics: true})
		f := s.post(t.Context(), time.Second, nil)
		late := <-f.Late
		if late.Outcome != f.Outcome || late.Effect != f.Effect || late.Told != f.Told || late.Late != nil || !strings.Contains(late.Note, "of the test") {
			t.Errorf("%s, %s, %+v, %q", late.Outcome, late.Effect, late.Told, late.Note)
		}
		s.engine.Wait(t.Context())
		if n := inFlight(origins); n != 0 || len(seen.attempts) != 1 {
			t.Errorf("%d in flight, %d ends", n, len(seen.attempts))
		}
	})
}

// TestRedirectOfALateAttemptIsTheAnswer: nothing more is sent.
func TestRedirectOfALateAttemptIsTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := patient(t)
		p.Redirects.MaxHops = 3
		u := &leaver{answers: 5 * time.Second, result: status(303, call.Header{Name: "Location", Value: "/done"})}
		s, _, _ := lateShop(t, p, u)
		late := <-s.post(t.Context(), time.Second, nil).Late
		if late.Outcome != call.OutcomeSuccess || late.Effect != call.EffectAnswered || late.Response.Status != 303 || len(u.sent) != 1 {
			t.Errorf("%s, %s, %d sends", late.Outcome, late.Effect, len(u.sent))
		}
		s.engine.Wait(t.Context())
	})
}

// TestTwoInFlightAreTornDown at the deadline, as without an id.
func TestTwoInFlightAreTornDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged(t)
		p.Hedge.Methods = []string{"POST"}
		u := &leaver{answers: 5 * time.Second, result: status(201)}
		s, seen, origins := lateShop(t, p, u)
		f := s.post(t.Context(), time.Second, nil)
		ended(t, f, call.OutcomeUnknown, call.ReasonNotRepeatable, 2)
		if f.Late != nil || f.Elapsed != time.Second || inFlight(origins) != 0 || len(seen.attempts) != 2 || len(u.causes) != 2 {
			t.Errorf("late %t after %s, %d ends, %v", f.Late != nil, f.Elapsed, len(seen.attempts), u.causes)
		}
	})
}

// TestFirstSuccessOfAHedgeStillCancelsTheOther where attempts do not end with their caller.
func TestFirstSuccessOfAHedgeStillCancelsTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged(t)
		p.Hedge.Methods = []string{"POST"}
		s, _, origins := lateShop(t, p, slowFirst(forever))
		f := s.post(t.Context(), time.Minute, nil)
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 2)
		if f.Elapsed != hedgeDelay || f.Late != nil || inFlight(origins) != 0 {
			t.Errorf("after %s, late %t", f.Elapsed, f.Late != nil)
		}
	})
}
