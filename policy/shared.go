package policy

import (
	"time"
	"unique"
)

// Shared says what the callers of an origin share under an [Effective], and how: each block by the handle of its settings, which is
// what the state of an origin is kept by. It holds nothing of the table it comes from, so that it may be kept for as long as
// the state is.
type Shared struct {
	// Policy is [Effective.Policy], Generation that of the table.
	Policy     string
	Generation uint64
	SharedSettings
}

// SharedSettings are equal for two calls to an origin that share everything.
type SharedSettings struct {
	Breaker     unique.Handle[Breaker]
	Budget      unique.Handle[BudgetSettings]
	Concurrency unique.Handle[Concurrency]
	Hedge       unique.Handle[HedgeSettings]
	// Hedged: the calls are hedged, by Hedge.
	Hedged bool
}

// BudgetSettings are a [Budget] by value; the kind not used is zero.
type BudgetSettings struct {
	Window         BudgetWindow
	TokenBucket    TokenBucket
	CallerMaxShare float64
}

// HedgeSettings are of a [Hedge] what the callers of an origin share.
type HedgeSettings struct {
	Delay                time.Duration
	Percentile, MaxExtra float64
}

// Shared is made once for all calls under e: to look for a handle takes longer than to find the state by it. A changed copy of an
// Effective, as tests make, has its own.
func (e *Effective) Shared() *Shared {
	if e.shared.of == e {
		return e.shared.settings
	}
	return newShared(e)
}

// madeShared remembers whose settings they are: not those of a copy.
type madeShared struct {
	of       *Effective
	settings *Shared
}

func newShared(e *Effective) *Shared {
	s := &Shared{Policy: e.Policy, Generation: e.Generation}
	budget := BudgetSettings{CallerMaxShare: e.Budget.CallerMaxShare}
	if e.Budget.TokenBucket != nil {
		budget.TokenBucket = *e.Budget.TokenBucket
	} else if e.Budget.Window != nil {
		budget.Window = *e.Budget.Window
	}
	s.Breaker, s.Budget, s.Concurrency = unique.Make(e.Breaker), unique.Make(budget), unique.Make(e.Concurrency)
	if s.Hedged = e.Hedge.Enabled && e.Hedge.MaxHedges > 0; s.Hedged {
		s.Hedge = unique.Make(HedgeSettings{Delay: e.Hedge.Delay, Percentile: e.Hedge.Percentile, MaxExtra: e.Hedge.MaxExtra})
	}
	return s
}
