package budget

import (
	"cmp"
	"slices"
	"time"
)

// Totals only grow, so that whoever reads them now and then, a meter or a fleet that divides shares, loses nothing in between.
type Totals struct {
	// Firsts are the first attempts deposited.
	Firsts uint64
	// Granted are the extra attempts allowed; HandedBack are those of them that were not sent.
	Granted, HandedBack uint64
	// Refused are the extra attempts not allowed, for whatever reason.
	Refused uint64
}

// Snapshot is a budget at one instant.
type Snapshot struct {
	// Name is the budget's.
	Name string
	// Left is what may be spent before the next refusal: extra attempts of a window or of RulePerRetry, failures of RuleHalf.
	// Below 1 a window and RulePerRetry refuse.
	Left float64
	// Allowance is what the window holds, or the bucket when full, this broker's share of it.
	Allowance float64
	// Firsts are the first attempts in the window, Retries the extra attempts sent in it and all Outstanding; 0 for a bucket.
	Firsts, Retries uint64
	// Outstanding are those of Retries that were granted and neither sent nor handed back yet; 0 for a bucket.
	Outstanding uint64
	// Tokens are those in the bucket; 0 for a window.
	Tokens float64
	// Share is this broker's part, see SetShare.
	Share float64
	// Totals count since the budget was made.
	Totals Totals
}

// Snapshot says how the budget stands.
func (b *Budget) Snapshot(now time.Time) Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.atLocked(now)
	s := Snapshot{Name: b.name, Share: b.share, Totals: b.totals}
	if k := b.bucket; k != nil {
		s.Tokens = float64(k.tokens) / whole
		if s.Left = k.left(); !k.closed {
			s.Allowance = float64(k.max) / whole
		}
		return s
	}
	s.Firsts, s.Retries, s.Outstanding = b.window.counts(at)
	s.Allowance = b.window.allowance(s.Firsts, b.share)
	s.Left = max(s.Allowance-float64(s.Retries), 0)
	return s
}

// CallerUse is what one caller has of a window's [Snapshot.Retries].
type CallerUse struct {
	Caller string
	// Taken are its extra attempts that were sent in the window, and those that are outstanding.
	Taken uint64
}

// Callers tells who has taken how much, the most first, then by name; at most n. There is nothing to tell of a token bucket, of a window
// that a caller may have all of (CallerMaxShare 1), and of callers beyond the 64 that have an account.
func (b *Budget) Callers(now time.Time, n int) []CallerUse {
	all := b.callers(now)
	slices.SortFunc(all, func(x, y CallerUse) int {
		return cmp.Or(cmp.Compare(y.Taken, x.Taken), cmp.Compare(x.Caller, y.Caller))
	})
	return slices.Clip(all[:min(n, len(all))])
}

func (b *Budget) callers(now time.Time) []CallerUse {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.atLocked(now)
	if b.window == nil || b.window.recent == nil {
		return nil
	}
	return b.window.recent.callers.use(b.window.grid.locate(at), b.window.tie())
}
