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
	o.breakers.each(func(k breakerKey, b *breaker.Breaker) { f(k.origin, b.State(now)) })
}

// EachBudget tells how every retry budget stands.
func (o *Origins) EachBudget(now time.Time, f func(origin string, s budget.Snapshot)) {
	o.budgets.each(func(k budgetKey, b *budget.Budget) { f(k.origin, b.Snapshot(now)) })
}

// EachBulkhead tells how every concurrency limit stands.
func (o *Origins) EachBulkhead(f func(origin string, s bulkhead.Snapshot)) {
	o.bulkheads.each(func(k bulkheadKey, b *bulkhead.Bulkhead) { f(k.origin, b.Snapshot()) })
}

// EachHold tells every hold that stands: for one credential, or for all callers of the origin.
func (o *Origins) EachHold(now time.Time, f func(origin string, credential bool)) {
	for _, k := range o.holds.standing(now) {
		f(k.origin, k.credential != "")
	}
}

// copiedAtOnce bounds how many entries are looked at under one lock.
const copiedAtOnce = 512

// each gives every value, a shard at a time.
func (r *registry[K, V]) each(f func(K, V)) {
	var seen []*entry[K, V]
	for i := range r.shard {
		seen = r.shard[i].copy(seen[:0])
		for _, e := range seen {
			f(e.key, e.value) // neither of them ever changes
		}
	}
}

// copy appends the entries of a shard, which has some hundred.
func (s *registryShard[K, V]) copy(into []*entry[K, V]) []*entry[K, V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	for element := s.order.Front(); element != nil; element = element.Next() {
		if e, ok := element.Value.(*entry[K, V]); ok {
			into = append(into, e)
		}
	}
	return into
}

// standing gives the holds that are not over. Between two parts of the map its lock is let go: a range goes on over a map that has
// changed meanwhile (Go specification, For statements with range clause).
func (h *holds) standing(now time.Time) []holdKey {
	var keys []holdKey
	if last := h.last.Load(); last == nil || !last.After(now) {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	looked := 0
	for k, until := range h.until {
		if until.After(now) {
			keys = append(keys, k)
		}
		if looked++; looked%copiedAtOnce == 0 {
			yield(&h.mu)
		}
	}
	return keys
}

// yield lets others have the lock.
func yield(mu *sync.Mutex) {
	mu.Unlock()
	runtime.Gosched()
	mu.Lock()
}
