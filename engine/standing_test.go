package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
	"github.com/sallyport/sallyport/call"
)

func callOf(host string) *call.Call {
	return &call.Call{Caller: "one", Target: call.Target{Host: host, Origin: "https://" + host + ":443"}}
}

// Every origin is told once of each kind, with how it stands, and whoever listens may call meanwhile.
func TestStandingTellsEveryOriginOnce(t *testing.T) {
	const origins = 1000
	p, now, o := sharedPolicy(t), time.Now(), NewOrigins()
	for i := range origins {
		use(o, callOf(fmt.Sprintf("host%d.example.com", i)), p, now)
	}
	sick := callOf("host7.example.com")
	s := o.enter(sick, p, now)
	defer s.leave()
	slot, _, _ := s.bulkhead.Enter(now, "one", 0, time.Second)
	defer slot.Release()
	for range 5 {
		ticket, _ := s.breaker.Admit(now, breaker.Attempt{Caller: "one"}, 0.5)
		ticket.Settle(now, breaker.Result{Kind: breaker.Failed}, 0.5)
	}
	var breakers, open, budgets, bulkheads []string
	o.EachBreaker(now, func(origin string, s breaker.State) {
		use(o, sick, p, now) // no lock is held: else this never ends
		breakers = append(breakers, origin)
		if s == breaker.Open {
			open = append(open, origin)
		}
	})
	o.EachBudget(now, func(origin string, s budget.Snapshot) {
		use(o, sick, p, now)
		budgets = append(budgets, origin)
		if s.Left < 1 {
			t.Errorf("%s has %v left", origin, s.Left)
		}
	})
	o.EachBulkhead(func(origin string, s bulkhead.Snapshot) {
		use(o, sick, p, now)
		bulkheads = append(bulkheads, origin)
		if want := origin == sick.Target.Origin; (s.InFlight == 1) != want {
			t.Errorf("%s has %d in flight", origin, s.InFlight)
		}
	})
	for kind, seen := range map[string][]string{"breakers": breakers, "budgets": budgets, "bulkheads": bulkheads} {
		slices.Sort(seen)
		if n := len(slices.Compact(slices.Clone(seen))); n != origins || len(seen) != origins {
			t.Errorf("%s: %d, %d different ones", kind, len(seen), n)
		}
	}
	if !slices.Equal(open, []string{sick.Target.Origin}) {
		t.Errorf("open: %v", open)
	}
}

func TestStandingTellsTheHoldsThatAreNotOver(t *testing.T) {
	o, now := NewOrigins(), time.Now()
	const held = 3 * copiedAtOnce
	for i := range held {
		o.holds.hold(now, holdKey{origin: fmt.Sprint("origin", i)}, now.Add(time.Minute))
	}
	o.holds.hold(now, holdKey{"origin0", "caller:one"}, now.Add(time.Minute))
	o.holds.hold(now, holdKey{origin: "over"}, now.Add(time.Millisecond))
	seen, credentials := map[string]bool{}, 0
	o.EachHold(now.Add(time.Second), func(origin string, credential bool) {
		if credential {
			credentials++
			return
		}
		seen[origin] = true
	})
	if len(seen) != held || seen["over"] || credentials != 1 {
		t.Errorf("%d origins, over: %t, %d credentials", len(seen), seen["over"], credentials)
	}
	o.EachHold(now.Add(time.Hour), func(string, bool) { t.Error("a hold that is over") })
}

// Only what sets or prolongs a hold is one.
func TestHoldTellsWhetherItChangedAnything(t *testing.T) {
	h, now, k := newHolds(), time.Now(), holdKey{origin: "o"}
	for i, row := range []struct {
		until time.Duration
		want  bool
	}{{time.Second, true}, {time.Second, false}, {time.Millisecond, false}, {2 * time.Second, true}} {
		if got := h.hold(now, k, now.Add(row.until)); got != row.want {
			t.Errorf("hold %d: %t", i, got)
		}
	}
}

// BenchmarkStanding is one look at ten thousand origins, and what a call pays while somebody looks all the time.
func BenchmarkStanding(b *testing.B) {
	p, now, o := sharedPolicy(b), time.Now(), NewOrigins()
	for i := range originsMax {
		c := callOf(fmt.Sprintf("host%d.example.com", i))
		use(o, c, p, now)
		o.holds.hold(now, holdKey{origin: c.Target.Origin}, now.Add(time.Hour))
	}
	look := func() {
		o.EachBreaker(now, func(string, breaker.State) {})
		o.EachBudget(now, func(string, budget.Snapshot) {})
		o.EachBulkhead(func(string, bulkhead.Snapshot) {})
		o.EachHold(now, func(string, bool) {})
	}
	c := callOf("host1.example.com")
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			look()
		}
	})
	for _, looked := range []bool{false, true} {
		b.Run(fmt.Sprint("call, looked at ", looked), func(b *testing.B) {
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for looked {
					select {
					case <-stop:
						return
					default:
						look()
					}
				}
			}()
			var longest time.Duration
			for b.Loop() {
				begin := time.Now()
				use(o, c, p, now)
				longest = max(longest, time.Since(begin))
			}
			close(stop)
			<-stopped
			b.ReportMetric(float64(longest.Microseconds()), "µs-longest")
		})
	}
}
