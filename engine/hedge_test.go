package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

const hedgeDelay = 100 * time.Millisecond

// hedged is a policy that hedges after hedgeDelay, as often as it may.
func hedged(t *testing.T) *policy.Effective {
	t.Helper()
	p := worked(t)
	p.Attempt.Timeout = 10 * time.Second
	p.Retry.MaxAttempts = 3
	p.Hedge = policy.Hedge{Enabled: true, Delay: hedgeDelay, MaxHedges: 1, MaxExtra: 1, Methods: []string{"GET"}}
	p.Budget = policy.Budget{Window: &policy.BudgetWindow{Ratio: 1, Period: 10 * time.Second, MinPerSecond: 10}, CallerMaxShare: 1}
	return p
}

// slowFirst takes long for the first attempt of each call and no time for the others. Losers end when they are cancelled.
func slowFirst(long time.Duration) senderFunc {
	return func(ctx context.Context, _ *call.Call, a call.Attempt) call.Result {
		if a.Number > 1 {
			return status(200)
		}
		return within(ctx, long, status(200))
	}
}

// within is the result after that long, unless the attempt is cancelled before.
func within(ctx context.Context, long time.Duration, r call.Result) call.Result {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
		return r
	case <-ctx.Done():
		return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureCancelled, Detail: "the caller went away"}
	}
}

func TestHedgeOvertakesASlowAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged(t)
		p.Concurrency = policy.Concurrency{MaxInFlight: 2}
		s := newShop(t, p, slowFirst(forever))
		for range 20 { // every slot comes back, and no cancelled loser opens the breaker
			f := s.call(t.Context(), "one", "h.example.com", time.Minute)
			ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 2)
			first, second := f.Attempts[0], f.Attempts[1]
			if f.Elapsed != hedgeDelay || second.Kind != call.KindHedge || second.Offset != hedgeDelay || second.Waited != 0 {
				t.Fatalf("after %s: a %s at %s that waited %s", f.Elapsed, second.Kind, second.Offset, second.Waited)
			}
			if first.Result.Failure != call.FailureCancelled || first.Decision != (call.Decision{Verdict: call.VerdictNone, Reason: call.ReasonSuperseded}) {
				t.Fatalf("the loser: %s, %+v", first.Result.Failure, first.Decision)
			}
			if first.Result.Detail != "another attempt was answered first" || first.Duration != hedgeDelay {
				t.Fatalf("the loser: %q after %s", first.Result.Detail, first.Duration)
			}
			if f.Sends != 2 || f.Effect != call.EffectAnswered {
				t.Fatalf("%d sends, %s", f.Sends, f.Effect)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestFastAttemptGetsNoHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, hedged(t), slowFirst(hedgeDelay-1))
		f := s.call(t.Context(), "one", "h.example.com", time.Minute)
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 1)
	})
}

// TestDoWaitsForTheLoser: what a loser holds is held until it has truly ended, and the call is not over before.
func TestDoWaitsForTheLoser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lingers = 30 * time.Millisecond
		s := newShop(t, hedged(t), senderFunc(func(ctx context.Context, _ *call.Call, a call.Attempt) call.Result {
			if a.Number == 2 {
				return status(200)
			}
			r := within(ctx, forever, status(200))
			time.Sleep(lingers)
			return r
		}))
		f := s.call(t.Context(), "one", "h.example.com", time.Minute)
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 2)
		if f.Elapsed != hedgeDelay+lingers {
			t.Errorf("over after %s", f.Elapsed)
		}
	})
}

// notices keeps what the engine noticed.
type notices struct {
	traced
	mu  sync.Mutex // protects all
	all []engine.Notice
}

func (n *notices) Noticed(_ context.Context, _ time.Time, notice engine.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, notice)
}

// of gives those of one kind.
func (n *notices) of(what engine.What) []engine.Notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.all), func(other engine.Notice) bool { return other.What != what })
}

