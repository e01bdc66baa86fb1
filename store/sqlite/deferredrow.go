package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/call/archive"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/seal"
)

// callRow is a deferred call as it stands in the table calls: its Request, Response and Attempts are in tables of their own.
type callRow struct {
	deferred.Record

	change int64
	lane   int64
	tags   callTags
}

// callTags vouch for what is sealed: the tag of each, zero where there is none.
type callTags struct{ request, head, body [seal.TagBytes]byte }

// callColumns are all but seq, in the order of values.
const (
	callColumns = `change, lane, rank, waits, id, caller, operation_id, fingerprint, origin, criticality, labels, delivery, state, failure, epoch, spent,
		max_retries, backoff, repeatable, possible_duplicate, next_attempt, not_before, expire, created, updated, ended, until, first_send,
		outcome, effect, reason, detail, attempts, tags, sum`
	callCount = 35
)

// ranks is how many ranks there are, from 1.
const ranks = 3

// rank is the place of a record in its lane, the most critical 1.
func (r *callRow) rank() int64 {
	switch r.Criticality {
	case call.CriticalityCritical:
		return 1
	case call.CriticalitySheddable:
		return ranks
	}
	return 2
}

// waits: it is due at NextAttempt.
func (r *callRow) waits() bool {
	return (r.State == deferred.StatePending || r.State == deferred.StateRetrying) && !r.NextAttempt.IsZero()
}

func (r *callRow) what() string { return fmt.Sprintf("deferred call %q of %q", r.ID, r.Caller) }

func (r *callRow) key() operation.Key { return operation.Key{Caller: r.Caller, ID: r.OperationID} }

func (r *callRow) times() [8]*time.Time {
	return [8]*time.Time{&r.NextAttempt, &r.NotBefore, &r.Expire, &r.Created, &r.Updated, &r.Ended, &r.Until, &r.FirstSend}
}

// storedTime is a time as it is stored, ” for none.
func storedTime(t time.Time) (string, error) {
	if t.IsZero() {
		return "", nil
	}
	return formatTime(t)
}

func readTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	return parseTime(s)
}

// storable is an error if the record has something that cannot be stored as it is.
func storable(r *deferred.Record) error {
	row := callRow{Record: *r}
	for _, t := range row.times() {
		if _, err := storedTime(*t); err != nil {
			return err
		}
	}
	if r.Backoff < 0 {
		return errors.New("a negative backoff cannot be stored")
	}
	return nil
}

// labelsOf is what is stored of labels: the same for the same ones.
func labelsOf(labels map[string]string) (string, error) {
	if len(labels) == 0 {
		return "", nil
	}
	b, err := json.Marshal(labels)
	return string(b), err
}

// values are those of callColumns.
func (r *callRow) values() ([]any, error) {
	var times [8]string
	for i, t := range r.times() {
		var err error
		if times[i], err = storedTime(*t); err != nil {
			return nil, err
		}
	}
	labels, err := labelsOf(r.Labels)
	if err != nil {
		return nil, err
	}
	return []any{
		r.change, r.lane, r.rank(), flag(r.waits()), r.ID, r.Caller, r.OperationID, r.Fingerprint[:], r.Origin, int64(r.Criticality), labels,
		int64(r.Delivery), int64(r.State), int64(r.Failure), signed(r.Epoch), int64(r.Spent), int64(r.MaxRetries), int64(r.Backoff),
		flag(r.Repeatable), flag(r.PossibleDuplicate), times[0], times[1], times[2], times[3], times[4], times[5], times[6], times[7],
		int64(r.Outcome), int64(r.Effect), int64(r.Reason), r.Detail, int64(r.Tried), r.tags.bytes(), r.sum(&times, labels),
	}, nil
}

// sum is that of everything; rank and waits follow from the rest.
func (r *callRow) sum(times *[8]string, labels string) []byte {
	fields := [][]byte{
		[]byte("calls"), number(signed(r.Seq)), number(r.change), number(r.lane), []byte(r.ID), []byte(r.Caller), []byte(r.OperationID),
		r.Fingerprint[:], []byte(r.Origin), number(int64(r.Criticality)), []byte(labels), number(int64(r.Delivery)), number(int64(r.State)),
		number(int64(r.Failure)), number(signed(r.Epoch)), number(int64(r.Spent)), number(int64(r.MaxRetries)), number(int64(r.Backoff)),
		number(flag(r.Repeatable)), number(flag(r.PossibleDuplicate)), number(int64(r.Outcome)), number(int64(r.Effect)), number(int64(r.Reason)),
		[]byte(r.Detail), number(int64(r.Tried)), r.tags.bytes(),
	}
	for i := range times {
		fields = append(fields, []byte(times[i]))
	}
	return sumOf(fields...)
}

