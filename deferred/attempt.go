package deferred

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/sallyport/sallyport/call"
)

// fly makes one attempt of a record, and writes what became of it.
func (q *Queue) fly(ctx context.Context, f *flight) {
	defer func() {
		q.places.land(f)
		q.due.nudge()
	}()
	r := f.record
	t, err := q.judge(r)
	now := q.now()
	switch {
	case isClosed(q.closed):
		return
	case err != nil:
		q.write(r, unjudged(r, err, now), nil) //nolint:contextcheck // what became of it is written whoever has gone, here and below
		return
	case r.past(now):
		n := r.dead(FailureExpired, &t, now)
		q.write(r, &n, nil) //nolint:contextcheck // see above
		return
	case r.forbidden(&t):
		n := r.parked(now)
		q.write(r, &n, nil) //nolint:contextcheck // see above
		return
	}
	if !q.intend(r, t.Repeatable, now) { //nolint:contextcheck // see above
		return
	}
	begun := *r
	begun.State, begun.Epoch, begun.Repeatable = StateSending, r.Epoch+1, t.Repeatable
	final := q.dispatch(ctx, r, &t)
	ended := q.now()
	n, quiet := next(&begun, &dispatch{final: &final, terms: &t, asked: q.places.asked(f), random: rand.Float64()}, ended)
	switch quiet {
	case silenceLane:
		q.places.leave(Lane{r.Caller, r.Origin}, n.NextAttempt)
	case silenceOrigin:
		q.places.leave(Lane{"", r.Origin}, n.NextAttempt)
	}
	q.write(&begun, &n, logged(r, &n, final.Attempts, now)) //nolint:contextcheck // see above
}

// judge has a panic count as one call's: it is looked at again later.
func (q *Queue) judge(r *Record) (t Terms, err error) {
	defer func() {
		if v := recover(); v != nil {
			q.cfg.Log.Error("judging a deferred call panicked", "id", r.ID, "panic", v, "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return q.cfg.Dispatcher.Judge(r)
}

var errPanicked = errors.New("the broker failed to judge this call")

// unjudged is what becomes of a record that cannot be made under the policies of today, or by an error of ours.
func unjudged(r *Record, err error, now time.Time) *Record {
	n := *r
	n.Updated, n.Detail = now, err.Error()
	t := &Terms{Repeatable: r.Repeatable}
	if errors.Is(err, errPanicked) {
		n.NextAttempt = now.Add(longDelay)
	} else {
		n = n.dead(FailurePermanent, t, now)
	}
	return &n
}

// dispatch has a panic count as one attempt's, of which nobody knows how far it got.
func (q *Queue) dispatch(ctx context.Context, r *Record, t *Terms) (final call.Final) {
	begun := q.now()
	defer func() {
		if v := recover(); v != nil {
			q.cfg.Log.Error("an attempt of a deferred call panicked", "id", r.ID, "panic", v, "stack", string(debug.Stack()))
			final = *lostIn(r, begun, q.now(), "the broker failed in this attempt")
		}
	}()
	return q.cfg.Dispatcher.Dispatch(ctx, r, t)
}

// intend writes that an attempt begins, and reports whether it may. Where nobody knows whether that was written, it is found out first: what
// stays SENDING and has nobody who works on it would stay for ever.
func (q *Queue) intend(r *Record, repeatable bool, now time.Time) bool {
	for doubt := false; ; {
		err := q.use("begin", func(ctx context.Context) error { return q.cfg.Store.Begin(ctx, r.Seq, r.Epoch, repeatable, now) })
		switch {
		case err == nil:
			q.changes.tell()
			return true
		case isStoreError(err):
			doubt = true
		case !doubt:
			return false // cancelled or expired since it was read
		}
		stands, known := q.standing(r)
		switch {
		case !known:
			q.undo(r)
			return false
		case stands.State == StateSending && stands.Epoch == r.Epoch+1:
			return true
		case stands.Seq != r.Seq || stands.Epoch != r.Epoch || stands.State.Finished() || isClosed(q.closed):
			return false
		}
	}
}

// standing reads a record after a pause, and again until the store can be read; false: it was not before Close.
func (q *Queue) standing(r *Record) (stands Record, known bool) {
	for pause(q.closed) {
		err := q.use("find", func(ctx context.Context) (err error) {
			stands, err = q.cfg.Store.Find(ctx, r.Caller, r.ID)
			return err
		})
		if !isStoreError(err) {
			return stands, true // purged: it has no number
		}
	}
	return Record{}, false
}

// undo takes back that an attempt begins, which may have been written; nothing of it has left.
func (q *Queue) undo(r *Record) {
	n := *r
	n.Epoch++
	_ = q.use("end", func(ctx context.Context) error { return q.cfg.Store.End(ctx, &n, nil) }) // else the next start judges it
}

// write writes what a record has become, again and again until the store takes it, or the end of the broker hurries: then it stays begun,
// which is judged at the next start.
func (q *Queue) write(before, n *Record, attempts []call.Attempt) {
	for hurried := false; ; {
		err := q.use("end", func(ctx context.Context) error { return q.cfg.Store.End(ctx, n, attempts) })
		if !isStoreError(err) || hurried || q.settled(before) {
			q.written(n)
			if n.State == StateUnknown {
				q.askLater(n)
			}
			return
		}
		hurried = !pause(q.hurry)
	}
}

// settled: what the record was is no more, so that a write of which nobody knew was done.
func (q *Queue) settled(before *Record) bool {
	var stands Record
	err := q.use("find", func(ctx context.Context) (err error) {
		stands, err = q.cfg.Store.Find(ctx, before.Caller, before.ID)
		return err
	})
	return err == nil && (stands.State != before.State || stands.Epoch != before.Epoch) || errors.Is(err, ErrNotFound)
}

// use uses the store within its time.
func (q *Queue) use(what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeWithin)
	defer cancel()
	return q.storeError(what, f(ctx))
}

func isStoreError(err error) bool {
	_, failed := errors.AsType[*StoreError](err)
	return failed
}
