package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
)

// pieces does one thing to the calls of these numbers, a piece of them in a transaction, each as it is then, and tells to how many. k counts
// those before it. Those that are damaged are left, and told of when all are done.
func (d Deferred) pieces(ctx context.Context, numbers []int64, does func(ctx context.Context, b *batch, r *callRow, k int) (bool, error)) (int, error) {
	all := 0
	var damage error
	for part := range slices.Chunk(numbers, piece) {
		done := 0
		var damaged error
		err := d.l.commits.do(ctx, mostTogetherBytes, func(ctx context.Context, b *batch) error {
			done, damaged = 0, nil
			return b.eachCall(ctx, part, &damaged, func(r *callRow) error {
				did, err := does(ctx, b, r, all+done)
				if did && err == nil {
					done++
				}
				return err
			})
		})
		if err != nil {
			return all, errors.Join(damage, err)
		}
		all += done
		damage = errors.Join(damage, damaged)
	}
	return all, damage
}

// eachCall does f to these calls, but for those that are gone, and those that are damaged, of which the first is told.
func (b *batch) eachCall(ctx context.Context, numbers []int64, damaged *error, f func(*callRow) error) error {
	c := b.calls(ctx)
	for _, n := range numbers {
		r, found, err := c.bySeq(ctx, uint64(n)) //nolint:gosec // from 1
		if err == nil && found {
			err = f(&r)
		}
		switch {
		case errors.Is(err, ErrDamaged):
			if *damaged == nil {
				*damaged = err
			}
		case err != nil:
			return err
		}
	}
	return nil
}

// Recover implements [deferred.Keeper]. Where rows are damaged it recovers the others and returns [ErrDamaged].
func (d Deferred) Recover(ctx context.Context, now time.Time) (int, error) {
	if _, err := storedTime(now); err != nil {
		return 0, d.l.explain(ctx, err)
	}
	left, err := list(ctx, &d.l.file, scanNumber, "SELECT seq FROM calls INDEXED BY calls_sending WHERE state = 3 ORDER BY seq")
	if err != nil {
		return 0, err
	}
	n, err := d.pieces(ctx, left, func(ctx context.Context, b *batch, r *callRow, _ int) (bool, error) {
		if r.State != deferred.StateSending {
			return false, nil
		}
		return true, b.orphaned(ctx, r, now)
	})
	return n, d.l.explain(ctx, err)
}

// orphaned ends the attempt of a call that was under way when the process before this one ended.
func (b *batch) orphaned(ctx context.Context, r *callRow, now time.Time) error {
	c := b.calls(ctx)
	if err := c.load(ctx, c.keys, r, parts{attempts: true}); err != nil {
		return err
	}
	became, attempt := deferred.Orphaned(&r.Record, now)
	attempts := []call.Attempt{attempt}
	sealed, err := keysFor(c.keys, &r.Record).sealAttempts(attempts)
	if err != nil {
		return err
	}
	next := r.becomes(&became)
	if !next.State.Finished() {
		return b.writeCall(ctx, r, &next, answer{}, sealed)
	}
	return b.finish(ctx, r, &next, answer{}, sealed, attempts)
}

// Cancel implements [deferred.Keeper].
func (d Deferred) Cancel(ctx context.Context, caller, id string, now, until time.Time) (deferred.Record, error) {
	for _, t := range []time.Time{now, until} {
		if _, err := storedTime(t); err != nil {
			return deferred.Record{}, d.l.explain(ctx, err)
		}
	}
	err := d.l.commits.do(ctx, 4<<10, func(ctx context.Context, b *batch) error {
		old, err := b.calls(ctx).named(ctx, caller, id)
		switch {
		case err != nil:
			return err
		case old.State.Finished():
			return deferred.ErrFinished
		case old.State == deferred.StateSending:
			return deferred.ErrSending
		}
		became := old.Cancelled(now, until)
		next := old.becomes(&became)
		return b.finish(ctx, &old, &next, answer{}, nil, nil)
	})
	if err != nil {
		return deferred.Record{}, d.l.explain(ctx, err)
	}
	return d.Find(ctx, caller, id)
}

