package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/seal"
)

// callTable are the statements for deferred calls.
type callTable struct {
	get, byID, put, set, drop                            *sql.Stmt
	request, putRequest, dropRequest                     *sql.Stmt
	answer, putAnswer, dropAnswer                        *sql.Stmt
	attempts, putAttempt, dropAttempts                   *sql.Stmt
	putLabel, dropLabel                                  *sql.Stmt
	lane, putLane, laneNext, setLane, laneUsed, dropLane *sql.Stmt
	count, dropCount, setChange                          *sql.Stmt
}

// texts are those that need the writer; the first row of them the readers prepare too.
func (c *callTable) reads() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&c.get:      "SELECT seq, " + callColumns + " FROM calls WHERE seq = ?",
		&c.byID:     "SELECT seq, " + callColumns + " FROM calls INDEXED BY calls_by_id WHERE id = ?",
		&c.request:  "SELECT request, x'' FROM requests WHERE seq = ?",
		&c.answer:   "SELECT head, body FROM answers WHERE seq = ?",
		&c.attempts: "SELECT attempt, x'' FROM attempts WHERE seq = ? ORDER BY number",
	}
}

func (c *callTable) writes() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&c.put:          "INSERT INTO calls (seq, " + callColumns + ") VALUES (?, " + placeholders(callCount) + ")",
		&c.set:          "UPDATE calls SET (" + callColumns + ") = (" + placeholders(callCount) + ") WHERE seq = ?",
		&c.drop:         "DELETE FROM calls WHERE seq = ?",
		&c.putRequest:   "INSERT INTO requests (seq, request) VALUES (?, ?)",
		&c.dropRequest:  "DELETE FROM requests WHERE seq = ?",
		&c.putAnswer:    "INSERT INTO answers (seq, head, body) VALUES (?, ?, ?) ON CONFLICT (seq) DO UPDATE SET head = excluded.head, body = excluded.body",
		&c.dropAnswer:   "DELETE FROM answers WHERE seq = ?",
		&c.putAttempt:   "INSERT INTO attempts (seq, number, attempt) VALUES (?, ?, ?)",
		&c.dropAttempts: "DELETE FROM attempts WHERE seq = ?",
		&c.putLabel:     "INSERT INTO labels (caller, name, value, seq) VALUES (?, ?, ?, ?)",
		&c.dropLabel:    "DELETE FROM labels WHERE caller = ? AND name = ? AND value = ? AND seq = ?",
		&c.lane:         "SELECT n FROM lanes WHERE caller = ? AND origin = ?",
		&c.putLane:      "INSERT INTO lanes (caller, origin, next) VALUES (?, ?, '')",
		&c.laneNext: `WITH ranks (rank) AS (VALUES (1), (2), (3)) SELECT min((SELECT next_attempt FROM calls INDEXED BY calls_waiting
			WHERE lane = ?1 AND calls.rank = ranks.rank AND waits = 1 ORDER BY next_attempt LIMIT 1)) FROM ranks`,
		&c.setLane:  "UPDATE lanes SET next = ?1 WHERE n = ?2 AND next <> ?1",
		&c.laneUsed: "SELECT count(*) FROM (SELECT 1 FROM calls INDEXED BY calls_by_lane WHERE lane = ? LIMIT 1)",
		&c.dropLane: "DELETE FROM lanes WHERE n = ?",
		&c.count: `INSERT INTO counts (caller, state, calls) VALUES (?1, ?2, ?3)
			ON CONFLICT (caller, state) DO UPDATE SET calls = calls + ?3`,
		&c.dropCount: "DELETE FROM counts WHERE caller = ? AND state = ? AND calls <= 0",
		&c.setChange: "UPDATE changes SET last = ?",
	}
}

func prepareAll(ctx context.Context, db *sql.DB, texts map[**sql.Stmt]string) error {
	for s, text := range texts {
		var err error
		if *s, err = db.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // closed with the file
			return err //nolint:wrapcheck // explained by OpenLedger
		}
	}
	return nil
}

