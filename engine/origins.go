package engine

import (
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// Origins is what all callers of an origin share: whether it may be tried, how many extra attempts may be spent on it, how many may
// run at once, and until when it is held. Each is kept per origin and per distinct settings of its block, so that two policies with
// different thresholds for one origin do not mix (semantics.md §6).
type Origins struct {
	breakers  *registry[breakerKey, *breaker.Breaker]
	budgets   *registry[budgetKey, *budget.Budget]
	bulkheads *registry[bulkheadKey, *bulkhead.Bulkhead]
	hedgings  *registry[hedgingKey, *hedging]
	holds     *holds
	pasts     *registry[string, *past]
	late      lateCount

	forcing sync.Mutex                              // held while an operator forces breakers
	forced  atomic.Pointer[map[string]breaker.Mode] // by origin; replaced under forcing, its maps never change
}

// The keys hold their settings as handles: a few policies make many origins' settings, and a key is kept twice.
type (
	breakerKey  = keyOf[policy.Breaker]
	budgetKey   = keyOf[policy.BudgetSettings]
	bulkheadKey = keyOf[policy.Concurrency]
	hedgingKey  = keyOf[policy.HedgeSettings]
)

type keyOf[S comparable] struct {
	origin   string
	settings unique.Handle[S]
}

// NewOrigins knows no origin yet.
func NewOrigins() *Origins {
	o := &Origins{
		budgets: newRegistry(
			func(k budgetKey, _ time.Time) *budget.Budget { return newBudget(k.origin, k.settings.Value()) }, always[*budget.Budget]),
		bulkheads: newRegistry(
			func(k bulkheadKey, _ time.Time) *bulkhead.Bulkhead { return bulkhead.New(k.settings.Value()) },
			func(b *bulkhead.Bulkhead, _ time.Time) bool { return b.Snapshot().InFlight == 0 }),
		hedgings: newRegistry(func(k hedgingKey, _ time.Time) *hedging { return newHedging(k.origin, k.settings.Value()) }, always[*hedging]),
		holds:    newHolds(),
		pasts:    newRegistry(func(string, time.Time) *past { return &past{} }, always[*past]),
	}
	o.pasts.most = pastsMax
	o.breakers = newRegistry(o.newBreaker, breakerAtRest)
	o.forced.Store(&map[string]breaker.Mode{})
	return o
}

// always at rest: what it knows may be forgotten when nobody uses it.
func always[V any](V, time.Time) bool { return true }

// longOver is how long after its cooldown a breaker that nobody asks may be forgotten.
const longOver = 10 * time.Minute

func breakerAtRest(b *breaker.Breaker, now time.Time) bool {
	s := b.Snapshot(now)
	return s.Mode == breaker.Auto && (s.State == breaker.Closed || s.State == breaker.HalfOpen && now.Sub(s.Since) > longOver)
}

func newBudget(origin string, settings policy.BudgetSettings) *budget.Budget {
	cfg := budget.Config{Name: origin, CallerMaxShare: settings.CallerMaxShare}
	if settings.TokenBucket != (budget.TokenBucket{}) {
		cfg.TokenBucket = &settings.TokenBucket
	} else {
		cfg.Window = &settings.Window
	}
	b, err := budget.New(cfg)
	if err != nil {
		panic(err) // the policy was validated: its settings always make a budget
	}
	return b
}

// origin is the shared state that rules one call. Whoever enters leaves.
type origin struct {
	name     string
	breaker  *breaker.Breaker
	budget   *budget.Budget
	bulkhead *bulkhead.Bulkhead
	hedging  *hedging // nil: the policy does not hedge

	breakerEntry  *entry[breakerKey, *breaker.Breaker]
	budgetEntry   *entry[budgetKey, *budget.Budget]
	bulkheadEntry *entry[bulkheadKey, *bulkhead.Bulkhead]
	hedgingEntry  *entry[hedgingKey, *hedging]
}

// enter finds the state of a call's origin.
func (o *Origins) enter(c *call.Call, p *policy.Effective, now time.Time) origin {
	name, by := c.Target.Origin, p.Shared()
	s := origin{name: name}
	s.breaker, s.breakerEntry = o.breakers.enter(breakerKey{name, by.Breaker}, by, now)
	s.budget, s.budgetEntry = o.budgets.enter(budgetKey{name, by.Budget}, by, now)
	s.bulkhead, s.bulkheadEntry = o.bulkheads.enter(bulkheadKey{name, by.Concurrency}, by, now)
	if by.Hedged {
		s.hedging, s.hedgingEntry = o.hedgings.enter(hedgingKey{name, by.Hedge}, by, now)
	}
	return s
}

func (s *origin) leave() {
	s.breakerEntry.leave()
	s.budgetEntry.leave()
	s.bulkheadEntry.leave()
	if s.hedgingEntry != nil {
		s.hedgingEntry.leave()
	}
}
