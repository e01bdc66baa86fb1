package deferred

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sallyport/sallyport/call"
)

// recover reports whether what an earlier process left is in order.
func (q *Queue) recover() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := q.cfg.Keeper.Recover(ctx, q.now())
	if q.explain(ctx, "recover", err) != nil {
		return false
	}
	if n > 0 {
		q.cfg.Log.Warn("attempts of deferred calls were under way when the broker ended", "calls", n)
	}
	return true
}

// work begins what is due until Close.
func (q *Queue) work() {
	var waiting []Record // read, and not begun yet
	for {
		now := q.now()
		until := now.Add(tidyEvery * 60)
		if len(waiting) == 0 {
			due, next, err := q.due(now)
			switch {
			case err != nil:
				until = now.Add(storeAgain)
			case len(due) > 0:
				waiting = due
			case !next.IsZero() && next.Before(until):
				until = next
			}
		}
		var full bool
		waiting, full = q.begin(waiting)
		if len(waiting) == 0 && !full && until.After(now) || full {
			if !q.await(until.Sub(now), full) {
				return
			}
		}
		if q.isClosed() {
			return
		}
	}
}

func (q *Queue) isClosed() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}

// await waits until there may be something to do; false: the queue is closed.
func (q *Queue) await(d time.Duration, full bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	_ = full
	select {
	case <-q.wake:
	case <-timer.C:
	case <-q.closed:
		return false
	}
	return true
}

// due reads what may be begun now.
func (q *Queue) due(now time.Time) ([]Record, time.Time, error) {
	without, busy, free := q.taken(now)
	if free <= 0 {
		return nil, time.Time{}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeWithin)
	defer cancel()
	due, next, err := q.cfg.Store.Due(ctx, now, min(free, batch), without, busy)
	if err = q.explain(ctx, "look for what is due", err); err != nil {
		return nil, time.Time{}, err
	}
	if quiet := q.earliestQuiet(); !quiet.IsZero() && (next.IsZero() || quiet.Before(next)) {
		next = quiet
	}
	return due, next, nil
}

// taken is what is not to be begun: origins that are quiet or have their share, and records that are under way.
func (q *Queue) taken(now time.Time) (without map[string]bool, busy map[uint64]bool, free int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	without, busy = map[string]bool{}, map[uint64]bool{}
	for origin, until := range q.quiet {
		if until.After(now) {
			without[origin] = true
		} else {
			delete(q.quiet, origin)
		}
	}
	for origin, n := range q.lanes {
		if n >= q.share() {
			without[origin] = true
		}
	}
	for seq := range q.flights {
		busy[seq] = true
	}
	return without, busy, q.cfg.AtOnce - len(q.flights)
}

func (q *Queue) share() int { return max(q.cfg.AtOnce/originShare, 1) }

func (q *Queue) earliestQuiet() (first time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, until := range q.quiet {
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first
}

// begin begins as many as there is room for, and gives the others back. full: there is none.
func (q *Queue) begin(records []Record) (left []Record, full bool) {
	for i := range records {
		r := &records[i]
		ctx, f := q.takeOff(r)
		if f == nil {
			continue // its origin has become quiet, or has its share; it is read again
		}
		q.runs.Go(func() { q.fly(ctx, r, f) })
	}
	return nil, false
}

// takeOff takes a place for the record; nil: there is none.
func (q *Queue) takeOff(r *Record) (context.Context, *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, twice := q.flights[r.Seq]; twice || len(q.flights) >= q.cfg.AtOnce || q.lanes[r.Origin] >= q.share() {
		return nil, nil
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	f := &flight{origin: r.Origin, caller: r.Caller, id: r.ID, cancel: cancel}
	q.flights[r.Seq] = f
	q.lanes[r.Origin]++
	return ctx, f
}

// fly makes one attempt of a record, and writes what became of it.
func (q *Queue) fly(ctx context.Context, r *Record, f *flight) {
	defer q.poke()
	defer q.land(r, f)
	t, err := q.cfg.Dispatcher.Judge(r)
	now := q.now()
	switch {
	case err != nil:
		n := r.ended(StateFailed, FailurePermanent, now, 0)
		n.Detail, n.Updated = err.Error(), now
		q.write(&n, nil)
		return
	case !r.Expire.IsZero() && !r.Expire.After(now):
		n := r.ended(StateFailed, FailureExpired, now, 0)
		n.Updated = now
		q.write(&n, nil)
		return
	}
	if err := q.intend(r, t.Repeatable, now); err != nil {
		return // it stays as it is, and is read again
	}
	r.Epoch++
	final := q.cfg.Dispatcher.Dispatch(ctx, r, &t)
	now = q.now()
	n, refused := next(r, &final, &t, now, rand.Float64())
	if final.Outcome == call.OutcomeCancelled && !q.wasAsked(f) {
		n = r.interrupted(&final, &t, now) // the broker ends
	}
	if refused {
		q.hush(r.Origin, n.NextAttempt)
	}
	q.write(&n, final.Attempts)
}

// intend writes that an attempt begins.
func (q *Queue) intend(r *Record, repeatable bool, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeWithin)
	defer cancel()
	err := q.explain(ctx, "begin", q.cfg.Store.Begin(ctx, r.Seq, r.Epoch, repeatable, now))
	if _, failed := errors.AsType[*StoreError](err); failed || ctx.Err() != nil {
		q.rest(storeAgain)
	}
	return err
}

// interrupted is what becomes of a record whose attempt the end of the broker cut: as after a crash, but with what is known.
func (r *Record) interrupted(f *call.Final, t *Terms, now time.Time) Record {
	n := *r
	n.Updated, n.Effect, n.FirstSend, n.Detail = now, f.Effect, f.FirstSend, f.Detail
	n.Outcome, n.Reason = f.Outcome, f.Reason
	switch {
	case f.Effect != call.EffectUnknown || t.Repeatable:
		return n.again(now, 0)
	}
	return n.ended(StateUnknown, FailureNone, now, 0)
}

// write writes what became of a record, again and again until the store takes it; at the end of the broker it stays begun, which is judged
// at the next start.
func (q *Queue) write(n *Record, attempts []call.Attempt) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), storeWithin)
		err := q.explain(ctx, "write", q.cfg.Store.End(ctx, n, attempts))
		cancel()
		if err == nil || errors.Is(err, ErrSuperseded) {
			return
		}
		if !q.rest(storeAgain) {
			return
		}
	}
}

// land gives the place back.
func (q *Queue) land(r *Record, f *flight) {
	f.cancel(nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.flights, r.Seq)
	if q.lanes[r.Origin]--; q.lanes[r.Origin] == 0 {
		delete(q.lanes, r.Origin)
	}
}

func (q *Queue) wasAsked(f *flight) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return f.asked
}

// hush leaves an origin alone for a while.
func (q *Queue) hush(origin string, until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if until.After(q.quiet[origin]) {
		q.quiet[origin] = until
	}
}

// tidy looks for what is expired or has outlived its retention.
func (q *Queue) tidy() {
	for q.rest(tidyEvery) {
		for more := true; more && !q.isClosed(); {
			ctx, cancel := context.WithTimeout(context.Background(), storeWithin)
			var err error
			more, err = q.cfg.Keeper.Expire(ctx, q.now())
			more = q.explain(ctx, "expire", err) == nil && more
			cancel()
		}
	}
}