// all are the statements, for what is done to each.
func (c *callTable) all() []**sql.Stmt {
	return []**sql.Stmt{
		&c.get, &c.byID, &c.put, &c.set, &c.drop, &c.request, &c.putRequest, &c.dropRequest, &c.answer, &c.putAnswer, &c.dropAnswer,
		&c.attempts, &c.putAttempt, &c.dropAttempts, &c.putLabel, &c.dropLabel, &c.lane, &c.putLane, &c.laneNext, &c.setLane, &c.laneUsed,
		&c.dropLane, &c.count, &c.dropCount, &c.setChange,
	}
}

// callBatch is what a transaction does to deferred calls. What is derived of them is written once, at its end: see flush.
type callBatch struct {
	callTable

	keys   *seal.Keys
	change int64 // the last one that was given
	seq    int64 // the same
	lanes  map[int64]lanePart
	known  map[deferred.Lane]int64 // those whose numbers were asked for
	counts map[countKey]int64
}

// lanePart is what flush has to do about a lane.
type lanePart struct{ removed bool }

type countKey struct {
	caller string
	state  deferred.State
}

// calls gives the statements for deferred calls within the transaction, which closes them.
func (b *batch) calls(ctx context.Context) *callBatch {
	if b.call == nil {
		b.call = &callBatch{
			callTable: b.committer.calls, keys: b.committer.ledger.keys, change: b.committer.change, seq: b.committer.seq,
			lanes: map[int64]lanePart{}, known: map[deferred.Lane]int64{}, counts: map[countKey]int64{},
		}
		for _, s := range b.call.all() {
			if *s != nil {
				*s = b.tx.StmtContext(ctx, *s)
			}
		}
	}
	return b.call
}

// flush writes what follows from all that the transaction did: when lanes are due, counts, the last change.
func (c *callBatch) flush(ctx context.Context) error {
	for n, part := range c.lanes {
		if err := c.flushLane(ctx, n, part); err != nil {
			return err
		}
	}
	for k, d := range c.counts {
		if d == 0 {
			continue
		}
		_, err := c.count.ExecContext(ctx, k.caller, int64(k.state), d)
		if err == nil && d < 0 {
			_, err = c.dropCount.ExecContext(ctx, k.caller, int64(k.state))
		}
		if err != nil {
			return err //nolint:wrapcheck // explained by the caller
		}
	}
	_, err := c.setChange.ExecContext(ctx, c.change)
	return err //nolint:wrapcheck // as above
}

func (c *callBatch) flushLane(ctx context.Context, n int64, part lanePart) error {
	if part.removed {
		var used int
		if err := c.laneUsed.QueryRowContext(ctx, n).Scan(&used); err != nil {
			return err //nolint:wrapcheck // as above
		}
		if used == 0 {
			_, err := c.dropLane.ExecContext(ctx, n)
			return err //nolint:wrapcheck // as above
		}
	}
	var next sql.NullString
	if err := c.laneNext.QueryRowContext(ctx, n).Scan(&next); err != nil {
		return err //nolint:wrapcheck // as above
	}
	_, err := c.setLane.ExecContext(ctx, next.String, n)
	return err //nolint:wrapcheck // as above
}

// one finds the call that a statement gives.
func (c *callTable) one(ctx context.Context, s *sql.Stmt, arg any) (r callRow, found bool, err error) {
	all, err := rowsOf(ctx, s, scanCall, arg)
	if err != nil || len(all) == 0 {
		return callRow{}, false, err
	}
	return all[0], true, nil
}

// bySeq finds a call by its number.
func (c *callTable) bySeq(ctx context.Context, seq uint64) (callRow, bool, error) {
	r, found, err := c.one(ctx, c.get, signed(seq))
	if found && r.Seq != seq {
		return r, true, fmt.Errorf("%w: instead of deferred call %d there is another", ErrDamaged, seq)
	}
	return r, found, err
}

