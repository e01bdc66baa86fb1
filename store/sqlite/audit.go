package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sallyport/sallyport/admin"
)

// recordRow is a record as it stands in the table.
type recordRow struct {
	id                                                              int64
	time, principal, action, target, changes, reason, before, after string
	sum                                                             []byte
}

// columns are those of recordRow, in order; previous is the sum of the record before, NULL for the first.
const (
	columns  = "a.id, a.time, a.principal, a.action, a.target, a.changes, a.reason, a.etag_before, a.etag_after, a.sum"
	previous = "(SELECT p.sum FROM audit p WHERE p.id = a.id - 1)"
)

// Records implements [admin.Store].
func (s *Store) Records(ctx context.Context, target, principal string, before int64, n int) ([]admin.Record, error) {
	const head = "SELECT " + columns + ", " + previous + " FROM audit a WHERE a.id < ?"
	const tail = " ORDER BY a.id DESC LIMIT ?"
	id, limit := below(before), atMost(n)
	// A query for each filter, so that each has its index.
	switch {
	case target != "" && principal != "":
		return list(ctx, &s.file, scanRecord, head+" AND a.target = ? AND a.principal = ?"+tail, id, target, principal, limit)
	case target != "":
		return list(ctx, &s.file, scanRecord, head+" AND a.target = ?"+tail, id, target, limit)
	case principal != "":
		return list(ctx, &s.file, scanRecord, head+" AND a.principal = ?"+tail, id, principal, limit)
	default:
		return list(ctx, &s.file, scanRecord, head+tail, id, limit)
	}
}

// Verify walks the whole audit and returns the ID of the first record that is missing or not what was written, 0 if there is none.
// Whoever can write the file can forge a chain: this finds damage and what was changed by hand.
func (s *Store) Verify(ctx context.Context) (int64, error) {
	var (
		last   int64
		broken int64
		sum    = genesis()
	)
	// The walk ends at the first break, with an error that is none.
	found := errors.New("found")
	_, err := collect(ctx, s.reader, func(rows *sql.Rows) (struct{}, error) {
		r, err := scanRow(rows)
		if err != nil || r.id != last+1 || same(r.sum, r.sumAfter(sum), "") != nil {
			broken = last + 1
			return struct{}{}, found
		}
		last, sum = r.id, r.sum
		return struct{}{}, nil
	}, "SELECT "+columns+" FROM audit a ORDER BY a.id")
	if errors.Is(err, found) {
		return broken, nil
	}
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	return s.verifyEnd(ctx, last)
}

// verifyEnd looks for records behind the last one: there were some if a greater id was given.
func (s *Store) verifyEnd(ctx context.Context, last int64) (int64, error) {
	var greatest, now int64
	err := s.reader.QueryRowContext(ctx, `
		SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'audit'), 0), coalesce((SELECT max(id) FROM audit), 0)`).
		Scan(&greatest, &now)
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	// Records that came since the walk are not judged.
	if now < greatest {
		return max(last, now) + 1, nil
	}
	return 0, nil
}

// insertRecord puts a record at the end of the chain.
func insertRecord(ctx context.Context, tx *sql.Tx, record *admin.Record) error {
	r, err := rowOf(record)
	if err != nil {
		return err
	}
	var last int64
	sum := genesis()
	err = tx.QueryRowContext(ctx, "SELECT id, sum FROM audit ORDER BY id DESC LIMIT 1").Scan(&last, &sum)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err //nolint:wrapcheck // explained by write
	}
	r.id = last + 1
	_, err = tx.ExecContext(ctx, `
		INSERT INTO audit (id, time, principal, action, target, changes, reason, etag_before, etag_after, sum)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.id, r.time, r.principal, r.action, r.target, r.changes, r.reason, r.before, r.after, r.sumAfter(sum))
	return err //nolint:wrapcheck // explained by write
}

func rowOf(record *admin.Record) (recordRow, error) {
	at, err := formatTime(record.Time)
	if err != nil {
		return recordRow{}, err
	}
	changes := ""
	if len(record.Changes) > 0 {
		text, err := json.Marshal(record.Changes)
		if err != nil {
			return recordRow{}, fmt.Errorf("changes of a record: %w", err)
		}
		changes = string(text)
	}
	return recordRow{
		time: at, principal: record.Principal, action: record.Action, target: record.Target, changes: changes,
		reason: record.Reason, before: record.EtagBefore, after: record.EtagAfter,
	}, nil
}

func scanRow(rows *sql.Rows, more ...any) (recordRow, error) {
	var r recordRow
	err := rows.Scan(append([]any{
		&r.id, &r.time, &r.principal, &r.action, &r.target, &r.changes, &r.reason, &r.before, &r.after, &r.sum,
	}, more...)...)
	if err != nil {
		return r, fmt.Errorf("%w: a record: %w", ErrDamaged, err)
	}
	return r, nil
}

func scanRecord(rows *sql.Rows) (admin.Record, error) {
	var before []byte
	r, err := scanRow(rows, &before)
	if err != nil {
		return admin.Record{}, err
	}
	if r.id == 1 {
		before = genesis()
	}
	what := fmt.Sprintf("record %d", r.id)
	if err := same(r.sum, r.sumAfter(before), what); err != nil {
		return admin.Record{}, err
	}
	record := admin.Record{
		ID: r.id, Principal: r.principal, Action: r.action, Target: r.target, Reason: r.reason,
		EtagBefore: r.before, EtagAfter: r.after,
	}
	if record.Time, err = parseTime(r.time); err != nil {
		return admin.Record{}, fmt.Errorf("%s: %w", what, err)
	}
	if r.changes == "" {
		return record, nil
	}
	if err := json.Unmarshal([]byte(r.changes), &record.Changes); err != nil {
		return admin.Record{}, fmt.Errorf("%s: %w", what, err)
	}
	return record, nil
}

// genesis stands for the sum of the record before the first.
func genesis() []byte { return make([]byte, sha256.Size) }

// sumAfter is the sum of the record behind one whose sum is before.
func (r *recordRow) sumAfter(before []byte) []byte {
	return sumOf([]byte("audit"), before, number(r.id), []byte(r.time), []byte(r.principal), []byte(r.action), []byte(r.target),
		[]byte(r.changes), []byte(r.reason), []byte(r.before), []byte(r.after))
}
