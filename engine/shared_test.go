package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

// senderFunc is a Sender in one function.
type senderFunc func(ctx context.Context, c *call.Call, a call.Attempt) call.Result

func (f senderFunc) Send(ctx context.Context, c *call.Call, _ *policy.Effective, a call.Attempt) call.Result {
	return f(ctx, c, a)
}

// status is a complete answer with fields.
func status(code int, fields ...call.Header) call.Result {
	return call.Result{Evidence: call.EvidenceAnswered, Status: code, Response: &call.Response{Status: code, Headers: fields}}
}

// shop makes calls of several callers through one engine.
type shop struct {
	engine *engine.Engine
	policy *policy.Effective
}

func newShop(t *testing.T, p *policy.Effective, s engine.Sender) *shop {
	t.Helper()
	return &shop{engine: engine.New(s, traced{}, guard.New(guard.Config{}), engine.NewOrigins()), policy: p}
}

func (s *shop) call(ctx context.Context, caller, host string, budget time.Duration, headers ...call.Header) call.Final {
	now := time.Now()
	return s.engine.Do(ctx, &call.Call{
		Method: "GET", Caller: caller, Arrived: now, Deadline: now.Add(budget), Headers: headers,
		Target: call.Target{Scheme: "https", Host: host, Port: 443, Origin: "https://" + host + ":443"},
	}, s.policy)
}

func ended(t *testing.T, f call.Final, o call.Outcome, reason call.Reason, attempts int) {
	t.Helper()
	if f.Outcome != o || f.Reason != reason || len(f.Attempts) != attempts {
		t.Fatalf("%s, %s after %d attempts, want %s, %s after %d", f.Outcome, f.Reason, len(f.Attempts), o, reason, attempts)
	}
}

func TestBreakerIsSharedByAllCallersOfAnOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := true
		p := worked(t)
		p.Retry.MaxAttempts = 1
		p.Breaker.ConsecutiveFailures, p.Breaker.OpenJitter = 4, 0
		s := newShop(t, p, senderFunc(func(_ context.Context, c *call.Call, _ call.Attempt) call.Result {
			if sick && c.Target.Host == "sick.example.com" {
				return status(500)
			}
			return status(200)
		}))
		for i := range 4 {
			ended(t, s.call(t.Context(), fmt.Sprint("caller", i%2), "sick.example.com", time.Second), call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, 1)
		}
		f := s.call(t.Context(), "another", "sick.example.com", time.Second)
		ended(t, f, call.OutcomeBreakerOpen, call.ReasonBreakerOpen, 0)
		if f.RetryAfter != time.Second || f.Effect != call.EffectNone || !f.RetrySafe || f.Next != call.NextStepRetry {
			t.Errorf("retry after %s, %s, %s", f.RetryAfter, f.Effect, f.Next)
		}
		ended(t, s.call(t.Context(), "another", "well.example.com", time.Second), call.OutcomeSuccess, call.ReasonSuccess, 1)

		sick = false
		time.Sleep(time.Second) // the cooldown; the next one is the probe
		f = s.call(t.Context(), "another", "sick.example.com", 5*time.Second)
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 1)
		if f.Attempts[0].Kind != call.KindProbe {
			t.Errorf("kind %s, want PROBE", f.Attempts[0].Kind)
		}
		f = s.call(t.Context(), "another", "sick.example.com", time.Second)
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 1)
		if f.Attempts[0].Kind != call.KindPrimary {
			t.Errorf("kind %s, want PRIMARY", f.Attempts[0].Kind)
		}
	})
}

func TestRetryStormIsBoundedByTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := worked(t)
		p.Retry.MaxAttempts = 5
		p.Breaker.ConsecutiveFailures, p.Breaker.MinRequests = 0, 1_000_000
		p.Concurrency = policy.Concurrency{} // no limit: a thousand at once on a busy machine would meet it before the budget
		p.Budget.Window = &policy.BudgetWindow{Ratio: 0.2, Period: 10 * time.Second}
		p.Budget.TokenBucket = nil
		var mu sync.Mutex
		sent := 0
		s := newShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
			mu.Lock()
			defer mu.Unlock()
			sent++
			return status(503)
		}))
		const callers = 1000
		var all sync.WaitGroup
		refused := 0
		for i := range callers {
			all.Go(func() {
				f := s.call(t.Context(), fmt.Sprint("caller", i), "api.example.com", time.Minute)
				if f.Outcome == call.OutcomeBudgetExhausted {
					mu.Lock()
					defer mu.Unlock()
					refused++
					if f.Response == nil || f.Response.Status != 503 {
						t.Error("the refusal hides the answer")
					}
				}
			})
		}
		all.Wait()
		if retries := sent - callers; retries > callers/5 || retries == 0 {
			t.Errorf("%d retries of %d first attempts, want at most a fifth", retries, callers)
		}
		if refused < callers*4/5 {
			t.Errorf("%d calls were refused by the budget", refused)
		}
	})
}

