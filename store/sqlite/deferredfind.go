package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/deferred"
)

// picks is the FROM and WHERE of what a filter picks, with the calls named c: by the index that leaves least to look at, and the rest of it
// row by row.
func picks(f *deferred.Filter) (from string, args []any, err error) {
	from = "calls c"
	var where []string
	names := labelNames(f.Labels)
	switch {
	case f.Caller != "" && len(names) > 0:
		from = "labels l CROSS JOIN calls c ON c.seq = l.seq"
		where = append(where, "l.caller = ? AND l.name = ? AND l.value = ?")
		args = append(args, f.Caller, names[0], f.Labels[names[0]])
	case f.Caller != "" && f.State != 0:
		from += " INDEXED BY calls_by_state"
	case f.Caller != "" && f.Origin != "":
		from += " INDEXED BY calls_by_lane"
		where = append(where, "c.lane = (SELECT n FROM lanes WHERE caller = ? AND origin = ?)")
		args = append(args, f.Caller, f.Origin)
	case f.Caller != "":
		from += " INDEXED BY calls_by_caller"
	}
	for _, one := range []struct {
		is    bool
		where string
		arg   any
	}{
		{f.Caller != "", "c.caller = ?", f.Caller},
		{f.State != 0, "c.state = ?", int64(f.State)},
		{f.Origin != "", "c.origin = ?", f.Origin},
	} {
		if one.is {
			where, args = append(where, one.where), append(args, one.arg)
		}
	}
	for _, name := range names {
		where = append(where, "EXISTS (SELECT 1 FROM labels WHERE caller = c.caller AND name = ? AND value = ? AND seq = c.seq)")
		args = append(args, name, f.Labels[name])
	}
	for _, t := range []struct {
		at    time.Time
		where string
	}{{f.CreatedAfter, "c.created >= ?"}, {f.CreatedBefore, "c.created < ?"}} {
		if t.at.IsZero() {
			continue
		}
		at, err := storedTime(t.at)
		if err != nil {
			return "", nil, err
		}
		where, args = append(where, t.where), append(args, at)
	}
	if len(where) == 0 {
		where = []string{"true"}
	}
	return from + " WHERE " + strings.Join(where, " AND "), args, nil
}

// columnsOf are those of calls, of the table of that name.
var columnsOfC = "c.seq, c." + strings.ReplaceAll(strings.Join(strings.Fields(callColumns), " "), ", ", ", c.") //nolint:gochecknoglobals // a constant

// listed is what a list shows.
var listed = parts{request: true, attempts: true, answer: true} //nolint:gochecknoglobals // a constant

// List implements [deferred.Finder]. A record has its Request and its Attempts, and its Response without the body.
func (d Deferred) List(ctx context.Context, f *deferred.Filter, before uint64, n int) ([]deferred.Record, error) {
	from, args, err := picks(f)
	if err != nil {
		return nil, d.l.explain(ctx, err)
	}
	all, err := d.records(ctx, "SELECT "+columnsOfC+" FROM "+from+" AND c.seq < ? ORDER BY c.seq DESC LIMIT ?",
		append(args, below(before), atMost(n)), nil)
	return all, d.l.explain(ctx, err)
}

// records reads what a query gives, with what a list shows; also hears of the transaction first.
func (d Deferred) records(ctx context.Context, query string, args []any, also func(tx *sql.Tx) error) ([]deferred.Record, error) {
	var all []deferred.Record
	err := d.l.atOnce(ctx, func(c *callTable, tx *sql.Tx) error {
		if also != nil {
			if err := also(tx); err != nil {
				return err
			}
		}
		rows, err := tx.QueryContext(ctx, query, args...)
		found, err := gather(rows, err, scanCall)
		if err != nil {
			return err
		}
		for i := range found {
			if err := c.load(ctx, d.l.keys, &found[i], listed); err != nil {
				return err
			}
			all = append(all, found[i].Record)
		}
		return nil
	})
	return all, err
}

// Changes implements [deferred.Keeper]. The records are as List gives them.
func (d Deferred) Changes(ctx context.Context, f *deferred.Filter, after uint64, n int) ([]deferred.Record, uint64, error) {
	from, args, err := changesOf(f)
	if err != nil {
		return nil, 0, d.l.explain(ctx, err)
	}
	var present int64
	changes := []int64{}
	var all []deferred.Record
	err = d.l.atOnce(ctx, func(c *callTable, tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT last FROM changes").Scan(&present); err != nil {
			return err //nolint:wrapcheck // explained below
		}
		if n <= 0 {
			return nil
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+columnsOfC+" FROM "+from+" AND c.change > ? ORDER BY c.change LIMIT ?", //nolint:gosec // all of it is ours
			append(args, signedPosition(after), n)...)
		found, err := gather(rows, err, scanCall)
		if err != nil {
			return err
		}
		for i := range found {
			if err := c.load(ctx, d.l.keys, &found[i], listed); err != nil {
				return err
			}
			all, changes = append(all, found[i].Record), append(changes, found[i].change)
		}
		return nil
	})
	if err != nil {
		return nil, 0, d.l.explain(ctx, err)
	}
	position := max(after, uint64(present)) //nolint:gosec // from 0
	switch {
	case n <= 0 && after > 0:
		position = after
	case n > 0 && len(changes) == n:
		position = uint64(changes[n-1]) //nolint:gosec // from 1
	}
	return all, position, nil
}

