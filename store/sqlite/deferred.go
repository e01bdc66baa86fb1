package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/operation"
)

// Deferred is the part of a ledger that keeps deferred calls: in the same file, written with the same commits.
type Deferred struct{ l *Ledger }

var (
	_ deferred.Store  = Deferred{}
	_ deferred.Keeper = Deferred{}
)

// Deferred gives the deferred calls of the ledger.
func (l *Ledger) Deferred() Deferred { return Deferred{l} }

// ownerOfDeferred stands where a start of the broker does in the record of an id that a deferred call has.
const ownerOfDeferred = "deferred"

func isDeferredAnswer(err error) bool {
	for _, answer := range []error{
		deferred.ErrNotFound, deferred.ErrConflict, deferred.ErrSuperseded, deferred.ErrFinished, deferred.ErrSending, deferred.ErrState,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// submission is a call before it is stored, sealed where nobody waits for it.
type submission struct {
	row      callRow
	lead     uint64 // of the direct call that goes on as this one
	request  []byte
	attempts []sealedAttempt
	answer   answer
}

func (d Deferred) prepare(r *deferred.Record) (*submission, error) {
	if err := storable(r); err != nil {
		return nil, err
	}
	s := &submission{row: callRow{Record: *r}, lead: r.Lead}
	s.row.Lead = 0
	k := keysFor(d.l.keys, r)
	if len(r.Request) > 0 {
		s.request = k.seal(r.Request, "request")
		s.row.tags.request = tagOf(s.request)
	}
	var err error
	if s.attempts, err = k.sealAttempts(r.Attempts); err != nil {
		return nil, err
	}
	if s.answer, err = k.sealAnswer(r.Response); err != nil {
		return nil, err
	}
	if s.answer.head != nil {
		s.row.tags.head, s.row.tags.body = tagOf(s.answer.head), tagOf(s.answer.body)
	}
	s.row.Tried = uint32(len(s.attempts)) //nolint:gosec // a handful
	s.row.Labels = maps.Clone(r.Labels)
	return s, nil
}

func (s *submission) size() int64 {
	n := 2<<10 + len(s.request) + len(s.answer.head) + len(s.answer.body)
	for _, a := range s.attempts {
		n += len(a.sealed)
	}
	return int64(n)
}

// Submit implements [deferred.Store].
func (d Deferred) Submit(ctx context.Context, r *deferred.Record) (deferred.Record, bool, error) {
	s, err := d.prepare(r)
	if err != nil {
		return deferred.Record{}, false, d.l.explain(ctx, err)
	}
	var (
		stands deferred.Record
		stored bool
	)
	err = d.l.commits.do(ctx, s.size(), func(ctx context.Context, b *batch) error {
		stands, stored = deferred.Record{}, false
		c := b.calls(ctx)
		op, found, err := b.find(ctx, s.row.key())
		if err != nil {
			return err
		}
		switch {
		case s.lead != 0:
			if !found || !s.leads(&op) {
				return deferred.ErrConflict
			}
		case found:
			row, taken, err := c.standing(ctx, &op)
			if err != nil {
				return err
			}
			if taken && row.Fingerprint == r.Fingerprint {
				err := c.load(ctx, c.keys, &row, everything)
				stands = row.Record
				return err
			}
			if taken || !op.Free() {
				return deferred.ErrConflict
			}
		}
		stored = true
		row, err := b.insertCall(ctx, s, &op, found)
		stands = row.Record
		return err
	})
	if err != nil {
		return deferred.Record{}, false, d.l.explain(ctx, err)
	}
	if stored {
		// What is given is not kept, and what comes back is the caller's.
		stands.Request, stands.Labels = append([]byte(nil), r.Request...), maps.Clone(r.Labels)
		stands.Attempts = append([]call.Attempt(nil), r.Attempts...)
		callTimes(&stands)
	}
	return stands, stored, nil
}

// leads: the direct call that goes on as this one has the id.
func (s *submission) leads(op *row) bool {
	return op.Epoch == s.lead && op.State == operation.StateRunning && op.Deferred == "" && op.Fingerprint == s.row.Fingerprint
}

// callTimes makes the times what they are when they are read.
func callTimes(r *deferred.Record) {
	row := callRow{Record: *r}
	for _, t := range row.times() {
		if !t.IsZero() {
			*t = t.Round(0).UTC()
		}
	}
	*r = row.Record
}

// standing is the call that an id is for.
func (c *callBatch) standing(ctx context.Context, op *row) (r callRow, taken bool, err error) {
	if op.Deferred == "" {
		return r, false, nil
	}
	r, err = c.named(ctx, op.Caller, op.Deferred)
	if errors.Is(err, deferred.ErrNotFound) {
		return r, false, nil
	}
	return r, err == nil, err
}

// insertCall stores a call and takes its id.
func (b *batch) insertCall(ctx context.Context, s *submission, op *row, found bool) (callRow, error) {
	c := b.calls(ctx)
	r := s.row
	if found && s.lead == 0 { // what an earlier call under the id may have done; one that goes on knows
		if r.FirstSend.IsZero() || !op.FirstSend.IsZero() && op.FirstSend.Before(r.FirstSend) {
			r.FirstSend = op.FirstSend
		}
		if op.Effect != call.EffectUnspecified && r.Effect != call.EffectUnknown {
			r.Effect = op.Effect
		}
		r.Repeatable = r.Repeatable || r.Effect == call.EffectUnknown // or the id would not be free
	}
	var err error
	if r.lane, err = c.laneOf(ctx, r.Caller, r.Origin); err != nil {
		return r, err
	}
	c.change++
	r.change = c.change
	c.seq++
	r.Seq = uint64(c.seq) //nolint:gosec // from 1
	values, err := r.values()
	if err != nil {
		return r, err
	}
	if _, err := c.put.ExecContext(ctx, append([]any{c.seq}, values...)...); err != nil {
		return r, err //nolint:wrapcheck // explained by Submit
	}
	if err := c.putParts(ctx, &r, s); err != nil {
		return r, err
	}
	c.changed(&r, 0, r.State)
	return r, b.takeOperation(ctx, &r.Record, op, found, r.Updated)
}

func (c *callBatch) putParts(ctx context.Context, r *callRow, s *submission) error {
	if s.request != nil {
		if _, err := c.putRequest.ExecContext(ctx, signed(r.Seq), s.request); err != nil {
			return err //nolint:wrapcheck // explained by Submit
		}
	}
	if s.answer.head != nil {
		if _, err := c.putAnswer.ExecContext(ctx, signed(r.Seq), s.answer.head, s.answer.body); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	for i, a := range s.attempts {
		if _, err := c.putAttempt.ExecContext(ctx, signed(r.Seq), i+1, a.sealed); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	for _, name := range labelNames(r.Labels) {
		if _, err := c.putLabel.ExecContext(ctx, r.Caller, name, r.Labels[name], signed(r.Seq)); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	return nil
}

// takeOperation makes the id that of a call, in the ledger of operations.
func (b *batch) takeOperation(ctx context.Context, r *deferred.Record, old *row, found bool, now time.Time) error {
	next := row{Record: operation.Record{
		Key: operation.Key{Caller: r.Caller, ID: r.OperationID}, Epoch: 1, Owner: ownerOfDeferred, Fingerprint: r.Fingerprint,
		State: operation.StateRunning, Deferred: r.ID, Effect: r.Effect, FirstSend: r.FirstSend,
		CreateTime: now, UpdateTime: now, Until: operation.Forever(),
	}}
	if !found {
		return b.insert(ctx, &next)
	}
	next.n, next.Epoch, next.CreateTime = old.n, old.Epoch+1, old.CreateTime
	return b.update(ctx, old, &next)
}

// Begin implements [deferred.Store].
func (d Deferred) Begin(ctx context.Context, seq, epoch uint64, repeatable bool, now time.Time) error {
	return d.change(ctx, seq, now, func(old *callRow) (callRow, error) {
		if old.Epoch != epoch || old.State != deferred.StatePending && old.State != deferred.StateRetrying {
			return callRow{}, deferred.ErrSuperseded
		}
		next := *old
		next.State, next.Repeatable, next.Updated, next.NextAttempt = deferred.StateSending, repeatable, now, time.Time{}
		next.Epoch++
		return next, nil
	})
}

// change makes a call what become says, and nothing else.
func (d Deferred) change(ctx context.Context, seq uint64, now time.Time, become func(old *callRow) (callRow, error)) error {
	if _, err := storedTime(now); err != nil {
		return d.l.explain(ctx, err)
	}
	return d.l.explain(ctx, d.l.commits.do(ctx, 1<<10, func(ctx context.Context, b *batch) error {
		old, found, err := b.calls(ctx).bySeq(ctx, seq)
		if err != nil {
			return err
		}
		if !found {
			return deferred.ErrSuperseded
		}
		next, err := become(&old)
		if err != nil {
			return err
		}
		return b.writeCall(ctx, &old, &next, answer{}, nil)
	}))
}

// End implements [deferred.Store].
func (d Deferred) End(ctx context.Context, r *deferred.Record, attempts []call.Attempt) error {
	if err := storable(r); err != nil {
		return d.l.explain(ctx, err)
	}
	k := keysFor(d.l.keys, r)
	sealed, err := k.sealAttempts(attempts)
	if err != nil {
		return d.l.explain(ctx, err)
	}
	a, err := k.sealAnswer(r.Response)
	if err != nil {
		return d.l.explain(ctx, err)
	}
	size := 2<<10 + 2*len(a.head) + 2*len(a.body)
	for _, one := range sealed {
		size += 2 * len(one.sealed)
	}
	return d.l.explain(ctx, d.l.commits.do(ctx, int64(size), func(ctx context.Context, b *batch) error {
		old, found, err := b.calls(ctx).bySeq(ctx, r.Seq)
		if err != nil {
			return err
		}
		if !found || old.Epoch != r.Epoch || old.State.Finished() || old.ID != r.ID || old.Caller != r.Caller {
			return deferred.ErrSuperseded
		}
		next := old.becomes(r)
		if !next.State.Finished() {
			return b.writeCall(ctx, &old, &next, a, sealed)
		}
		return b.finish(ctx, &old, &next, a, sealed, attempts)
	}))
}

// Settle implements [deferred.Store].
func (d Deferred) Settle(ctx context.Context, r *deferred.Record) error {
	if err := storable(r); err != nil {
		return d.l.explain(ctx, err)
	}
	a, err := keysFor(d.l.keys, r).sealAnswer(r.Response)
	if err != nil {
		return d.l.explain(ctx, err)
	}
	return d.l.explain(ctx, d.l.commits.do(ctx, int64(2<<10+2*len(a.head)+2*len(a.body)), func(ctx context.Context, b *batch) error {
		old, found, err := b.calls(ctx).bySeq(ctx, r.Seq)
		if err != nil {
			return err
		}
		if !found || old.Epoch != r.Epoch || old.State != deferred.StateUnknown || old.ID != r.ID || old.Caller != r.Caller {
			return deferred.ErrSuperseded
		}
		next := old.becomes(r)
		if next.State.Finished() {
			return b.finish(ctx, &old, &next, a, nil, nil)
		}
		return b.revive(ctx, &old, &next, a, r.Updated)
	}))
}

// becomes is what End makes of a row: what was submitted stays.
func (r *callRow) becomes(n *deferred.Record) callRow {
	next := *r
	next.State, next.Failure, next.Spent, next.Repeatable, next.PossibleDuplicate = n.State, n.Failure, n.Spent, n.Repeatable, n.PossibleDuplicate
	next.MaxRetries, next.Backoff = n.MaxRetries, n.Backoff
	next.NextAttempt, next.Expire, next.Updated, next.Ended, next.Until = n.NextAttempt, n.Expire, n.Updated, n.Ended, n.Until
	next.FirstSend, next.Outcome, next.Effect, next.Reason, next.Detail = n.FirstSend, n.Outcome, n.Effect, n.Reason, n.Detail
	next.Response = n.Response
	return next
}

// finish writes a call that is over, and has the ledger of operations tell of it.
func (b *batch) finish(ctx context.Context, old, next *callRow, a answer, sealed []sealedAttempt, attempts []call.Attempt) error {
	c := b.calls(ctx)
	was := *old
	if err := c.load(ctx, c.keys, &was, parts{attempts: true, answer: next.Response == nil, body: true}); err != nil {
		return err
	}
	ended := next.Record
	if ended.Response == nil {
		ended.Response = was.Response
	}
	all := was.Attempts
	for i := range attempts {
		if int(attempts[i].Number) > len(all) {
			all = append(all, attempts[i])
		}
	}
	if err := b.endOperation(ctx, &ended, all, ended.Updated); err != nil {
		return err
	}
	return b.writeCall(ctx, old, next, a, sealed)
}

// Find implements [deferred.Finder].
func (d Deferred) Find(ctx context.Context, caller, id string) (deferred.Record, error) {
	var r callRow
	err := d.l.atOnce(ctx, func(c *callTable, _ *sql.Tx) (err error) {
		if r, err = c.named(ctx, caller, id); err == nil {
			err = c.load(ctx, d.l.keys, &r, everything)
		}
		return err
	})
	if err != nil {
		return deferred.Record{}, d.l.explain(ctx, err)
	}
	return r.Record, nil
}

// atOnce reads all that f reads at one instant.
func (l *Ledger) atOnce(ctx context.Context, f func(c *callTable, tx *sql.Tx) error) error {
	tx, err := l.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err //nolint:wrapcheck // explained by the caller
	}
	defer func() { _ = tx.Rollback() }() // it has read only
	c := l.callReads
	for s := range c.reads() {
		*s = tx.StmtContext(ctx, *s)
	}
	return f(&c, tx)
}

// Counts implements [deferred.Finder].
func (d Deferred) Counts(ctx context.Context, caller string) (map[deferred.State]uint64, error) {
	type count struct {
		state deferred.State
		calls int64
	}
	query, args := "SELECT state, calls FROM counts WHERE caller = ?", []any{caller}
	if caller == "" {
		query, args = "SELECT state, sum(calls) FROM counts GROUP BY state", nil
	}
	all, err := list(ctx, &d.l.file, func(rows *sql.Rows) (c count, err error) {
		if err = rows.Scan(&c.state, &c.calls); err != nil {
			err = fmt.Errorf("%w: a count: %w", ErrDamaged, err)
		}
		return c, err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	counts := map[deferred.State]uint64{}
	for _, c := range all {
		if c.calls > 0 {
			counts[c.state] = uint64(c.calls)
		}
	}
	return counts, nil
}