func TestSlotIsHeldUntilTheAttemptIsOverAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := worked(t)
		p.Concurrency = policy.Concurrency{MaxInFlight: 1, MaxPending: 1, PendingWait: 100 * time.Millisecond}
		seen := &notices{}
		s := &shop{engine: engine.New(senderFunc(func(_ context.Context, _ *call.Call, _ call.Attempt) call.Result {
			time.Sleep(50 * time.Millisecond)
			return status(200)
		}), seen, guard.New(guard.Config{}), engine.NewOrigins()), policy: p}
		first := make(chan call.Final, 1)
		go func() { first <- s.call(t.Context(), "one", "api.example.com", 10*time.Second) }()
		synctest.Wait()
		waiting := make(chan call.Final, 1)
		go func() { waiting <- s.call(t.Context(), "two", "api.example.com", 10*time.Second) }()
		synctest.Wait()
		ended(t, s.call(t.Context(), "three", "api.example.com", 10*time.Second), call.OutcomeOverloaded, call.ReasonConcurrencyLimit, 0)
		ended(t, <-first, call.OutcomeSuccess, call.ReasonSuccess, 1)
		f := <-waiting
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 1)
		if a := f.Attempts[0]; a.Queued != 50*time.Millisecond || a.Offset != 50*time.Millisecond {
			t.Errorf("queued %s, offset %s, want 50ms", a.Queued, a.Offset)
		}
		// What was told: the wait of the second call, whose end nobody knew then, and the refusal of the third.
		if len(seen.all) != 2 || seen.all[0].What != engine.WhatWait || seen.all[0].Wait != 100*time.Millisecond || seen.all[0].Kind != call.KindPrimary ||
			seen.all[0].Reason != call.ReasonConcurrencyLimit || seen.all[1].What != engine.WhatRefusal || seen.all[1].Reason != call.ReasonConcurrencyLimit {
			t.Errorf("noticed %+v", seen.all)
		}
	})
}

func TestVanishedWaiterLeavesNoSlotBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := worked(t)
		p.Concurrency = policy.Concurrency{MaxInFlight: 1, MaxPending: 8, PendingWait: time.Second}
		s := newShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
			time.Sleep(200 * time.Millisecond)
			return status(200)
		}))
		var all sync.WaitGroup
		all.Go(func() { s.call(t.Context(), "one", "api.example.com", 10*time.Second) })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan call.Final, 1)
		all.Go(func() { gone <- s.call(ctx, "two", "api.example.com", 10*time.Second) })
		synctest.Wait()
		cancel()
		ended(t, <-gone, call.OutcomeCancelled, call.ReasonCancelled, 0)
		all.Wait()
		ended(t, s.call(t.Context(), "three", "api.example.com", 10*time.Second), call.OutcomeSuccess, call.ReasonSuccess, 1)
	})
}

func TestPanicLeavesNothingTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := worked(t)
		p.Concurrency = policy.Concurrency{MaxInFlight: 1}
		broken := true
		s := newShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
			if broken {
				panic("of the test")
			}
			return status(200)
		}))
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			s.call(t.Context(), "one", "api.example.com", time.Second)
		}()
		broken = false
		ended(t, s.call(t.Context(), "one", "api.example.com", time.Second), call.OutcomeSuccess, call.ReasonSuccess, 1)
	})
}

// A 503 holds its origin for everybody, a 429 for the credential it was said to.
func TestHoldsAreByOriginOrByCredential(t *testing.T) {
	retryAfter := call.Header{Name: "Retry-After", Value: "4"}
	token := func(v string) call.Header { return call.Header{Name: "Authorization", Value: v} }
	for name, row := range map[string]struct {
		code  int
		other call.Outcome // what another credential meets meanwhile
	}{
		"503": {503, call.OutcomeThrottled},
		"429": {429, call.OutcomeSuccess},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := worked(t)
				p.Retry.MaxAttempts = 1
				first := true
				s := newShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
					if first {
						first = false
						return status(row.code, retryAfter)
					}
					return status(200)
				}))
				const host = "api.example.com"
				ended(t, s.call(t.Context(), "one", host, time.Minute, token("a")), call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, 1)
				f := s.call(t.Context(), "two", host, time.Second, token("a"))
				ended(t, f, call.OutcomeThrottled, call.ReasonOriginHeld, 0)
				if f.RetryAfter != 4*time.Second {
					t.Errorf("retry after %s, want 4s", f.RetryAfter)
				}
				if f := s.call(t.Context(), "two", host, time.Second, token("b")); f.Outcome != row.other {
					t.Errorf("another credential: %s, want %s", f.Outcome, row.other)
				}
				f = s.call(t.Context(), "two", host, time.Minute, token("a"))
				ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 1)
				if f.Elapsed != 4*time.Second || f.Attempts[0].Waited != 4*time.Second {
					t.Errorf("took %s, want the 4s of the hold", f.Elapsed)
				}
			})
		})
	}
}

func TestPolicyMaySwitchHoldsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := worked(t)
		p.Retry.MaxAttempts, p.Retry.Hold = 1, false
		s := newShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
			return status(503, call.Header{Name: "Retry-After", Value: "4"})
		}))
		for range 2 {
			ended(t, s.call(t.Context(), "one", "api.example.com", time.Second), call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, 1)
		}
	})
}

