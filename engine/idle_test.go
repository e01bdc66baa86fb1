package engine

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// busy is an origin's past: so many callers at once, each of which made so many attempts, repeated some and hedged some.
type busy struct {
	callers, attempts, retries, hedges, moves int
	hedge                                     policy.Hedge
}

// policy is one under which all of it may be.
func (u busy) policy(tb testing.TB) *policy.Effective {
	tb.Helper()
	r := policy.Rule{Name: policy.DefaultName, Revision: 1}
	r.Budget.Limit = &policy.BudgetLimitRule{Window: &policy.BudgetWindowRule{Ratio: new(1.0), Period: new(10 * time.Second), MinPerSecond: new(10.0)}}
	if u.hedge.Enabled {
		r.Hedge = policy.HedgeRule{MaxExtra: new(1.0), MaxHedges: new(uint32(1)), Trigger: &policy.HedgeTriggerRule{}}
		if u.hedge.Percentile > 0 {
			r.Hedge.Trigger.Percentile = &u.hedge.Percentile
		} else {
			r.Hedge.Trigger.Delay = &u.hedge.Delay
		}
	}
	return ruled(tb, r)
}

// play has every caller make all its attempts together, the first ones before the extra ones, and leaves the origin to itself.
func (u busy) play(tb testing.TB, o *Origins, name string, p *policy.Effective, now time.Time) {
	tb.Helper()
	calls := make([]*call.Call, u.callers)
	origins := make([]origin, u.callers)
	for i := range calls {
		calls[i] = &call.Call{Caller: fmt.Sprintf("spiffe://example.com/ns/shop/sa/caller%d", i), Target: call.Target{Origin: name}}
		origins[i] = o.enter(calls[i], p, now)
	}
	var slots []bulkhead.Slot
	var tickets []breaker.Ticket
	var tokens []budget.Token
	check := func(err error) {
		if err != nil {
			tb.Helper()
			tb.Fatal(err)
		}
	}
	start := func(i int) {
		slot, _, err := origins[i].bulkhead.Enter(now, calls[i].Caller, 0, time.Second)
		check(err)
		ticket, err := origins[i].breaker.Admit(now, breaker.Attempt{Caller: calls[i].Caller, Repeatable: true, Timeout: time.Second}, 0.5)
		check(err)
		slots, tickets = append(slots, slot), append(tickets, ticket)
	}
	pay := func(i int, b *budget.Budget) {
		token, err := b.Withdraw(now, calls[i].Caller)
		check(err)
		tokens = append(tokens, token)
	}
	land := func() {
		for i := range tickets {
			took := time.Duration(i+1) * 1234 * time.Microsecond
			tickets[i].Settle(now, breaker.Result{Kind: breaker.OK, Answered: true, Latency: took}, 0.5)
			if h := origins[0].hedging; h != nil {
				h.learn(now, took, told{success: true})
			}
			slots[i].Release()
		}
		for i := range tokens {
			tokens[i].Spend(now)
		}
		slots, tickets, tokens = nil, nil, nil
	}
	for range u.attempts {
		for i := range calls {
			origins[i].budget.Deposit(now, calls[i].Caller)
			if h := origins[i].hedging; h != nil {
				h.allowance.Deposit(now, calls[i].Caller)
			}
			start(i)
		}
		land()
	}
	for i := range calls {
		for range u.retries {
			origins[i].budget.Failed(now)
			pay(i, origins[i].budget)
			start(i)
		}
		for range u.hedges {
			pay(i, origins[i].hedging.allowance)
			pay(i, origins[i].budget)
			start(i)
		}
	}
	land()
	for range u.moves {
		t := origins[0].breaker.Reset(now)
		o.moved(name, &t)
	}
	for i := range origins {
		origins[i].leave()
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what lay in a pool survives the first
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestIdleOriginIsSmall: whatever an origin was called for, once nothing happens for a window it costs less than 2 KiB all told
// (semantics.md §6).
func TestIdleOriginIsSmall(t *testing.T) {
	const (
		origins = originsMax / 10
		emptier = 64  // bytes an origin costs more at the number of origins where the tables of the registry are emptiest
		often   = 125 // origins from one sweep to the next, so that their past is never in memory all at once
	)
	percentile := policy.Hedge{Enabled: true, Percentile: 95}
	rows := []struct {
		name string
		past busy
	}{
		{"called", busy{callers: 1, attempts: 3}},
		{"moves of its breaker", busy{callers: 1, attempts: 3, moves: 16}},
		{"a retry", busy{callers: 1, attempts: 3, retries: 1}},
		{"8 callers, a retry each", busy{callers: 8, attempts: 3, retries: 1}},
		{"hedged after a delay", busy{callers: 1, attempts: 3, hedges: 1, hedge: policy.Hedge{Enabled: true, Delay: time.Second}}},
		{"hedged by a percentile", busy{callers: 1, attempts: 130, hedge: percentile}},
		{"hedged by a percentile, 64 callers, a retry and a hedge each", busy{callers: 64, attempts: 2, retries: 1, hedges: 1, hedge: percentile}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			p, now := row.past.policy(t), time.Now()
			before := heap()
			o := NewOrigins()
			for i := range origins {
				row.past.play(t, o, fmt.Sprintf("https://host%d.example.com:443", i), p, now)
				if i%often == often-1 {
					now = now.Add(p.Budget.Window.Period)
					o.Sweep(now)
				}
			}
			per := (heap()-before)/origins + emptier
			t.Logf("%d bytes", per)
			if per >= 2<<10 {
				t.Errorf("%d bytes per idle origin", per)
			}
			runtime.KeepAlive(o)
		})
	}
}

// TestSweepForgetsNothingThatCounts: an origin with a past is swept while that past counts, and stands as one that never was.
func TestSweepForgetsNothingThatCounts(t *testing.T) {
	past := busy{callers: 8, attempts: 20, retries: 1, hedges: 1, hedge: policy.Hedge{Enabled: true, Percentile: 95}}
	p, start := past.policy(t), time.Now()
	c := &call.Call{Caller: "one", Target: call.Target{Origin: "https://api.example.com:443"}}
	standing := func(sweep bool) string {
		o := NewOrigins()
		past.play(t, o, c.Target.Origin, p, start)
		s := o.enter(c, p, start)
		slot, _, err := s.bulkhead.Enter(start, c.Caller, 0, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer slot.Release()
		failing, _ := s.breaker.Admit(start, breaker.Attempt{Caller: c.Caller, Repeatable: true, Timeout: time.Second}, 0.5)
		failing.Settle(start, breaker.Result{Kind: breaker.Failed}, 0.5)
		var all []any
		for _, after := range []time.Duration{0, time.Second, 10*time.Second - 1, 10 * time.Second, time.Minute} {
			now := start.Add(after)
			if sweep {
				o.Sweep(now)
			}
			hedgeAt, known := s.hedging.trigger.After()
			all = append(all, s.breaker.Snapshot(now), s.budget.Snapshot(now), s.bulkhead.Snapshot(), s.hedging.allowance.Snapshot(now), hedgeAt, known)
		}
		s.leave()
		again := o.enter(c, p, start.Add(time.Minute))
		defer again.leave()
		return fmt.Sprintf("%+v; found again: %v", all, again.breaker == s.breaker && again.budget == s.budget && again.hedging == s.hedging)
	}
	if got, want := standing(true), standing(false); got != want {
		t.Errorf("swept:\n%s\nnot swept:\n%s", got, want)
	}
}

func TestSweepBesideCalls(t *testing.T) {
	p := busy{hedge: policy.Hedge{Enabled: true, Percentile: 95}}.policy(t)
	o, start := NewOrigins(), time.Now()
	var callers, sweeper sync.WaitGroup
	done := make(chan struct{}) // closed when the callers have ended
	sweeper.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
				o.Sweep(start.Add(time.Duration(n%200) * time.Second)) // not hours ahead of the callers
			}
		}
	})
	for i := range 8 {
		callers.Go(func() {
			for n := range 200 {
				now := start.Add(time.Duration(n) * time.Second)
				c := &call.Call{Caller: fmt.Sprint("caller", i), Target: call.Target{Origin: fmt.Sprint("https://host", n%20, ".example.com:443")}}
				use(o, c, p, now)
			}
		})
	}
	callers.Wait()
	close(done)
	sweeper.Wait()
	firsts := uint64(0)
	for _, b := range o.budgets.all() {
		firsts += b.Snapshot(start).Totals.Firsts
	}
	if firsts != 8*200 {
		t.Errorf("%d first attempts of 1600", firsts)
	}
}

// BenchmarkSweep is all origins there may be, of every kind of state.
func BenchmarkSweep(b *testing.B) {
	past := busy{callers: 1, attempts: 3, hedge: policy.Hedge{Enabled: true, Percentile: 95}}
	p, now := past.policy(b), time.Now()
	o := NewOrigins()
	for i := range originsMax * 9 / 10 {
		past.play(b, o, fmt.Sprintf("https://host%d.example.com:443", i), p, now)
	}
	b.Run("all busy", func(b *testing.B) {
		for b.Loop() {
			o.Sweep(now)
		}
	})
	b.Run("all idle", func(b *testing.B) {
		for b.Loop() {
			o.Sweep(now.Add(time.Minute))
		}
	})
	b.Run("the pointers of a shard", func(b *testing.B) {
		some := make([]seen[breakerKey, *breaker.Breaker], 0, originsMax)
		for i := 0; b.Loop(); i++ {
			some = o.breakers.shard[i%shards].appendTo(some[:0])
		}
	})
}
