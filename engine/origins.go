package engine

import (
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

	breakerSettings  recent[breaker.Config]
	budgetSettings   recent[budgetSettings]
	bulkheadSettings recent[bulkhead.Config]
}

// The keys hold their settings as handles: a few policies make many origins' settings, and a key is kept twice.
type (
	breakerKey  = keyOf[breaker.Config]
	budgetKey   = keyOf[budgetSettings]
	bulkheadKey = keyOf[bulkhead.Config]
	hedgingKey  = keyOf[hedgingSettings]
)

type keyOf[S comparable] struct {
	origin   string
	settings unique.Handle[S]
}

// recent remembers the handle of the settings seen last: most calls have the same, and to compare them costs a tenth of [unique.Make].
type recent[S comparable] struct {
	last atomic.Pointer[unique.Handle[S]]
}

func (r *recent[S]) handle(settings S) unique.Handle[S] {
	if last := r.last.Load(); last != nil && last.Value() == settings {
		return *last
	}
	h := unique.Make(settings)
	r.last.Store(&h)
	return h
}

// budgetSettings are the settings by value; the kind not used is zero.
type budgetSettings struct {
	window budget.Window
	bucket budget.TokenBucket
	share  float64
}

// NewOrigins knows no origin yet.
func NewOrigins() *Origins {
	return &Origins{
		breakers: newRegistry(
			func(k breakerKey) *breaker.Breaker { return breaker.New(k.settings.Value()) },
			breakerAtRest),
		budgets: newRegistry(func(k budgetKey) *budget.Budget { return newBudget(k.origin, k.settings.Value()) }, always[*budget.Budget]),
		bulkheads: newRegistry(
			func(k bulkheadKey) *bulkhead.Bulkhead { return bulkhead.New(k.settings.Value()) },
			func(b *bulkhead.Bulkhead, _ time.Time) bool { return b.Snapshot().InFlight == 0 }),
		hedgings: newRegistry(func(k hedgingKey) *hedging { return newHedging(k.origin, k.settings.Value()) }, always[*hedging]),
		holds:    newHolds(),
	}
}

// always at rest: what it knows may be forgotten when nobody uses it.
func always[V any](V, time.Time) bool { return true }

// longOver is how long after its cooldown a breaker that nobody asks may be forgotten.
const longOver = 10 * time.Minute

func breakerAtRest(b *breaker.Breaker, now time.Time) bool {
	s := b.Snapshot(now)
	return s.Mode == breaker.Auto && (s.State == breaker.Closed || s.State == breaker.HalfOpen && now.Sub(s.Since) > longOver)
}

func newBudget(origin string, settings budgetSettings) *budget.Budget {
	cfg := budget.Config{Name: origin, CallerMaxShare: settings.share}
	if settings.bucket != (budget.TokenBucket{}) {
		cfg.TokenBucket = &settings.bucket
	} else {
		cfg.Window = &settings.window
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
	name := c.Target.Origin
	s := origin{name: name}
	s.breaker, s.breakerEntry = o.breakers.enter(breakerKey{name, o.breakerSettings.handle(p.Breaker)}, now)
	s.budget, s.budgetEntry = o.budgets.enter(budgetKey{name, o.budgetSettings.handle(budgetSettingsOf(&p.Budget))}, now)
	s.bulkhead, s.bulkheadEntry = o.bulkheads.enter(bulkheadKey{name, o.bulkheadSettings.handle(p.Concurrency)}, now)
	if p.Hedge.Enabled && p.Hedge.MaxHedges > 0 {
		s.hedging, s.hedgingEntry = o.hedgings.enter(hedgingKey{name, unique.Make(hedgingSettingsOf(&p.Hedge))}, now)
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

func budgetSettingsOf(b *policy.Budget) budgetSettings {
	s := budgetSettings{share: b.CallerMaxShare}
	if b.TokenBucket != nil {
		s.bucket = *b.TokenBucket
	} else {
		s.window = *b.Window
	}
	return s
}