// Redrive implements [deferred.Keeper]. What a filter picks is redriven in pieces. A call whose operation id stands for something else by now
// is left alone by a filter, and [deferred.ErrConflict] where it is named.
func (d Deferred) Redrive(ctx context.Context, which *deferred.Which, perSecond float64, now time.Time) (uint64, error) {
	if _, err := storedTime(now); err != nil {
		return 0, d.l.explain(ctx, err)
	}
	if which.IDs != nil {
		return d.named(ctx, which, func(ctx context.Context, b *batch, r *callRow, k int) error {
			return b.redrive(ctx, r, spaced(now, k, perSecond), now)
		}, func(ctx context.Context, b *batch, r *callRow) error {
			if r.State != deferred.StateFailed && r.State != deferred.StateUnknown {
				return deferred.ErrState
			}
			if takes, _, _, err := b.takes(ctx, r); err != nil || !takes {
				return errors.Join(err, deferred.ErrConflict)
			}
			return nil
		})
	}
	return d.picked(ctx, which, "AND c.state IN (5, 6)", func(ctx context.Context, b *batch, r *callRow, k int) (bool, error) {
		if r.State != deferred.StateFailed && r.State != deferred.StateUnknown {
			return false, nil
		}
		takes, _, _, err := b.takes(ctx, r)
		if err != nil || !takes {
			return false, err
		}
		return true, b.redrive(ctx, r, spaced(now, k, perSecond), now)
	})
}

// spaced is when the k-th is due, from 0.
func spaced(now time.Time, k int, perSecond float64) time.Time {
	if perSecond <= 0 {
		return now
	}
	return now.Add(time.Duration(float64(k) / perSecond * float64(time.Second)))
}

// takes: the operation id of a call is its own, or free.
func (b *batch) takes(ctx context.Context, r *callRow) (bool, *row, bool, error) {
	op, found, err := b.find(ctx, r.key())
	return !found || op.Deferred == r.ID || op.Free(), &op, found, err
}

func (b *batch) redrive(ctx context.Context, r *callRow, due, now time.Time) error {
	became := r.Redriven(now, due)
	next := r.becomes(&became)
	next.NotBefore = became.NotBefore
	return b.revive(ctx, r, &next, answer{}, now)
}

// revive writes a finished call that is to be sent again, and takes its operation id again.
func (b *batch) revive(ctx context.Context, old, next *callRow, a answer, now time.Time) error {
	takes, op, found, err := b.takes(ctx, old)
	if err == nil && !takes {
		err = deferred.ErrConflict
	}
	if err != nil {
		return err
	}
	if err := b.writeCall(ctx, old, next, a, nil); err != nil {
		return err
	}
	return b.takeOperation(ctx, &next.Record, op, found, now)
}

// Purge implements [deferred.Keeper]. What a filter picks goes in pieces.
func (d Deferred) Purge(ctx context.Context, which *deferred.Which) (uint64, error) {
	if which.IDs != nil {
		return d.named(ctx, which, func(ctx context.Context, b *batch, r *callRow, _ int) error {
			return b.removeCall(ctx, r)
		}, func(_ context.Context, _ *batch, r *callRow) error {
			if !r.State.Finished() {
				return deferred.ErrState
			}
			return nil
		})
	}
	return d.picked(ctx, which, "AND c.state IN (4, 5, 6, 7)", func(ctx context.Context, b *batch, r *callRow, _ int) (bool, error) {
		if !r.State.Finished() {
			return false, nil
		}
		return true, b.removeCall(ctx, r)
	})
}

