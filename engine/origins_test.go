package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// sharedPolicy has the shared blocks of the built-in policy.
func sharedPolicy(t testing.TB) *policy.Effective {
	t.Helper()
	return ruled(t)
}

// ruled is what holds for a call under rules.
func ruled(t testing.TB, rules ...policy.Rule) *policy.Effective {
	t.Helper()
	table, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table.Match(&call.Call{Method: "GET", Target: call.Target{Scheme: "https", Host: "api.example.com", Port: 443, Path: "/"}})
}

// use is a call's whole contact with what is shared: enter, first attempt, slot, ticket, success, leave.
func use(o *Origins, c *call.Call, p *policy.Effective, now time.Time) {
	s := o.enter(c, p, now)
	s.budget.Deposit(now, c.Caller)
	slot, _, _ := s.bulkhead.Enter(now, c.Caller, 0, time.Second)
	ticket, _ := s.breaker.Admit(now, breaker.Attempt{Caller: c.Caller, Repeatable: true, Timeout: time.Second}, 0.5)
	ticket.Settle(now, breaker.Result{Kind: breaker.OK, Answered: true, Latency: time.Millisecond}, 0.5)
	slot.Release()
	s.budget.Succeeded(now)
	s.leave()
}

// BenchmarkShared is what a call without a retry pays for what it shares with all others.
func BenchmarkShared(b *testing.B) {
	p, now := sharedPolicy(b), time.Now()
	c := &call.Call{Caller: "one", Target: call.Target{Origin: "https://api.example.com:443"}}
	b.Run("one at a time", func(b *testing.B) {
		o := NewOrigins()
		b.ReportAllocs()
		for b.Loop() {
			use(o, c, p, now)
		}
	})
	b.Run("64 on one origin", func(b *testing.B) {
		o := NewOrigins()
		b.SetParallelism(32)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				use(o, c, p, now)
			}
		})
	})
	b.Run("10000 origins", func(b *testing.B) {
		o := NewOrigins()
		calls := make([]*call.Call, 10_000)
		for i := range calls {
			calls[i] = &call.Call{Caller: "one", Target: call.Target{Origin: fmt.Sprintf("https://host%d.example.com:443", i)}}
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			use(o, calls[i%len(calls)], p, now)
		}
	})
}
