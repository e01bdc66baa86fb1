package engine

import "time"

// longIdle is how long nobody must have called an origin, or not under some settings, before that state of it is forgotten: it must not
// be shown for ever to whoever looks on. It is what a caller meets again who comes once an hour, and far beyond every window.
const longIdle = 2 * time.Hour

// Sweep gives back the memory of what no longer counts: what happened longer ago than its window, and what was kept for reuse. An idle
// origin then costs less than 2 KiB all told (semantics.md §6), and nothing that is decided changes. One that nobody called for two
// hours is forgotten, but for what is not at rest: an open breaker, a forced one. Whoever keeps origins for long calls it every few
// seconds. Calls feel nothing of it: one value at a time is locked, each for about as long as by a call.
func (o *Origins) Sweep(now time.Time) {
	o.breakers.forget(now, longIdle)
	o.budgets.forget(now, longIdle)
	o.bulkheads.forget(now, longIdle)
	o.hedgings.forget(now, longIdle)
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