// scanCall reads seq and callColumns. What is not what was written is [ErrDamaged].
func scanCall(rows *sql.Rows) (callRow, error) {
	var (
		r                      callRow
		rank                   int64
		waits                  bool
		fingerprint, tags, sum []byte
		labels                 string
		times                  [8]string
	)
	err := rows.Scan(&r.Seq, &r.change, &r.lane, &rank, &waits, &r.ID, &r.Caller, &r.OperationID, &fingerprint, &r.Origin, &r.Criticality, &labels,
		&r.Delivery, &r.State, &r.Failure, &r.Epoch, &r.Spent, &r.MaxRetries, &r.Backoff, &r.Repeatable, &r.PossibleDuplicate,
		&times[0], &times[1], &times[2], &times[3], &times[4], &times[5], &times[6], &times[7],
		&r.Outcome, &r.Effect, &r.Reason, &r.Detail, &r.Tried, &tags, &sum)
	if err != nil {
		return r, fmt.Errorf("%w: a deferred call: %w", ErrDamaged, err)
	}
	if len(fingerprint) != len(r.Fingerprint) || !r.tags.read(tags) {
		return r, fmt.Errorf("%w: %s is not what was written", ErrDamaged, r.what())
	}
	copy(r.Fingerprint[:], fingerprint)
	if err := same(sum, r.sum(&times, labels), r.what()); err != nil {
		return r, err
	}
	for i, t := range r.times() {
		if *t, err = readTime(times[i]); err != nil {
			return r, fmt.Errorf("%w: %s: %w", ErrDamaged, r.what(), err)
		}
	}
	if labels != "" {
		if err := json.Unmarshal([]byte(labels), &r.Labels); err != nil {
			return r, fmt.Errorf("%w: %s: %w", ErrDamaged, r.what(), err)
		}
	}
	if rank != r.rank() || waits != r.waits() {
		return r, fmt.Errorf("%w: %s is not where it was put", ErrDamaged, r.what())
	}
	return r, nil
}

// bytes are those of the request, and of the answer where there is one.
func (t *callTags) bytes() []byte {
	if t.head == ([seal.TagBytes]byte{}) {
		return t.request[:]
	}
	return slicesOf(t.request[:], t.head[:], t.body[:])
}

func slicesOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func (t *callTags) read(b []byte) bool {
	switch len(b) {
	case seal.TagBytes:
		copy(t.request[:], b)
		return true
	case 3 * seal.TagBytes:
		copy(t.request[:], b)
		copy(t.head[:], b[seal.TagBytes:])
		copy(t.body[:], b[2*seal.TagBytes:])
		return true
	}
	return false
}

func tagOf(sealed []byte) (tag [seal.TagBytes]byte) {
	copy(tag[:], sealed[max(0, len(sealed)-seal.TagBytes):])
	return tag
}

// answer is a sealed answer.
type answer struct{ head, body []byte }

// answerHead is what an answer is but for its body. The stored form outlives programs: names are added to it, never changed.
type answerHead struct {
	archive.Head

	Status  int  `json:"status"`
	Omitted bool `json:"omitted,omitempty"`
}

func (k callKeys) sealAnswer(r *call.Response) (answer, error) {
	if r == nil {
		return answer{}, nil
	}
	head, err := json.Marshal(answerHead{Head: *archive.HeadOf(r), Status: r.Status, Omitted: r.BodyOmitted})
	if err != nil {
		return answer{}, err //nolint:wrapcheck // explained by the caller
	}
	a := answer{head: k.seal(head, "answer"), body: []byte{}}
	if len(r.Body) > 0 {
		a.body = k.seal(r.Body, "body")
	}
	return a, nil
}

// callKeys seal and open what one call has.
type callKeys struct {
	keys       *seal.Keys
	caller, id string
}

func keysFor(keys *seal.Keys, r *deferred.Record) callKeys { return callKeys{keys, r.Caller, r.ID} }

func (k callKeys) seal(plain []byte, column string) []byte {
	return k.keys.Seal(plain, k.caller, k.id, "deferred "+column)
}

func (k callKeys) open(sealed []byte, column string) ([]byte, error) {
	plain, err := k.keys.Open(sealed, k.caller, k.id, "deferred "+column)
	if err != nil {
		return nil, fmt.Errorf("%w: the %s of deferred call %q of %q is %w", ErrDamaged, column, k.id, k.caller, err)
	}
	return plain, nil
}

func (k callKeys) openAnswer(a answer, withBody bool) (*call.Response, error) {
	plain, err := k.open(a.head, "answer")
	if err != nil {
		return nil, err
	}
	var h answerHead
	if err := json.Unmarshal(plain, &h); err != nil {
		return nil, fmt.Errorf("%w: the answer of deferred call %q: %w", ErrDamaged, k.id, err)
	}
	r := &call.Response{Status: h.Status, BodyOmitted: h.Omitted}
	h.Put(r)
	switch {
	case len(a.body) == 0:
	case !withBody:
		r.BodyOmitted = true
	default:
		if r.Body, err = k.open(a.body, "body"); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// sealedAttempt is one, and its number in the log.
type sealedAttempt struct {
	number uint32
	sealed []byte
}

// sealAttempts seals each.
func (k callKeys) sealAttempts(attempts []call.Attempt) ([]sealedAttempt, error) {
	var all []sealedAttempt
	for _, a := range archive.AttemptsOf(attempts) {
		plain, err := json.Marshal(a)
		if err != nil {
			return nil, err //nolint:wrapcheck // explained by the caller
		}
		all = append(all, sealedAttempt{a.Number, k.seal(plain, "attempt")})
	}
	return all, nil
}

func (k callKeys) openAttempts(sealed [][]byte) ([]call.Attempt, error) {
	var all []archive.Attempt
	for _, s := range sealed {
		plain, err := k.open(s, "attempt")
		if err != nil {
			return nil, err
		}
		var a archive.Attempt
		if err := json.Unmarshal(plain, &a); err != nil {
			return nil, fmt.Errorf("%w: an attempt of deferred call %q: %w", ErrDamaged, k.id, err)
		}
		all = append(all, a)
	}
	return archive.Attempts(all), nil
}

// placeholders are n of them.
func placeholders(n int) string { return strings.Repeat(", ?", n)[2:] }