// named finds a caller's call by its id.
func (c *callTable) named(ctx context.Context, caller, id string) (callRow, error) {
	r, found, err := c.one(ctx, c.byID, id)
	switch {
	case err != nil:
		return r, err
	case !found || caller != "" && caller != r.Caller:
		return r, deferred.ErrNotFound
	case r.ID != id:
		return r, fmt.Errorf("%w: instead of deferred call %q there is another", ErrDamaged, id)
	}
	return r, nil
}

// parts says what is read of a call beside its row.
type parts struct{ request, attempts, answer, body bool }

var everything = parts{true, true, true, true} //nolint:gochecknoglobals // a constant, if there were such

// load reads more of a call.
func (c *callTable) load(ctx context.Context, keys *seal.Keys, r *callRow, p parts) error {
	k := keysFor(keys, &r.Record)
	if p.request && r.tags.request != ([seal.TagBytes]byte{}) {
		all, err := rowsOf(ctx, c.request, scanAnswer, signed(r.Seq))
		if err != nil {
			return err
		}
		if len(all) != 1 || tagOf(all[0].head) != r.tags.request {
			return fmt.Errorf("%w: the request of %s is not what was written", ErrDamaged, r.what())
		}
		if r.Request, err = k.open(all[0].head, "request"); err != nil {
			return err
		}
	}
	if p.attempts && r.Tried > 0 {
		all, err := c.sealedAttempts(ctx, r)
		if err != nil {
			return err
		}
		if r.Attempts, err = k.openAttempts(all); err != nil {
			return err
		}
	}
	if p.answer && r.tags.head != ([seal.TagBytes]byte{}) {
		all, err := rowsOf(ctx, c.answer, scanAnswer, signed(r.Seq))
		if err != nil {
			return err
		}
		if len(all) != 1 || tagOf(all[0].head) != r.tags.head || tagOf(all[0].body) != r.tags.body {
			return fmt.Errorf("%w: the answer of %s is not what was written", ErrDamaged, r.what())
		}
		if r.Response, err = k.openAnswer(all[0], p.body); err != nil {
			return err
		}
	}
	return nil
}

func (c *callTable) sealedAttempts(ctx context.Context, r *callRow) ([][]byte, error) {
	all, err := rowsOf(ctx, c.attempts, scanAnswer, signed(r.Seq))
	if err != nil {
		return nil, err
	}
	if len(all) != int(r.Tried) {
		return nil, fmt.Errorf("%w: %s has %d attempts, %d were written", ErrDamaged, r.what(), len(all), r.Tried)
	}
	sealed := make([][]byte, len(all))
	for i := range all {
		sealed[i] = all[i].head
	}
	return sealed, nil
}

