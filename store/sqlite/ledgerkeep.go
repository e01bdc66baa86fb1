package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

const (
	// piece is how many rows are changed at a time by what is not a call, and pieceBytes from how much on no more are: calls wait for
	// it meanwhile, some 50 ms.
	piece      = 500
	pieceBytes = 4 << 20
)

// Settle implements [operation.Keeper]. Where rows are damaged it settles the others and returns [ErrDamaged].
func (l *Ledger) Settle(ctx context.Context, owner string, now time.Time) (int, error) {
	if _, err := formatTime(now); err != nil {
		return 0, l.explain(ctx, err)
	}
	left, err := list(ctx, &l.file, scanNumber,
		"SELECT n FROM operations INDEXED BY operations_led WHERE state = 1 AND deferred = '' AND owner <> ? ORDER BY n", owner)
	if err != nil {
		return 0, err
	}
	all := 0
	var damage error
	for numbers := range slices.Chunk(left, piece) {
		settled := 0
		var damaged error
		err := l.commits.do(ctx, mostTogetherBytes, func(ctx context.Context, b *batch) error {
			settled, damaged = 0, nil
			return b.each(ctx, numbers, &damaged, func(r *row) error {
				if r.State != operation.StateRunning || r.Owner == owner || r.Deferred != "" {
					return nil
				}
				settled++
				next := *r
				settle(&next.Record, now)
				return b.update(ctx, r, &next)
			})
		})
		if err != nil {
			return all, l.explain(ctx, err)
		}
		all += settled
		damage = errors.Join(damage, damaged)
	}
	return all, l.explain(ctx, damage)
}

// settle ends what nobody leads any more.
func settle(r *operation.Record, now time.Time) {
	r.UpdateTime = now
	if !r.MustNotRepeat {
		r.State, r.Fingerprint, r.Effect = operation.StateFinished, operation.Fingerprint{}, call.EffectUnknown
		return
	}
	r.State = operation.StateUnknown
	r.Told = call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}
	if r.Outcome == call.OutcomeUnspecified {
		r.Outcome, r.Reason, r.Effect = call.OutcomeUnknown, call.ReasonNotRepeatable, call.EffectUnknown
	}
}

// Prune implements [operation.Keeper]. Where rows are damaged they stay, and it returns [ErrDamaged] when it is done with the others of
// the piece.
func (l *Ledger) Prune(ctx context.Context, now time.Time, mostBodyBytes int64) (bool, error) {
	at, err := formatTime(now)
	if err != nil {
		return false, l.explain(ctx, err)
	}
	var p pruning
	err = l.commits.do(ctx, mostTogetherBytes, func(ctx context.Context, b *batch) error {
		p = pruning{batch: b, now: now}
		return p.prune(ctx, at, mostBodyBytes)
	})
	if err == nil {
		err = p.damaged
	}
	return p.more, l.explain(ctx, err)
}

// pruning is one piece of it.
type pruning struct {
	*batch

	now     time.Time
	rows    int   // that were changed
	bytes   int64 // that they had
	more    bool
	damaged error
}

// The queries for what goes. A row that outlived all of its time is removed by the first and none of the others' business.
const (
	outlived = `SELECT n FROM operations INDEXED BY operations_until
		WHERE state <> 1 AND until <= ? ORDER BY until, n LIMIT ?`
	stripped = `SELECT n FROM operations INDEXED BY operations_body_until
		WHERE strips = 1 AND body_until <= ? AND until > ? ORDER BY body_until, n LIMIT ?`
	oldest = `SELECT n FROM operations INDEXED BY operations_bodies
		WHERE kept > 0 AND state <> 1 ORDER BY update_time, caller, id LIMIT ?`
)

func (p *pruning) prune(ctx context.Context, at string, mostBodyBytes int64) error {
	for _, one := range []struct {
		query string
		args  []any
		needs func() bool
		does  func(r *row) error
	}{
		{outlived, []any{at}, always, func(r *row) error {
			if p.now.Before(r.Until) {
				return nil // the index is damaged
			}
			return p.remove(ctx, r)
		}},
		{stripped, []any{at, at}, always, func(r *row) error {
			if p.now.Before(r.BodyUntil) {
				return nil // the index is damaged
			}
			return p.strip(ctx, r, r.State == operation.StateFinished)
		}},
		{oldest, nil, func() bool { return p.bodies > mostBodyBytes }, func(r *row) error {
			return p.strip(ctx, r, false)
		}},
	} {
		numbers, err := numbersOf(ctx, p.tx, one.query, append(one.args, piece+1-p.rows)...)
		if err != nil {
			return err
		}
		for _, n := range numbers {
			if !one.needs() {
				return nil
			}
			if p.rows >= piece || p.bytes >= pieceBytes {
				p.more = true
				return nil
			}
			p.rows++ // also one that is damaged, so that a piece has an end
			err := p.each(ctx, []int64{n}, &p.damaged, func(r *row) error {
				p.bytes += r.size()
				if r.State == operation.StateRunning {
					return nil // the index is damaged
				}
				return one.does(r)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func always() bool { return true }

// strip drops the body of a row, and its details too.
func (p *pruning) strip(ctx context.Context, r *row, details bool) error {
	next := *r
	next.Body, next.kept = nil, 0
	if details {
		next.Details = nil
	}
	return p.update(ctx, r, &next)
}

// each does f to these rows, but for those that are gone, and those that are damaged, of which the first is told.
func (b *batch) each(ctx context.Context, numbers []int64, damaged *error, f func(*row) error) error {
	for _, n := range numbers {
		all, err := rowsOf(ctx, b.get, scanOperation, n)
		switch {
		case errors.Is(err, ErrDamaged):
			if *damaged == nil {
				*damaged = err
			}
		case err != nil:
			return err
		case len(all) == 1:
			if err := f(&all[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

func numbersOf(ctx context.Context, tx *sql.Tx, query string, args ...any) ([]int64, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	return gather(rows, err, scanNumber)
}

func scanNumber(rows *sql.Rows) (n int64, err error) {
	if err = rows.Scan(&n); err != nil {
		err = errors.Join(ErrDamaged, err)
	}
	return n, err
}
