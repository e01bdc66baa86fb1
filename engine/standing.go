package engine

import (
	"runtime"
	"sync"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
)

// What follows is for whoever looks on: how everything stands that callers share, one call of f for each piece. An origin has as many
// of a kind as there are settings for it. Calls go on meanwhile, so that it is a picture of no single instant, and no lock is held
// for longer than it takes to copy some hundred pointers, nor while f runs.

// EachBreaker tells the state of every breaker.
func (o *Origins) EachBreaker(now time.Time, f func(origin string, s breaker.State)) {
	for k, b := range o.breakers.all() {
		f(k.origin, b.State(now))
	}
}

// EachBudget tells how every retry budget stands.
func (o *Origins) EachBudget(now time.Time, f func(origin string, s budget.Snapshot)) {
	for k, b := range o.budgets.all() {
		f(k.origin, b.Snapshot(now))
	}
}

// EachBulkhead tells how every concurrency limit stands.
func (o *Origins) EachBulkhead(f func(origin string, s bulkhead.Snapshot)) {
	for k, b := range o.bulkheads.all() {
		f(k.origin, b.Snapshot())
	}
}

// EachHold tells every hold that stands: for one credential, or for all callers of the origin.
func (o *Origins) EachHold(now time.Time, f func(origin string, credential bool)) {
	for _, k := range o.holds.standing(now) {
		f(k.origin, k.credential != "")
	}
}

// copiedAtOnce bounds how many entries are looked at under one lock.
const copiedAtOnce = 512

// standingHold is a hold that is not over.
type standingHold struct {
	holdKey
	until time.Time
}

// standing gives the holds that are not over. Between two parts of the map its lock is let go: a range goes on over a map that has
// changed meanwhile (Go specification, For statements with range clause).
func (h *holds) standing(now time.Time) []standingHold {
	var all []standingHold
	if last := h.last.Load(); last == nil || !last.After(now) {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	looked := 0
	for k, until := range h.until {
		if until.After(now) {
			all = append(all, standingHold{k, until})
		}
		if looked++; looked%copiedAtOnce == 0 {
			yield(&h.mu)
		}
	}
	return all
}

// yield lets others have the lock.
func yield(mu *sync.Mutex) {
	mu.Unlock()
	runtime.Gosched()
	mu.Lock()
}
