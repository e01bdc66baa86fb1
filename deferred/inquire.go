package deferred

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sallyport/sallyport/call"
)

const (
	// askPause is the mean of the pause before a call that has become UNKNOWN is asked about first; it doubles up to askLongest, askTries times.
	askPause   = time.Second
	askLongest = 15 * time.Minute
	askTries   = 14
	// mostAsked bounds the calls that are asked about by themselves at once. Of the others Reconcile asks.
	mostAsked = 1000
)

// Reconcile asks the status probe of a call that is UNKNOWN, and tells how it stands after that. What was applied is COMPLETED, with the
// probe's answer; what provably was not is sent again, as far as its submission allows. One in another state is told as it is. That it cannot
// be asked is an error of the dispatcher, which is returned.
func (q *Queue) Reconcile(ctx context.Context, caller, id string) (Record, error) {
	r, _, err := q.reconcile(ctx, caller, id)
	return r, err
}

func (q *Queue) reconcile(ctx context.Context, caller, id string) (Record, Found, error) {
	r, err := q.findWithin(ctx, caller, id)
	if err != nil || r.State != StateUnknown {
		return r, Found{}, err
	}
	found, err := q.cfg.Dispatcher.Inquire(ctx, &r, time.Now().Add(r.Ended.Sub(q.now())))
	if err != nil || found.Applied == nil && !found.NotApplied {
		return r, found, err
	}
	t, err := q.judge(&r)
	if err != nil {
		return r, found, err
	}
	n := r.reconciled(&found, &t, q.now())
	err = q.use("settle", func(ctx context.Context) error { return q.cfg.Store.Settle(ctx, &n) }) //nolint:contextcheck // what was found is written whoever has gone
	switch {
	case err == nil, isStoreError(err): // it may have been done all the same
		q.written(&n)
	case errors.Is(err, ErrSuperseded): // others have settled or redriven it meanwhile
		n, err = q.findWithin(ctx, caller, id)
	}
	return n, found, err
}

// findWithin is Find within the store's own time: who asks in the background has no other.
func (q *Queue) findWithin(ctx context.Context, caller, id string) (Record, error) {
	within, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	r, err := q.cfg.Store.Find(within, caller, id)
	return r, q.explain(ctx, "find", err)
}

// reconciled is what an UNKNOWN record becomes by what its status probe found.
func (r *Record) reconciled(f *Found, t *Terms, now time.Time) Record {
	n := *r
	n.Updated = now
	if f.Applied != nil {
		n.Outcome, n.Effect, n.Reason, n.Response = call.OutcomeSuccess, call.EffectAnswered, call.ReasonSuccess, f.Applied
		n.Detail = "the answer was lost; the status probe says that the operation was applied, and this is what it answered"
		return n.ended(StateCompleted, FailureNone, now, t.CompletedRetention)
	}
	n.Effect, n.FirstSend, n.Ended, n.Until = call.EffectNone, time.Time{}, time.Time{}, time.Time{}
	n.Detail = "the status probe proved that the operation was not applied"
	switch {
	case n.Spent >= n.attemptsAllowed(t):
		n.Reason = call.ReasonAttemptsExhausted
		return n.dead(FailureExhausted, t, now)
	case n.past(now):
		return n.dead(FailureExpired, t, now)
	}
	return n.again(t, now, 0)
}

// askAboutUnknown begins to ask about what was UNKNOWN when the broker started, the latest first. False: the store failed.
func (q *Queue) askAboutUnknown() bool {
	before := uint64(0)
	for all := 0; all < mostAsked; {
		var some []Record
		err := q.use("list", func(ctx context.Context) (err error) {
			some, err = q.cfg.Store.List(ctx, &Filter{State: StateUnknown}, before, batch)
			return err
		})
		if err != nil {
			return false
		}
		for i := range some {
			q.askLater(&some[i])
			before = some[i].Seq
		}
		if all += len(some); len(some) < batch {
			break
		}
	}
	return true
}

// askLater asks about a call that is UNKNOWN, again and again, until that is settled, or cannot be, or the broker ends.
func (q *Queue) askLater(r *Record) {
	id := r.ID
	if q.asked.Add(1) > mostAsked {
		q.asked.Add(-1)
		q.cfg.Log.Warn("too many deferred calls are asked about; this one is when somebody asks for it", "id", id)
		return
	}
	q.runs.Go(func() {
		defer q.asked.Add(-1)
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		go func() {
			select {
			case <-q.closed:
				cancel(errClosing)
			case <-ctx.Done():
			}
		}()
		provable, settled := q.askOften(ctx, id)
		if !settled && time.Now().Before(provable) && rest(ctx, time.Until(provable)) {
			q.askOften(ctx, id) // those before could find that it was done, and not prove that it was not
		}
	})
}

// askOften reports whether there is nothing more to ask, or else from when on more can be proved.
func (q *Queue) askOften(ctx context.Context, id string) (provable time.Time, settled bool) {
	pause := askPause
	for range askTries {
		// Many become unknown at one instant, when their upstream goes away or the broker starts.
		if !rest(ctx, time.Duration(float64(pause)*(0.5+rand.Float64()))) {
			return time.Time{}, true
		}
		pause = min(2*pause, askLongest)
		r, found, err := q.reconcile(ctx, "", id)
		switch {
		case isStoreError(err):
			continue
		case err != nil, r.State != StateUnknown:
			return time.Time{}, true
		}
		provable = found.Provable
	}
	return provable, false
}

// rest reports whether that time passed before ctx ended.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
