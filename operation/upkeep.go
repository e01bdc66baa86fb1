package operation

import (
	"context"
	"time"
)

const (
	// pruneEvery is how often what has outlived its time is dropped, settleAgain the pause before another try to end what an earlier start of
	// the broker was doing.
	pruneEvery  = time.Minute
	settleAgain = time.Second
	// mostBodyBytes bounds all bodies together.
	mostBodyBytes = 1 << 30
)

// tend keeps the ledger in order until Close.
func (o *Operations) tend() {
	for o.settle() != nil {
		if !o.rest(settleAgain) {
			return
		}
	}
	for o.rest(pruneEvery) {
		for more := true; more; {
			ctx, cancel := context.WithTimeout(context.Background(), onceWithin)
			var err error
			if more, err = o.cfg.Keeper.Prune(ctx, time.Now(), mostBodyBytes); err != nil {
				_ = o.failed("prune", err)
				more = false // in a minute again
			}
			cancel()
			if more && !o.rest(time.Millisecond) { // calls go between
				return
			}
		}
	}
}

// settle ends what other starts of the broker were doing when they ended.
func (o *Operations) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := o.cfg.Keeper.Settle(ctx, o.cfg.Owner, time.Now())
	if err != nil {
		return o.failed("settle", err)
	}
	if n > 0 {
		o.cfg.Log.Warn("operations were under way when the broker ended; those that must not be repeated are unknown now", "operations", n)
	}
	return nil
}

// rest reports whether the time passed before Close.
func (o *Operations) rest(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-o.closed:
		return false
	}
}
