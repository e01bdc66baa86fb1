package sqlite

import (
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/seal"
)

// row is an operation as it stands in the table: Request, Details and Body of the record are sealed.
type row struct {
	operation.Record

	n      int64
	kept   int64 // bytes of the body before it was sealed
	strips bool  // something goes at BodyUntil
}

// rowColumns are those of row, in the order of values; n and the derived ones are apart.
const (
	setColumns = `caller, id, hash, epoch, owner, fingerprint, state, must_not_repeat, outcome, effect, reason, told_outcome, told_reason,
		status, first_send, create_time, update_time, body_until, until, body_bytes, kept, strips, deferred, sum, request, details, body`
	rowColumns = "n, " + setColumns
	setCount   = 27
)

// sealRow is r as it is stored, but for n.
func sealRow(keys *seal.Keys, r *operation.Record) (row, error) {
	for _, t := range []*time.Time{&r.FirstSend, &r.CreateTime, &r.UpdateTime, &r.BodyUntil, &r.Until} {
		if _, err := formatTime(*t); err != nil {
			return row{}, err
		}
	}
	sealed := row{Record: *r, kept: int64(len(r.Body))}
	for _, b := range sealed.blobs() {
		if len(*b.value) > 0 {
			*b.value = keys.Seal(*b.value, r.Caller, r.ID, b.column)
		}
	}
	return sealed, nil
}

// open gives the record that was sealed. What does not open is [ErrDamaged].
func (r *row) open(keys *seal.Keys) (operation.Record, error) {
	plain := row{Record: r.Record}
	for _, b := range plain.blobs() {
		if len(*b.value) == 0 {
			*b.value = nil
			continue
		}
		value, err := keys.Open(*b.value, r.Caller, r.ID, b.column)
		if err != nil {
			return operation.Record{}, fmt.Errorf("%w: the %s of %s is %w", ErrDamaged, b.column, r.what(), err)
		}
		*b.value = value
	}
	for _, t := range []*time.Time{&plain.FirstSend, &plain.CreateTime, &plain.UpdateTime, &plain.BodyUntil, &plain.Until} {
		*t = t.Round(0).UTC()
	}
	return plain.Record, nil
}

type blob struct {
	column string
	value  *[]byte
}

func (r *row) blobs() [3]blob {
	return [3]blob{{"request", &r.Request}, {"details", &r.Details}, {"body", &r.Body}}
}

// what names it in errors.
func (r *row) what() string { return fmt.Sprintf("operation %q of %q", r.ID, r.Caller) }

// size is how much it is to write, in bytes.
func (r *row) size() int64 {
	const plain = 1 << 10
	return int64(plain + len(r.Request) + len(r.Details) + len(r.Body))
}

// values are those of setColumns. They and the derived fields follow from the record.
func (r *row) values() ([]any, error) {
	r.strips = r.State != operation.StateRunning &&
		(r.kept > 0 || r.State == operation.StateFinished && len(r.Details) > 0)
	var times [5]string
	for i, t := range []time.Time{r.FirstSend, r.CreateTime, r.UpdateTime, r.BodyUntil, r.Until} {
		var err error
		if times[i], err = formatTime(t); err != nil {
			return nil, err
		}
	}
	for _, b := range r.blobs() {
		if *b.value == nil {
			*b.value = []byte{} // nil would be NULL
		}
	}
	return []any{
		r.Caller, r.ID, hashOf(r.Key), signed(r.Epoch), r.Owner, r.Fingerprint[:], int64(r.State), flag(r.MustNotRepeat),
		int64(r.Outcome), int64(r.Effect), int64(r.Reason), int64(r.Told.Outcome), int64(r.Told.Reason), int64(r.Status),
		times[0], times[1], times[2], times[3], times[4], r.BodyBytes, r.kept, flag(r.strips), r.Deferred,
		r.sum(&times),
		r.Request, r.Details, r.Body,
	}, nil
}

// sum is that of everything but what follows from the rest. What is sealed is in it with its length and its tag, which vouches for the
// rest of it: opening finds what was changed there.
func (r *row) sum(times *[5]string) []byte {
	fields := [][]byte{
		[]byte("operations"), []byte(r.Caller), []byte(r.ID), number(signed(r.Epoch)), []byte(r.Owner), r.Fingerprint[:],
		number(int64(r.State)), number(flag(r.MustNotRepeat)), number(int64(r.Outcome)), number(int64(r.Effect)), number(int64(r.Reason)),
		number(int64(r.Told.Outcome)), number(int64(r.Told.Reason)), number(int64(r.Status)), number(r.BodyBytes), number(r.kept),
		number(flag(r.strips)),
	}
	for i := range times {
		fields = append(fields, []byte(times[i]))
	}
	for _, b := range r.blobs() {
		v := *b.value
		fields = append(fields, number(int64(len(v))), v[max(0, len(v)-seal.TagBytes):])
	}
	if r.Deferred != "" { // rows of before there were deferred calls keep their sums
		fields = append(fields, []byte(r.Deferred))
	}
	return sumOf(fields...)
}

// scanOperation reads rowColumns. What is not what was written is [ErrDamaged].
func scanOperation(rows *sql.Rows) (row, error) {
	var (
		r                row
		hash             int64
		fingerprint, sum []byte
		times            [5]string
	)
	err := rows.Scan(&r.n, &r.Caller, &r.ID, &hash, &r.Epoch, &r.Owner, &fingerprint, &r.State, &r.MustNotRepeat, &r.Outcome, &r.Effect,
		&r.Reason, &r.Told.Outcome, &r.Told.Reason, &r.Status, &times[0], &times[1], &times[2], &times[3], &times[4],
		&r.BodyBytes, &r.kept, &r.strips, &r.Deferred, &sum, &r.Request, &r.Details, &r.Body)
	if err != nil {
		return r, fmt.Errorf("%w: an operation: %w", ErrDamaged, err)
	}
	if copy(r.Fingerprint[:], fingerprint) != len(r.Fingerprint) || len(fingerprint) != len(r.Fingerprint) || hash != hashOf(r.Key) {
		return r, fmt.Errorf("%w: %s is not what was written", ErrDamaged, r.what())
	}
	if err := same(sum, r.sum(&times), r.what()); err != nil {
		return r, err
	}
	for i, t := range []*time.Time{&r.FirstSend, &r.CreateTime, &r.UpdateTime, &r.BodyUntil, &r.Until} {
		if *t, err = parseTime(times[i]); err != nil {
			return r, fmt.Errorf("%w: %s: %w", ErrDamaged, r.what(), err)
		}
	}
	return r, nil
}

// hashOf is what operations_by_hash has of a key.
func hashOf(k operation.Key) int64 {
	length := binary.BigEndian.AppendUint64(nil, uint64(len(k.Caller)))
	sum := sha256.Sum256([]byte(string(length) + k.Caller + k.ID))
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // every number will do
}