// Policies with different settings of one block do not mix; with equal ones they share.
func TestStateIsPerOriginAndSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := worked(t)
		p.Retry.MaxAttempts = 1
		p.Breaker.ConsecutiveFailures, p.Breaker.MinDistinctCallers = 1, 1
		s := newShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result { return status(500) }))
		ended(t, s.call(t.Context(), "one", "api.example.com", time.Second), call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, 1)
		ended(t, s.call(t.Context(), "one", "api.example.com", time.Second), call.OutcomeBreakerOpen, call.ReasonBreakerOpen, 0)
		equal := *p
		equal.Attempt.Timeout = time.Second // another block
		s.policy = &equal
		ended(t, s.call(t.Context(), "one", "api.example.com", time.Second), call.OutcomeBreakerOpen, call.ReasonBreakerOpen, 0)
		other := *p
		other.Breaker.ConsecutiveFailures = 100
		s.policy = &other
		ended(t, s.call(t.Context(), "one", "api.example.com", time.Second), call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, 1)
	})
}

// throttling is a policy under which one attempt's 503 holds its origin.
func throttling(t *testing.T) *policy.Effective {
	t.Helper()
	p := worked(t)
	p.Retry.MaxAttempts, p.Retry.Hold, p.Retry.HoldMax, p.Retry.RetryAfterMax = 1, true, time.Minute, 10*time.Second
	return p
}

func TestQueuedCallsSeeAHoldThatBeganMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := throttling(t)
		p.Concurrency = policy.Concurrency{MaxInFlight: 1, MaxPending: 20, PendingWait: time.Second}
		var sends atomic.Int32
		s := newShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
			sends.Add(1)
			time.Sleep(50 * time.Millisecond)
			return status(503, call.Header{Name: "Retry-After", Value: "5"})
		}))
		var held atomic.Int32
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				if s.call(t.Context(), fmt.Sprint("caller", i), "h.example.com", 4*time.Second).Reason == call.ReasonOriginHeld {
					held.Add(1)
				}
			})
		}
		all.Wait()
		if sends.Load() != 1 || held.Load() != 5 {
			t.Errorf("%d sent and %d held, want 1 and 5", sends.Load(), held.Load())
		}
	})
}

func TestHeldCallersDoNotReturnTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := throttling(t)
		p.Concurrency = policy.Concurrency{}
		p.Retry.Backoff.Jitter = backoff.JitterFull
		var mu sync.Mutex
		sent := map[time.Time]int{}
		first := true
		s := newShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
			mu.Lock()
			defer mu.Unlock()
			if first {
				first = false
				return status(503, call.Header{Name: "Retry-After", Value: "2"})
			}
			sent[time.Now()]++
			return status(200)
		}))
		s.call(t.Context(), "first", "h.example.com", 20*time.Second)
		over := time.Now().Add(2 * time.Second)
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() { s.call(t.Context(), fmt.Sprint("caller", i%4), "h.example.com", 20*time.Second) })
		}
		all.Wait()
		if len(sent) < 100 {
			t.Errorf("200 calls returned in %d moments", len(sent))
		}
		for at := range sent {
			if at.Before(over) || at.After(over.Add(500*time.Millisecond)) {
				t.Errorf("sent %s after the hold's end", at.Sub(over))
			}
		}
	})
}

// A ticket's number serves another attempt once it is settled: a call that ends must not settle it again.
func TestCallsThatEndLeaveTheTicketsOfOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := worked(t)
		p.Retry.MaxAttempts, p.Retry.Hold = 2, false
		p.Retry.Backoff.Base, p.Retry.Backoff.Cap, p.Retry.Backoff.Jitter = 10*time.Second, 10*time.Second, backoff.JitterNone
		p.Concurrency = policy.Concurrency{}
		p.Breaker.ConsecutiveFailures, p.Breaker.MinRequests, p.Breaker.MinDistinctCallers = 0, 30, 1
		p.Budget.Window = &policy.BudgetWindow{Ratio: 10, MinPerSecond: 1000, Period: 10 * time.Second}
		s := newShop(t, p, senderFunc(func(_ context.Context, c *call.Call, _ call.Attempt) call.Result {
			switch c.Caller {
			case "slow": // keeps its number
				time.Sleep(9 * time.Second)
				return status(200)
			case "late":
				time.Sleep(time.Second)
			}
			return status(503)
		}))
		var all sync.WaitGroup
		many := func(ctx context.Context, n int, caller string) {
			for range n {
				all.Go(func() { s.call(ctx, caller, "h.example.com", 30*time.Second) })
			}
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		many(ctx, 19, "early") // fail, and back off
		many(t.Context(), 237, "slow")
		many(t.Context(), 19, "late")
		cancel()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		if f := s.call(t.Context(), "after", "h.example.com", 5*time.Second); f.Outcome != call.OutcomeBreakerOpen {
			t.Errorf("%s after 38 failures, want the breaker open", f.Outcome)
		}
		all.Wait()
	})
}