// named does one thing to all that are named, or to none where one may not be.
func (d Deferred) named(ctx context.Context, which *deferred.Which, does func(context.Context, *batch, *callRow, int) error,
	may func(context.Context, *batch, *callRow) error,
) (uint64, error) {
	ids := slices.Clone(which.IDs)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	err := d.l.commits.do(ctx, int64(len(ids))<<10, func(ctx context.Context, b *batch) error {
		var rows []callRow
		for _, id := range ids {
			r, err := b.calls(ctx).named(ctx, which.Filter.Caller, id)
			if err == nil {
				err = may(ctx, b, &r)
			}
			if err != nil {
				return err
			}
			rows = append(rows, r)
		}
		slices.SortFunc(rows, func(x, y callRow) int { return int(signed(x.Seq) - signed(y.Seq)) })
		for i := range rows {
			if err := does(ctx, b, &rows[i], i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, d.l.explain(ctx, err)
	}
	return uint64(len(ids)), nil
}

// picked does one thing to all that a filter picks, the oldest first, in pieces.
func (d Deferred) picked(ctx context.Context, which *deferred.Which, and string,
	does func(ctx context.Context, b *batch, r *callRow, k int) (bool, error),
) (uint64, error) {
	from, args, err := picks(&which.Filter)
	if err != nil {
		return 0, d.l.explain(ctx, err)
	}
	numbers, err := list(ctx, &d.l.file, scanNumber, "SELECT c.seq FROM "+from+" "+and+" ORDER BY c.seq", args...)
	if err != nil {
		return 0, err
	}
	n, err := d.pieces(ctx, numbers, does)
	return uint64(n), d.l.explain(ctx, err) //nolint:gosec // from 0
}

// The queries for what a time does.
const (
	givenUp  = "SELECT seq FROM calls INDEXED BY calls_expiring WHERE waits = 1 AND expire <> '' AND expire <= ? ORDER BY expire LIMIT ?"
	outgrown = "SELECT seq FROM calls INDEXED BY calls_outlived WHERE until <> '' AND until <= ? ORDER BY until LIMIT ?"
)

// Expire implements [deferred.Keeper].
func (d Deferred) Expire(ctx context.Context, now time.Time) (next time.Time, more bool, err error) {
	at, err := storedTime(now)
	if err != nil {
		return time.Time{}, false, d.l.explain(ctx, err)
	}
	if more, err = d.expire(ctx, at, now); err != nil {
		return time.Time{}, more, err
	}
	next, err = d.nextExpiry(ctx, at)
	return next, more, err
}

func (d Deferred) expire(ctx context.Context, at string, now time.Time) (bool, error) {
	// Mostly there is nothing, and then nobody needs to write.
	some, err := list(ctx, &d.l.file, scanNumber, "SELECT seq FROM ("+givenUp+") UNION ALL SELECT seq FROM ("+outgrown+")", at, 1, at, 1)
	if err != nil || len(some) == 0 {
		return false, err
	}
	var (
		more    bool
		damaged error
	)
	err = d.l.commits.do(ctx, mostTogetherBytes, func(ctx context.Context, b *batch) error {
		more, damaged = false, nil
		for _, one := range []struct {
			query string
			does  func(*callRow) error
		}{
			{givenUp, func(r *callRow) error { return b.giveUp(ctx, r, now) }},
			{outgrown, func(r *callRow) error {
				if !r.State.Finished() || r.Until.IsZero() || now.Before(r.Until) {
					return nil // the index is damaged
				}
				return b.removeCall(ctx, r)
			}},
		} {
			numbers, err := numbersOf(ctx, b.tx, one.query, at, piece+1)
			if err != nil {
				return err
			}
			if len(numbers) > piece {
				more, numbers = true, numbers[:piece]
			}
			if err := b.eachCall(ctx, numbers, &damaged, one.does); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && damaged != nil {
		more, err = false, damaged // the damaged ones would be found again and again
	}
	return more, d.l.explain(ctx, err)
}

func (b *batch) giveUp(ctx context.Context, r *callRow, now time.Time) error {
	if !r.waits() || r.Expire.IsZero() || now.Before(r.Expire) {
		return nil // the index is damaged
	}
	became := r.Expired(now)
	next := r.becomes(&became)
	return b.finish(ctx, r, &next, answer{}, nil, nil)
}

// nextExpiry is when there is something to do after that instant; zero for never.
func (d Deferred) nextExpiry(ctx context.Context, at string) (time.Time, error) {
	all, err := list(ctx, &d.l.file, func(rows *sql.Rows) (at string, err error) {
		err = rows.Scan(&at)
		return at, err //nolint:wrapcheck // explained by list
	}, `SELECT expire FROM (SELECT expire FROM calls INDEXED BY calls_expiring WHERE waits = 1 AND expire <> '' AND expire > ?1 ORDER BY expire LIMIT 1)
		UNION ALL SELECT until FROM (SELECT until FROM calls INDEXED BY calls_outlived WHERE until <> '' AND until > ?1 ORDER BY until LIMIT 1)`, at)
	if err != nil || len(all) == 0 {
		return time.Time{}, err
	}
	next, err := readTime(slices.Min(all))
	return next, d.l.explain(ctx, err)
}
