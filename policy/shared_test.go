package policy_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/sallyport/sallyport/policy"
)

func TestSharedIsMadeOnceForAllCalls(t *testing.T) {
	r := policy.Rule{Name: "policies/x", Revision: 7}
	r.Hedge.Trigger = &policy.HedgeTriggerRule{Delay: new(time.Second)}
	e := compile(t, r).Match(callTo(t, "GET", "https://example.com/", ""))
	s := e.Shared()
	if e.Shared() != s {
		t.Error("made anew")
	}
	window := policy.BudgetSettings{Window: policy.BudgetWindow{Ratio: 0.2, Period: 10 * time.Second, MinPerSecond: 1}, CallerMaxShare: 0.5}
	if s.Policy != "policies/x@7" || s.Breaker.Value() != e.Breaker || s.Budget.Value() != window || s.Concurrency.Value() != e.Concurrency ||
		!s.Hedged || s.Hedge.Value() != (policy.HedgeSettings{Delay: time.Second, MaxExtra: 0.05}) {
		t.Errorf("%+v: breaker %+v, budget %+v", s, s.Breaker.Value(), s.Budget.Value())
	}
}

func TestSharedOfEqualSettingsIsEqual(t *testing.T) {
	c := callTo(t, "GET", "https://example.com/", "")
	plain := compile(t).Match(c).Shared().SharedSettings
	for name, change := range map[string]func(r *policy.Rule){
		"breaker":     func(r *policy.Rule) { r.Breaker.ConsecutiveFailures = new(uint32(9)) },
		"budget":      func(r *policy.Rule) { r.Budget.Limit = &policy.BudgetLimitRule{TokenBucket: &policy.TokenBucketRule{}} },
		"share":       func(r *policy.Rule) { r.Budget.CallerMaxShare = new(1.0) },
		"concurrency": func(r *policy.Rule) { r.Concurrency.MaxInFlight = new(uint32(9)) },
		"hedge":       func(r *policy.Rule) { r.Hedge.MaxHedges = new(uint32(1)) },
	} {
		r := policy.Rule{Name: "policies/x"}
		change(&r)
		if compile(t, r).Match(c).Shared().SharedSettings == plain {
			t.Errorf("%s: no difference", name)
		}
	}
	r := policy.Rule{Name: "policies/x"}
	r.Attempt.Timeout, r.Hedge.Methods = new(time.Second), []string{"PUT"}
	r.Hedge.Enabled = new(false)
	if compile(t, r).Match(c).Shared().SharedSettings != plain {
		t.Error("what is not shared makes a difference")
	}
}

// The tests of the engine change copies; what they were copied from must not rule them.
func TestChangedCopyHasItsOwnSettings(t *testing.T) {
	e := compile(t).Match(callTo(t, "GET", "https://example.com/", ""))
	changed := *e
	changed.Breaker.ConsecutiveFailures = 99
	if changed.Shared().Breaker.Value().ConsecutiveFailures != 99 || e.Shared().Breaker.Value().ConsecutiveFailures != 5 {
		t.Error("the copy is ruled by the original, or the other way round")
	}
}

// The state of an origin keeps them, and outlives many tables.
func TestSharedKeepsNoTable(t *testing.T) {
	s, gone := func() (*policy.Shared, weak.Pointer[policy.Table]) {
		table := compile(t)
		return table.Match(callTo(t, "GET", "https://example.com/", "")).Shared(), weak.Make(table)
	}()
	runtime.GC()
	runtime.GC()
	if gone.Value() != nil {
		t.Error("the table is still there")
	}
	runtime.KeepAlive(s)
}
