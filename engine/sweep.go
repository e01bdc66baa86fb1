package engine

import "time"

// Sweep gives back the memory of what no longer counts: what happened longer ago than its window, and what was kept for reuse. An idle
// origin then costs less than 2 KiB all told (semantics.md §6); it is not forgotten, and nothing that is decided changes. Whoever keeps
// origins for long calls it every few seconds. Calls feel nothing of it: one value at a time is locked, each for about as long as
// by a call.
func (o *Origins) Sweep(now time.Time) {
	for _, b := range o.breakers.all() {
		b.Trim(now)
	}
	for _, b := range o.budgets.all() {
		b.Trim(now)
	}
	for _, b := range o.bulkheads.all() {
		b.Trim()
	}
	for _, h := range o.hedgings.all() {
		h.allowance.Trim(now)
	}
}
