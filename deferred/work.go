package deferred

import (
	"context"
	"time"
)

// recover reports whether what an earlier process left is in order.
func (q *Queue) recover() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := q.cfg.Keeper.Recover(ctx, q.now())
	if q.storeError("recover", err) != nil {
		return false
	}
	if n > 0 {
		q.cfg.Log.Warn("attempts of deferred calls were under way when the broker ended", "calls", n)
		q.changes.tell()
	}
	return true
}

// ahead is what the worker has read and not begun, and what its last read left out.
type ahead struct {
	records []Record
	full    []string // origins that had their share
}

// work begins what is due until Close. The store is read where that may give something, and at no other time: a wait that ended, a word of
// what was submitted or written, an origin that has room again.
func (q *Queue) work() {
	var a ahead
	q.due.ring()
	for !isClosed(q.closed) {
		now := q.now()
		q.begin(&a, now)
		free := q.places.free()
		switch {
		case free > 0 && (q.due.due(now) || q.places.anyRoom(a.full)):
			if !q.read(&a, now) && !pause(q.closed) {
				return
			}
		case free > 0:
			if !q.due.wait(now, q.closed) {
				return
			}
		default:
			if !q.due.landing(q.closed) {
				return
			}
		}
	}
}

// read reads what may be begun now; false: the store failed.
func (q *Queue) read(a *ahead, now time.Time) bool {
	q.due.clear()
	without, full, busy, until := q.places.look(now)
	for i := range a.records {
		busy[a.records[i].Seq] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeWithin)
	defer cancel()
	due, next, err := q.cfg.Store.Due(ctx, now, batch, without, busy)
	if q.storeError("look for what is due", err) != nil {
		q.due.ring()
		return false
	}
	a.records, a.full = append(a.records, due...), full
	q.due.by(now.Add(lookEvery))
	q.due.by(until)
	if !next.After(now) && !next.IsZero() {
		next = now.Add(shortDelay)
	}
	q.due.by(next)
	if len(due) >= batch {
		q.due.ring() // there may be more
	}
	return true
}

// begin begins what was read and has room. What has none stays, no more of an origin than it may have at once; the rest is read again.
func (q *Queue) begin(a *ahead, now time.Time) {
	kept := a.records[:0]
	waiting := map[string]int{}
	for i := range a.records {
		r := &a.records[i]
		own := *r
		ctx, f, said := q.places.take(&own, now)
		switch said {
		case taken:
			q.runs.Go(func() { q.fly(ctx, f) })
		case leftAlone: // it is read again when the quiet is over
		case noRoom:
			if waiting[r.Origin]++; waiting[r.Origin] <= q.places.share {
				kept = append(kept, own)
				continue
			}
			a.full = append(a.full, r.Origin)
		}
	}
	clear(a.records[len(kept):])
	a.records = kept
}

// tidy looks for what is expired or has outlived its retention, when there is some.
func (q *Queue) tidy() {
	q.ends.ring()
	for !isClosed(q.closed) {
		now := q.now()
		if !q.ends.due(now) {
			if !q.ends.wait(now, q.closed) {
				return
			}
			continue
		}
		if !q.expire(now) && !pause(q.closed) {
			return
		}
	}
}

// expire does a piece of it; false: the store failed.
func (q *Queue) expire(now time.Time) bool {
	q.ends.clear()
	ctx, cancel := context.WithTimeout(context.Background(), storeWithin)
	defer cancel()
	next, more, err := q.cfg.Keeper.Expire(ctx, now)
	q.changes.tell()
	if q.storeError("expire", err) != nil {
		q.ends.ring()
		return false
	}
	if !next.After(now) && !next.IsZero() {
		next = now.Add(shortDelay)
	}
	q.ends.by(next)
	q.ends.by(now.Add(lookEvery))
	if more {
		q.ends.ring()
	}
	return true
}

// storeError is explain for what nobody waits for: its time has no other end than the store's.
func (q *Queue) storeError(what string, err error) error {
	return q.explain(context.Background(), what, err)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