// A refused hedge costs nothing, fails nothing and is told; the call goes on with what is in flight.
func TestRefusedHedgeFailsNothing(t *testing.T) {
	const long = 400 * time.Millisecond
	for name, row := range map[string]struct {
		change func(*policy.Effective)
		before func(*testing.T, *shop)
		reason call.Reason
	}{
		"retry budget": {
			change: func(p *policy.Effective) { p.Budget.Window = &policy.BudgetWindow{Period: time.Minute} },
			reason: call.ReasonBudgetExhausted,
		},
		"max_extra": {
			change: func(p *policy.Effective) { p.Hedge.MaxExtra = 0 },
			before: func(t *testing.T, s *shop) {
				t.Helper()
				ended(t, s.call(t.Context(), "one", "h.example.com", time.Minute), call.OutcomeSuccess, call.ReasonSuccess, 2)
			},
			reason: call.ReasonBudgetExhausted,
		},
		"concurrency": {
			change: func(p *policy.Effective) {
				p.Concurrency = policy.Concurrency{MaxInFlight: 1, MaxPending: 100, PendingWait: time.Second}
			},
			reason: call.ReasonConcurrencyLimit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, seen := hedged(t), &notices{}
				row.change(p)
				s := &shop{engine: engine.New(slowFirst(long), seen, guard.New(guard.Config{}), engine.NewOrigins()), policy: p}
				if row.before != nil {
					row.before(t, s)
				}
				f := s.call(t.Context(), "one", "h.example.com", time.Minute)
				ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 1)
				if f.Elapsed != long {
					t.Errorf("took %s", f.Elapsed)
				}
				refused := seen.of(engine.WhatRefusal)
				if len(refused) != 1 || refused[0].Kind != call.KindHedge || refused[0].Reason != row.reason {
					t.Errorf("noticed %+v", seen.all)
				}
			})
		})
	}
}

// An origin that is not well gets no extra load: none while its breaker is not closed, none while it is held.
func TestOriginThatIsNotWellGetsNoHedge(t *testing.T) {
	for name, answer := range map[string]call.Result{
		"breaker open": status(500),
		"held":         status(503, call.Header{Name: "Retry-After", Value: "5"}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedged(t)
				p.Retry.MaxAttempts, p.Hedge.MaxHedges = 2, 1
				p.Breaker.ConsecutiveFailures, p.Breaker.MinDistinctCallers = 1, 1
				if name == "held" {
					p.Breaker.ConsecutiveFailures, p.Breaker.MinRequests = 0, 1000
				}
				s := newShop(t, p, senderFunc(func(ctx context.Context, c *call.Call, a call.Attempt) call.Result {
					if c.Caller == "slow" && a.Number == 1 {
						return within(ctx, time.Second, status(200))
					}
					return answer
				}))
				slow := make(chan call.Final, 1)
				go func() { slow <- s.call(t.Context(), "slow", "h.example.com", time.Minute) }()
				time.Sleep(hedgeDelay / 2)
				s.call(t.Context(), "other", "h.example.com", 10*time.Millisecond)
				ended(t, <-slow, call.OutcomeSuccess, call.ReasonSuccess, 1)
			})
		})
	}
}

// What a refused hedge took is handed back: the budget still has its one retry.
func TestRefusedHedgeHandsBackItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged(t)
		p.Concurrency = policy.Concurrency{MaxInFlight: 1}
		p.Budget.Window = &policy.BudgetWindow{Period: 10 * time.Second, MinPerSecond: 0.1}
		s := newShop(t, p, senderFunc(func(ctx context.Context, _ *call.Call, a call.Attempt) call.Result {
			if a.Number == 1 {
				return within(ctx, 2*hedgeDelay, status(503))
			}
			return status(200)
		}))
		f := s.call(t.Context(), "one", "h.example.com", time.Minute)
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 2)
		if f.Attempts[1].Kind != call.KindRetry {
			t.Errorf("kind %s", f.Attempts[1].Kind)
		}
	})
}

// Hedges stay at most 1 + max_extra × first attempts of the last 10 s (semantics.md §8).
func TestHedgesStayWithinTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged(t)
		p.Hedge.MaxExtra = 0.05
		s := newShop(t, p, slowFirst(2*hedgeDelay))
		var hedges atomic.Int32
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				f := s.call(t.Context(), fmt.Sprint("caller", i%7), "h.example.com", time.Minute)
				hedges.Add(int32(len(f.Attempts) - 1))
			})
		}
		all.Wait()
		if got := hedges.Load(); got != 1+10 {
			t.Errorf("%d hedges of 200 first attempts, want 11", got)
		}
	})
}

// The percentile is the origin's own, and nothing is hedged before a hundred answers are known.
func TestHedgeWaitsForTheOriginsOwnPercentile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged(t)
		p.Hedge.Delay, p.Hedge.Percentile = 0, 90
		var calls atomic.Int32
		s := newShop(t, p, senderFunc(func(ctx context.Context, _ *call.Call, a call.Attempt) call.Result {
			n := calls.Add(1)
			switch {
			case a.Kind == call.KindHedge:
				return status(200)
			case n > 100:
				return within(ctx, time.Second, status(200))
			}
			return within(ctx, time.Duration(n)*time.Millisecond, status(200)) // 1 to 100 ms
		}))
		for range 99 {
			ended(t, s.call(t.Context(), "one", "h.example.com", time.Minute), call.OutcomeSuccess, call.ReasonSuccess, 1)
		}
		ended(t, s.call(t.Context(), "one", "h.example.com", time.Minute), call.OutcomeSuccess, call.ReasonSuccess, 1)
		f := s.call(t.Context(), "one", "h.example.com", time.Minute)
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 2)
		if f.Attempts[1].Offset != 90*time.Millisecond {
			t.Errorf("hedged after %s, want the 90th percentile", f.Attempts[1].Offset)
		}
	})
}

func TestVanishedCallerEndsAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, hedged(t), senderFunc(func(ctx context.Context, _ *call.Call, _ call.Attempt) call.Result {
			return within(ctx, forever, status(200))
		}))
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(2*hedgeDelay, cancel).Stop()
		f := s.call(ctx, "one", "h.example.com", time.Minute)
		ended(t, f, call.OutcomeCancelled, call.ReasonCancelled, 2)
		if f.Elapsed != 2*hedgeDelay {
			t.Errorf("ended after %s", f.Elapsed)
		}
	})
}

func TestHedgedCallEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{turns: []turn{{takes: forever}}}
		s := newShop(t, hedged(t), senderFunc(func(ctx context.Context, c *call.Call, a call.Attempt) call.Result {
			one := &upstream{turns: u.turns}
			return one.Send(ctx, c, nil, a)
		}))
		f := s.call(t.Context(), "one", "h.example.com", time.Second)
		ended(t, f, call.OutcomeDeadlineExceeded, call.ReasonDeadline, 2)
		if f.Elapsed != time.Second {
			t.Errorf("ended after %s", f.Elapsed)
		}
	})
}

// A panic of one attempt ends the others, and nothing stays taken; it arrives where the call was made, with the stack of its origin.
func TestPanicBesideAnotherAttemptLeavesNothingTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged(t)
		p.Concurrency = policy.Concurrency{MaxInFlight: 2}
		broken := true
		s := newShop(t, p, senderFunc(func(ctx context.Context, _ *call.Call, a call.Attempt) call.Result {
			if a.Number == 2 && broken {
				panic("of the test")
			}
			return within(ctx, 2*hedgeDelay, status(200))
		}))
		func() {
			defer func() {
				text := fmt.Sprint(recover())
				if !strings.HasPrefix(text, "of the test\n") || !strings.Contains(text, "hedge_test.go") {
					t.Errorf("recovered %q", text)
				}
			}()
			s.call(t.Context(), "one", "h.example.com", time.Minute)
		}()
		broken = false
		ended(t, s.call(t.Context(), "one", "h.example.com", time.Minute), call.OutcomeSuccess, call.ReasonSuccess, 2)
	})
}

// fragile panics when it hears of the breaker, which is while an attempt that has landed settles.
type fragile struct {
	traced
	whole *bool
}

func (f fragile) Noticed(_ context.Context, _ time.Time, n engine.Notice) {
	if n.What == engine.WhatMove && !*f.whole {
		panic("of the test")
	}
}

// The same where the panic comes after the attempt, from whoever is told what became of it.
func TestPanicAfterALandingLeavesNothingTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged(t)
		p.Concurrency = policy.Concurrency{MaxInFlight: 1}
		p.Breaker.ConsecutiveFailures, p.Breaker.MinDistinctCallers, p.Breaker.OpenJitter = 1, 1, 0
		whole := false
		sender := senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
			if whole {
				return status(200)
			}
			return status(500)
		})
		s := &shop{engine: engine.New(sender, fragile{whole: &whole}, guard.New(guard.Config{}), engine.NewOrigins()), policy: p}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			s.call(t.Context(), "one", "h.example.com", time.Minute)
		}()
		whole = true
		time.Sleep(time.Second) // the cooldown
		ended(t, s.call(t.Context(), "one", "h.example.com", time.Minute), call.OutcomeSuccess, call.ReasonSuccess, 1)
	})
}

// An answer that is at hand when the next hedge is due goes first: nothing more is sent.
func TestAnswerAtHandGoesBeforeAHedge(t *testing.T) {
	for range 50 { // a select between the two would pick either
		synctest.Test(t, func(t *testing.T) {
			p := hedged(t)
			p.Hedge.MaxHedges = 2
			sender := senderFunc(func(ctx context.Context, _ *call.Call, a call.Attempt) call.Result {
				if a.Number == 1 {
					return within(ctx, 3*hedgeDelay/2, status(200))
				}
				return within(ctx, forever, status(200))
			})
			s := &shop{engine: engine.New(sender, starved{}, guard.New(guard.Config{}), engine.NewOrigins()), policy: p}
			ended(t, s.call(t.Context(), "one", "h.example.com", time.Minute), call.OutcomeSuccess, call.ReasonSuccess, 2)
		})
	}
}

// starved holds the goroutine of the call up when its second attempt begins, as a machine with too much to do would.
type starved struct{ traced }

func (s starved) AttemptStarted(ctx context.Context, c *call.Call, a *call.Attempt) {
	s.traced.AttemptStarted(ctx, c, a)
	if a.Number == 2 {
		time.Sleep(3 * hedgeDelay)
	}
}