func signedPosition(n uint64) int64 { return below(n) * flag(n > 0) }

// changesOf is picks by the order of changes.
func changesOf(f *deferred.Filter) (string, []any, error) {
	ofAny := *f
	ofAny.Caller = ""
	from, args, err := picks(&ofAny)
	from = strings.Replace(from, "calls c", "calls c INDEXED BY calls_by_change", 1)
	if f.Caller != "" {
		from, args = from+" AND c.caller = ?", append(args, f.Caller)
	}
	return from, args, err
}

// candidate is a call that is due.
type candidate struct {
	seq  int64
	rank int64
	next string
}

// dueLane is a lane with something due.
type dueLane struct {
	n int64
	deferred.Lane

	next  string
	turn  uint64
	at    candidate // the last that was read
	found []int64
	over  bool // it has no more
}

// Due implements [deferred.Finder]. A lane is read only if it has something due, and no further than its share; damaged calls are left out,
// and told of where there is nothing else. Lanes take turns from one use to the next too.
func (d Deferred) Due(ctx context.Context, now time.Time, n int, without map[deferred.Lane]bool, busy map[uint64]bool,
) (due []deferred.Record, next time.Time, err error) {
	at, err := storedTime(now)
	if err != nil {
		return nil, time.Time{}, d.l.explain(ctx, err)
	}
	err = d.l.atOnce(ctx, func(c *callTable, tx *sql.Tx) error {
		lanes, err := lanesDue(ctx, tx, at, without)
		if err != nil {
			return err
		}
		d.l.inTurn(lanes)
		numbers, err := share(ctx, tx, lanes, at, n, busy)
		if err != nil {
			return err
		}
		d.l.served(lanes)
		var damaged error
		for _, seq := range numbers {
			r, found, err := c.bySeq(ctx, uint64(seq)) //nolint:gosec // from 1
			if err == nil && found {
				err = c.load(ctx, d.l.keys, &r, parts{request: true})
			}
			switch {
			case errors.Is(err, ErrDamaged):
				damaged = errors.Join(damaged, err)
			case err != nil:
				return err
			case found:
				due = append(due, r.Record)
			}
		}
		switch {
		case len(due) == 0 && damaged != nil:
			return damaged
		case len(due) == n: // whoever asks again has work; with thousands of lanes the question is dear
			return nil
		case len(numbers) == n: // damaged ones have the places of what there may be more
			next = now
			return nil
		}
		next, err = nextDue(ctx, tx, lanes, at, without, busy)
		return err
	})
	if err != nil {
		return nil, time.Time{}, d.l.explain(ctx, err)
	}
	return due, next, nil
}

func leftOut(without map[deferred.Lane]bool, l deferred.Lane) bool {
	return without[l] || without[deferred.Lane{Origin: l.Origin}]
}

func lanesDue(ctx context.Context, tx *sql.Tx, at string, without map[deferred.Lane]bool) ([]*dueLane, error) {
	rows, err := tx.QueryContext(ctx, "SELECT n, caller, origin, next FROM lanes INDEXED BY lanes_by_next WHERE next <> '' AND next <= ? ORDER BY next", at)
	all, err := gather(rows, err, func(rows *sql.Rows) (*dueLane, error) {
		l := &dueLane{}
		if err := rows.Scan(&l.n, &l.Caller, &l.Origin, &l.next); err != nil {
			return nil, fmt.Errorf("%w: a lane: %w", ErrDamaged, err)
		}
		return l, nil
	})
	return slices.DeleteFunc(all, func(l *dueLane) bool { return leftOut(without, l.Lane) }), err
}

// inTurn orders lanes by who was served longest ago, and forgets those that have nothing due.
func (l *Ledger) inTurn(lanes []*dueLane) {
	l.mu.Lock()
	turns := make(map[int64]uint64, len(lanes))
	for _, one := range lanes {
		one.turn = l.turns[one.n]
		turns[one.n] = one.turn
	}
	l.turns = turns
	l.mu.Unlock()
	slices.SortStableFunc(lanes, func(a, b *dueLane) int {
		switch {
		case a.turn < b.turn:
			return -1
		case a.turn > b.turn:
			return 1
		}
		return 0
	})
}

// served notes whose turn it was.
func (l *Ledger) served(lanes []*dueLane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn++
	for _, one := range lanes {
		if len(one.found) > 0 {
			l.turns[one.n] = l.turn
		}
	}
}

