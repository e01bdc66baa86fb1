package budget

import "time"

// window allows extra attempts by the first attempts of the last period.
type window struct {
	grid     grid
	ratio    float64
	floor    float64 // min_per_second · period
	maxShare float64
	recent   *recent // nil before the first event, and while none is remembered: an idle origin keeps nothing else
}

// recent is what happened in the last period.
type recent struct {
	firsts  series
	retries taken
	callers callers
}

// tiny is what a product of decimal fractions may lack in binary: 100 · 0.29 must allow 29.
const tiny = 1e-9

func newWindow(c *Window, maxShare float64) *window {
	return &window{grid: newGrid(c.Period), ratio: c.Ratio, floor: c.MinPerSecond * c.Period.Seconds(), maxShare: maxShare}
}

// open is what happened of late, made where nothing was known.
func (w *window) open() *recent {
	if w.recent == nil {
		w.recent = &recent{callers: newCallers()}
	}
	return w.recent
}

// tie: an extra attempt whose mark is too coarse to tell counts as still in the window.
func (w *window) tie() bool { return w.grid.unit > 1 }

// shared: no caller may take all while others contend. Else the bound of all is each caller's, and nobody needs an account.
func (w *window) shared() bool { return w.maxShare < 1 }

func (w *window) deposit(at time.Duration, caller string) {
	r := w.open()
	r.callers.saw(caller, at)
	r.firsts.add(w.grid.locate(at), true)
}

// withdraw checks the bound of all, or of a part of it, then the caller's share while others contend, and takes in the same step. A caller contends
// from its last first attempt, or question for an extra one, for a period: were it only who has asked before, the one who asks
// first would find nothing left for the second.
func (w *window) withdraw(at time.Duration, caller string, share, part float64) (*taken, *RefusedError) {
	now, r := w.grid.locate(at), w.open()
	r.callers.saw(caller, at)
	contended := w.shared() && r.callers.contended(at-w.grid.period())
	account := r.callers.account(caller)
	allowance := part * w.allowance(r.firsts.count(now, false), share)
	reason := Reason(0)
	switch {
	case !fits(r.retries.count(now, w.tie()), allowance):
		reason = ReasonSpent
	case contended && !fits(account.count(now, w.tie()), w.callerLimit(allowance)):
		reason = ReasonCallerShare
	}
	if reason != 0 {
		return nil, &RefusedError{Reason: reason, RetryAfter: w.retryAfter(at, account, contended, share, part)}
	}
	if w.shared() {
		account = r.callers.open(caller, now, w.tie())
	}
	account.grant()
	r.retries.grant()
	return account, nil
}

func (w *window) spend(at time.Duration, account *taken) {
	now := w.grid.locate(at)
	account.spend(now)
	w.open().retries.spend(now)
}

func (w *window) handBack(account *taken) {
	account.handBack()
	w.open().retries.handBack()
}

// counts are the first attempts in the window, and the extra ones sent in it or outstanding.
func (w *window) counts(at time.Duration) (firsts, retries, outstanding uint64) {
	r := w.recent
	if r == nil {
		return 0, 0, 0
	}
	now := w.grid.locate(at)
	return r.firsts.count(now, false), r.retries.count(now, w.tie()), r.retries.outstanding
}

// trim forgets what has left the window and what no rule will ask for again.
func (w *window) trim(at time.Duration) {
	r := w.recent
	if r == nil {
		return
	}
	// A first attempt shows its caller; a retry may be sent long after its caller was seen.
	now, seen := w.grid.locate(at), r.callers.active(at-w.grid.period())
	if !seen && r.retries.count(now, w.tie()) == 0 {
		w.recent = nil
		return
	}
	r.callers.trim(now, w.tie())
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

// retryAfter is how long until enough of what was taken has left the window, with no first attempt to come, and what is outstanding
// sent now; 0: that alone will never do. What the caller took leaves no later than what all took in the same step, so that one walk
// answers for both bounds.
func (w *window) retryAfter(at time.Duration, account *taken, contended bool, share, part float64) time.Duration {
	now, r := w.grid.locate(at), w.open()
	all, own, firsts := r.retries.kept(now.tick), account.kept(now.tick), r.firsts.kept(now.tick)
	for tick := now.tick - steps; tick <= now.tick; tick++ {
		p, newest := place(tick), tick == now.tick
		leaving := r.retries.leaving(p, newest)
		all -= leaving
		own -= account.leaving(p, newest)
		firsts -= uint64(r.firsts.counts[p]) // gone by then, or soon after
		if leaving == 0 {
			continue
		}
		leaves := w.grid.leaves(tick, r.retries.mark(p, newest, now))
		if leaves <= at {
			continue
		}
		allowance := part * w.allowance(firsts, share)
		if fits(all, allowance) && (!contended || fits(own, w.callerLimit(allowance))) {
			return leaves - at
		}
	}
	return 0
}

// fits reports whether one more is within a limit.
func fits(taken uint64, limit float64) bool { return float64(taken)+1 <= limit+tiny }
