package engine

import (
	"slices"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
	"github.com/sallyport/sallyport/policy"
)

// The bounds of what is told of one origin.
const (
	scopesTold  = 64
	callersTold = 32
	holdsTold   = 32
	// latenciesLeast is how many successes must be known before they say anything, as for a breaker's own 95th percentile.
	latenciesLeast = 20
)

// Known is an origin in short.
type Known struct {
	// Name is scheme://host:port.
	Name string
	// Trouble is when a breaker of it last opened, a hold was set, or its budget or concurrency limit refused; the zero time: never, as far
	// as is known.
	Trouble time.Time
	// States are those of its breakers, each at the bit of its number.
	States uint8
}

// In tells whether a breaker of the origin is in a state.
func (k *Known) In(s breaker.State) bool { return k.States&(1<<s) != 0 }

// OriginState is how an origin stands.
type OriginState struct {
	// Name is scheme://host:port.
	Name string
	// Scopes are the state under each effective settings that calls had, those of the newest policies first; at most 64.
	Scopes []Scope
	// Holds are those that are not over: of everybody first, then the longest first; at most 32.
	Holds []Hold
	// Latency of its successes, over all scopes.
	Latency Latency
	// Moves are those of its breakers, the latest first; at most 16.
	Moves []breaker.Transition
	// Trouble is that of [Known].
	Trouble time.Time
}

// Scope is the state that calls under equal settings share. Another scope may show the same breaker, budget or limit: where the two
// agree in that block.
type Scope struct {
	// By are the settings, and the policy of the latest call under them.
	By          *policy.Shared
	Breaker     breaker.Snapshot
	Budget      budget.Snapshot
	Callers     []budget.CallerUse // at most 32
	Concurrency bulkhead.Snapshot
}

// Equal tells whether two states are the same in all that is of interest to an operator, or at most in that: false may be said of equal
// ones, true never of others.
func (s *OriginState) Equal(other *OriginState) bool {
	return s.Name == other.Name && s.Latency == other.Latency && s.Trouble.Equal(other.Trouble) && slices.Equal(s.Holds, other.Holds) &&
		slices.Equal(s.Moves, other.Moves) && slices.EqualFunc(s.Scopes, other.Scopes, func(a, b Scope) bool {
		return a.By.Policy == b.By.Policy && a.By.SharedSettings == b.By.SharedSettings && a.Breaker == b.Breaker && a.Budget == b.Budget &&
			a.Concurrency == b.Concurrency && slices.Equal(a.Callers, b.Callers)
	})
}

// Hold is until when somebody is held.
type Hold struct {
	// Credential: who uses one, and not everybody.
	Credential bool
	Until      time.Time
}

// Latency tells how long successes took: by nearest rank, in whole milliseconds, rounded up. Zero while fewer than 20 are known.
type Latency struct {
	Samples       int
	P50, P95, P99 time.Duration
}

// Known gives every origin there is any state of, in no order.
func (o *Origins) Known(now time.Time) []Known {
	all := make(map[string]*Known)
	of := func(name string) *Known {
		k := all[name]
		if k == nil {
			k = &Known{Name: name}
			all[name] = k
		}
		return k
	}
	for k, b := range o.breakers.all() {
		of(k.origin).States |= 1 << b.State(now)
	}
	for k := range o.budgets.all() {
		of(k.origin)
	}
	for k := range o.bulkheads.all() {
		of(k.origin)
	}
	for k := range o.hedgings.all() {
		of(k.origin)
	}
	for name, p := range o.pasts.all() {
		if k := all[name]; k != nil {
			k.Trouble, _ = p.told()
		}
	}
	out := make([]Known, 0, len(all))
	for _, k := range all {
		if k.States == 0 {
			k.States = 1 << o.newBreakerState(k.Name)
		}
		out = append(out, *k)
	}
	return out
}

// Read tells how the origins stand that are wanted, in no order. Calls go on meanwhile: the parts are microseconds apart. No lock is held
// for longer than by a call, or than it takes to copy some hundred pointers.
func (o *Origins) Read(now time.Time, want func(origin string) bool) []OriginState {
	found := o.find(now, want)
	out := make([]OriginState, 0, len(found))
	for name, f := range found {
		if f.known() {
			out = append(out, o.state(name, f, now))
		}
	}
	return out
}

func (o *Origins) state(name string, f *found, now time.Time) OriginState {
	s := OriginState{Name: name, Holds: f.holds, Latency: latencyOf(f.breakers)}
	if f.past != nil {
		s.Trouble, s.Moves = f.past.told()
	}
	for _, by := range f.scopes() {
		s.Scopes = append(s.Scopes, o.scope(name, f, by, now))
	}
	return s
}

// scope tells of what is not there how it would be made: a call would meet that.
func (o *Origins) scope(name string, f *found, by *policy.Shared, now time.Time) Scope {
	s := Scope{By: by}
	if b, ok := valueOf(f.breakers, by.Breaker); ok {
		s.Breaker = b.Snapshot(now)
	} else {
		s.Breaker = o.newBreaker(breakerKey{name, by.Breaker}, now).Snapshot(now)
	}
	b, ok := valueOf(f.budgets, by.Budget)
	if !ok {
		b = newBudget(name, by.Budget.Value())
	}
	s.Budget, s.Callers = b.Snapshot(now), b.Callers(now, callersTold)
	if b, ok := valueOf(f.bulkheads, by.Concurrency); ok {
		s.Concurrency = b.Snapshot()
	} else {
		s.Concurrency = bulkhead.New(by.Concurrency.Value()).Snapshot()
	}
	return s
}

// newBreakerState is that of a breaker that is made now.
func (o *Origins) newBreakerState(origin string) breaker.State {
	if (*o.forced.Load())[origin] == breaker.ForcedOpen {
		return breaker.Open
	}
	return breaker.Closed
}

func latencyOf(breakers []seen[breakerKey, *breaker.Breaker]) Latency {
	var room [64]time.Duration // for two breakers
	all := room[:0]
	for _, b := range breakers {
		all = b.value.AppendLatencies(all)
	}
	if len(all) < latenciesLeast {
		return Latency{}
	}
	slices.Sort(all)
	rank := func(percent int) time.Duration { return all[(percent*len(all)+99)/100-1] }
	return Latency{Samples: len(all), P50: rank(50), P95: rank(95), P99: rank(99)}
}
