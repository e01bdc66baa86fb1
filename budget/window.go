package budget

import "time"

// window allows extra attempts by the first attempts of the last period.
type window struct {
	grid     grid
	ratio    float64
	floor    float64 // min_per_second · period
	maxShare float64
	tie      bool // an extra attempt whose mark is too coarse to tell counts as still in the window
	firsts   series
	retries  series
	callers  callers
}

// tiny is what a product of decimal fractions may lack in binary: 100 · 0.29 must allow 29.
const tiny = 1e-9

func newWindow(c *Window, maxShare float64) *window {
	g := newGrid(c.Period)
	return &window{
		grid: g, ratio: c.Ratio, floor: c.MinPerSecond * c.Period.Seconds(), maxShare: maxShare,
		tie: g.unit > 1, callers: newCallers(),
	}
}

func (w *window) deposit(at time.Duration, caller string) {
	w.callers.saw(caller, at)
	w.firsts.add(w.grid.locate(at), true)
}

// withdraw checks the bound of all, then the caller's share while others contend, and takes in the same step. A caller contends
// from its last first attempt, or question for an extra one, for a period: were it only who has asked before, the one who asks
// first would find nothing left for the second.
func (w *window) withdraw(at time.Duration, caller string, share float64) (int64, *series, *RefusedError) {
	now := w.grid.locate(at)
	w.callers.saw(caller, at)
	limit := func(firsts uint64) float64 { return w.allowance(firsts, share) }
	firsts := w.firsts.count(now, false)
	if !fits(w.retries.count(now, w.tie), limit(firsts)) {
		return 0, nil, &RefusedError{Reason: ReasonSpent, RetryAfter: w.opensIn(at, &w.retries, limit)}
	}
	if account := w.callers.account(caller); w.callers.contended(at - w.grid.period()) {
		var taken uint64
		if account != nil {
			taken = account.count(now, w.tie)
		}
		limit := func(firsts uint64) float64 { return w.callerLimit(w.allowance(firsts, share)) }
		if !fits(taken, limit(firsts)) {
			refused := &RefusedError{Reason: ReasonCallerShare}
			if account != nil {
				refused.RetryAfter = w.opensIn(at, account, limit)
			}
			return 0, nil, refused
		}
	}
	account := w.callers.open(caller, now, w.tie)
	account.add(now, false)
	w.retries.add(now, false)
	return now.tick, account, nil
}

func (w *window) handBack(at time.Duration, tick int64, account *series) {
	now := w.grid.locate(at)
	w.retries.advance(now.tick)
	w.retries.remove(tick)
	account.advance(now.tick)
	account.remove(tick)
}

// allowance is how many extra attempts the window holds.
func (w *window) allowance(firsts uint64, share float64) float64 {
	if share <= 0 {
		return 0
	}
	return w.ratio*float64(firsts) + w.floor*share
}

// callerLimit is one caller's part of the allowance. A part below one is one, for an attempt cannot be divided and a small
// allowance would be nobody's; a share of 0 is none.
func (w *window) callerLimit(allowance float64) float64 {
	if w.maxShare <= 0 {
		return 0
	}
	return max(w.maxShare*allowance, 1)
}

// opensIn is how long until enough of what was taken has left the window, with no first attempt to come; 0: never.
func (w *window) opensIn(at time.Duration, taken *series, limit func(firsts uint64) float64) time.Duration {
	newest := w.grid.locate(at).tick
	taken.advance(newest)
	w.firsts.advance(newest)
	oldest := place(newest - steps)
	retries := taken.sum + uint64(taken.counts[oldest])
	firsts := w.firsts.sum + uint64(w.firsts.counts[oldest])
	for tick := newest - steps; tick <= newest; tick++ {
		p := place(tick)
		retries -= uint64(taken.counts[p])
		firsts -= uint64(w.firsts.counts[p]) // gone by then, or soon after
		if taken.counts[p] == 0 || !fits(retries, limit(firsts)) {
			continue
		}
		if leaves := w.grid.leaves(tick, taken.marks[p]); leaves > at {
			return leaves - at
		}
	}
	return 0
}

// fits reports whether one more is within a limit.
func fits(taken uint64, limit float64) bool { return float64(taken)+1 <= limit+tiny }