// share gives n calls, of each lane as many as of every other as far as it has them: the first of each, then the second.
func share(ctx context.Context, tx *sql.Tx, lanes []*dueLane, at string, n int, busy map[uint64]bool) ([]int64, error) {
	left := n
	hungry := slices.Clone(lanes)
	for left > 0 && len(hungry) > 0 {
		each := max(left/len(hungry), 1)
		for _, l := range hungry {
			if left == 0 {
				break
			}
			got, err := l.read(ctx, tx, at, min(each, left), busy)
			if err != nil {
				return nil, err
			}
			left -= got
		}
		hungry = slices.DeleteFunc(hungry, func(l *dueLane) bool { return l.over })
	}
	var all []int64
	for i := 0; ; i++ {
		some := false
		for _, l := range lanes {
			if i < len(l.found) {
				all, some = append(all, l.found[i]), true
			}
		}
		if !some {
			return all, nil
		}
	}
}

// read reads up to n more of a lane.
func (l *dueLane) read(ctx context.Context, tx *sql.Tx, at string, n int, busy map[uint64]bool) (got int, err error) {
	if l.at.rank == 0 {
		l.at.rank = 1
	}
	for got < n && !l.over {
		want := n - got + min(len(busy), 64)
		rows, err := tx.QueryContext(ctx, `SELECT seq, rank, next_attempt FROM calls INDEXED BY calls_waiting
			WHERE lane = ? AND rank = ? AND waits = 1 AND next_attempt <= ? AND (next_attempt, seq) > (?, ?) ORDER BY next_attempt, seq LIMIT ?`,
			l.n, l.at.rank, at, l.at.next, l.at.seq, want)
		some, err := gather(rows, err, func(rows *sql.Rows) (c candidate, err error) {
			if err = rows.Scan(&c.seq, &c.rank, &c.next); err != nil {
				err = fmt.Errorf("%w: a deferred call: %w", ErrDamaged, err)
			}
			return c, err
		})
		if err != nil {
			return got, err
		}
		taken := 0
		for _, c := range some {
			if got == n {
				break
			}
			taken++
			l.at = c
			if !busy[uint64(c.seq)] { //nolint:gosec // from 1
				l.found = append(l.found, c.seq)
				got++
			}
		}
		if taken == len(some) && len(some) < want {
			if l.at = (candidate{rank: l.at.rank + 1}); l.at.rank > ranks {
				l.over = true
			}
		}
	}
	return got, nil
}

// nextDue is when the first call after now is due. Of what is left out it tells nothing.
func nextDue(ctx context.Context, tx *sql.Tx, lanes []*dueLane, at string, without map[deferred.Lane]bool, busy map[uint64]bool) (time.Time, error) {
	least := ""
	for _, l := range lanes {
		if err := earliest(ctx, tx, l.n, at, busy, &least); err != nil {
			return time.Time{}, err
		}
	}
	// Those with nothing due, the earliest first: mostly the first of them is it.
	rows, err := tx.QueryContext(ctx, "SELECT n, caller, origin, next FROM lanes INDEXED BY lanes_by_next WHERE next <> '' AND next > ? ORDER BY next", at)
	if err != nil {
		return time.Time{}, err //nolint:wrapcheck // explained by Due
	}
	defer func() { _ = rows.Close() }() // what went wrong was told by Err
	for rows.Next() {
		var (
			n    int64
			next string
			l    deferred.Lane
		)
		if err := rows.Scan(&n, &l.Caller, &l.Origin, &next); err != nil {
			return time.Time{}, fmt.Errorf("%w: a lane: %w", ErrDamaged, err)
		}
		if least != "" && next >= least {
			break
		}
		if leftOut(without, l) {
			continue
		}
		if err := earliest(ctx, tx, n, at, busy, &least); err != nil {
			return time.Time{}, err
		}
	}
	if err := rows.Err(); err != nil {
		return time.Time{}, err //nolint:wrapcheck // as above
	}
	return readTime(least)
}

// earliest lowers least to when the first call of a lane after now is due.
func earliest(ctx context.Context, tx *sql.Tx, lane int64, at string, busy map[uint64]bool, least *string) error {
	for rank := range ranks {
		if err := earliestOf(ctx, tx, lane, rank+1, at, busy, least); err != nil {
			return err
		}
	}
	return nil
}

func earliestOf(ctx context.Context, tx *sql.Tx, lane int64, rank int, at string, busy map[uint64]bool, least *string) error {
	rows, err := tx.QueryContext(ctx, `SELECT seq, next_attempt FROM calls INDEXED BY calls_waiting
		WHERE lane = ? AND rank = ? AND waits = 1 AND next_attempt > ? ORDER BY next_attempt`, lane, rank, at)
	if err != nil {
		return err //nolint:wrapcheck // explained by Due
	}
	defer func() { _ = rows.Close() }() // what went wrong was told by Err
	for rows.Next() {
		var (
			seq  uint64
			next string
		)
		if err := rows.Scan(&seq, &next); err != nil {
			return fmt.Errorf("%w: a deferred call: %w", ErrDamaged, err)
		}
		if !busy[seq] {
			if *least == "" || next < *least {
				*least = next
			}
			break
		}
	}
	return rows.Err() //nolint:wrapcheck // as above
}