func scanAnswer(rows *sql.Rows) (a answer, err error) {
	if err = rows.Scan(&a.head, &a.body); err != nil {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return a, err
}

// laneOf is the number of a lane, which is made if there is none.
func (c *callBatch) laneOf(ctx context.Context, caller, origin string) (int64, error) {
	lane := deferred.Lane{Caller: caller, Origin: origin}
	if n := c.known[lane]; n != 0 {
		return n, nil
	}
	all, err := rowsOf(ctx, c.lane, scanNumber, caller, origin)
	if err != nil {
		return 0, err
	}
	var n int64
	if len(all) > 0 {
		n = all[0]
	} else {
		made, err := c.putLane.ExecContext(ctx, caller, origin)
		if err != nil {
			return 0, err //nolint:wrapcheck // explained by the caller
		}
		if n, err = made.LastInsertId(); err != nil {
			return 0, err //nolint:wrapcheck // as above
		}
	}
	c.known[lane] = n
	return n, nil
}

// changed notes what flush has to do for a call that was in one state and is in another; 0: it was not, or is not any more.
func (c *callBatch) changed(r *callRow, was, is deferred.State) {
	part := c.lanes[r.lane]
	part.removed = part.removed || is == 0
	c.lanes[r.lane] = part
	if was != 0 {
		c.counts[countKey{r.Caller, was}]--
	}
	if is != 0 {
		c.counts[countKey{r.Caller, is}]++
	}
}

// write puts next where old stands, with what it has more. The operation's record is told of its end.
func (b *batch) writeCall(ctx context.Context, old, next *callRow, a answer, attempts []sealedAttempt) error {
	c := b.calls(ctx)
	c.change++
	next.change = c.change
	next.Tried = old.Tried
	for i := range attempts {
		if attempts[i].number <= next.Tried {
			continue // it has that one
		}
		next.Tried++
		if _, err := c.putAttempt.ExecContext(ctx, signed(next.Seq), next.Tried, attempts[i].sealed); err != nil {
			return err //nolint:wrapcheck // explained by the caller
		}
	}
	if a.head != nil {
		next.tags.head, next.tags.body = tagOf(a.head), tagOf(a.body)
		if _, err := c.putAnswer.ExecContext(ctx, signed(next.Seq), a.head, a.body); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	values, err := next.values()
	if err != nil {
		return err
	}
	if _, err := c.set.ExecContext(ctx, append(values, signed(next.Seq))...); err != nil {
		return err //nolint:wrapcheck // as above
	}
	c.changed(next, old.State, next.State)
	return nil
}

// endOperation has the ledger of operations tell of the end of a call. A record there that is damaged stays, and nobody is let past it; that is
// no reason to lose what became of the call.
func (b *batch) endOperation(ctx context.Context, ended *deferred.Record, attempts []call.Attempt, now time.Time) error {
	old, found, err := b.find(ctx, operation.Key{Caller: ended.Caller, ID: ended.OperationID})
	if errors.Is(err, ErrDamaged) {
		return nil
	}
	if err != nil || !found || old.Deferred != ended.ID {
		return err
	}
	plain := old.Record
	plain.MustNotRepeat = !ended.Repeatable
	err = plain.EndDeferred(&call.Final{
		Outcome: ended.Outcome, Effect: ended.Effect, Reason: ended.Reason, Detail: ended.Detail, Response: ended.Response, Attempts: attempts,
		RetrySafe: ended.Repeatable, FirstSend: ended.FirstSend, Told: ended.Told(),
	}, ended.Until, now)
	if err != nil {
		return err
	}
	return b.replace(ctx, &old, &plain)
}

// replace puts a record, which is not sealed yet, where old stands; its request is old's and is.
func (b *batch) replace(ctx context.Context, old *row, plain *operation.Record) error {
	request := plain.Request
	plain.Request = nil
	next, err := sealRow(b.committer.ledger.keys, plain)
	if err != nil {
		return err
	}
	next.n, next.Request = old.n, request
	return b.update(ctx, old, &next)
}

// removeCall deletes a call, and lets its operation's record outlive it as one of a direct call would.
func (b *batch) removeCall(ctx context.Context, r *callRow) error {
	c := b.calls(ctx)
	if err := b.forgetOperation(ctx, r); err != nil {
		return err
	}
	for _, s := range []*sql.Stmt{c.drop, c.dropRequest, c.dropAnswer, c.dropAttempts} {
		if _, err := s.ExecContext(ctx, signed(r.Seq)); err != nil {
			return err //nolint:wrapcheck // explained by the caller
		}
	}
	for name, value := range r.Labels {
		if _, err := c.dropLabel.ExecContext(ctx, r.Caller, name, value, signed(r.Seq)); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	c.changed(r, r.State, 0)
	return nil
}

func (b *batch) forgetOperation(ctx context.Context, r *callRow) error {
	old, found, err := b.find(ctx, r.key())
	if errors.Is(err, ErrDamaged) {
		return nil // it stays, and is told of where it is looked for
	}
	if err != nil || !found || old.Deferred != r.ID {
		return err
	}
	next := old
	next.ForgetDeferred()
	return b.update(ctx, &old, &next)
}

// labelNames are in order, so that rows are written in one.
func labelNames(labels map[string]string) []string {
	names := make([]string, 0, len(labels))
	for name := range labels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// close closes what was prepared.
func (c *callTable) close() error {
	var err error
	for _, s := range c.all() {
		if *s != nil {
			err = errors.Join(err, (*s).Close())
		}
	}
	return err
}
