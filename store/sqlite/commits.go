package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/sallyport/sallyport/operation"
)

const (
	// mostWaiting is how many writes wait at most, and mostWaitingBytes how much they are together.
	mostWaiting      = 4096
	mostWaitingBytes = 256 << 20
	// mostTogether is how many writes are one transaction at most, and mostTogetherBytes from how much on no more are added.
	mostTogether      = 256
	mostTogetherBytes = 8 << 20
)

var errClosed = errors.New("closed")

// commits writes for all that wait: what came while one transaction went to the disk is the next, and has one wait for the disk. So the
// cost of that wait is shared by as many as there are, and one alone does not wait for company.
//
//	do ──► queue ──► gather ──► transaction ──ok──► each its answer
//	                                 └──failed──► each again, in one of its own
type commits struct {
	ledger *Ledger
	table  statements
	calls  callTable

	queue   chan *commit
	waiting atomic.Int64 // bytes in queue
	most    int64        // of waiting
	bodies  int64        // bytes of all bodies that are kept, before they were sealed; run alone changes it
	change  int64        // the last change of a deferred call, and seq the last of them; run alone changes them
	seq     int64
	stop    context.CancelFunc
	ended   chan struct{} // closed by run
}

// commit is a write that waits.
type commit struct {
	size int64
	// given is the error of the caller's context once he has given up.
	given func() error
	// work is done again where the transaction that it was in failed.
	work   func(ctx context.Context, b *batch) error
	answer error
	done   chan error // of one place
}

// batch is the transaction that works are done in.
type batch struct {
	statements

	tx        *sql.Tx
	committer *commits
	bodies    int64      // bytes of all bodies that are kept, now
	call      *callBatch // what is done to deferred calls; nil: nothing
}

// statements are what works need.
type statements struct {
	finder

	get, put, set, drop *sql.Stmt
}

// newCommits prepares everything and begins to write.
func newCommits(ctx context.Context, l *Ledger) (*commits, error) {
	c := &commits{ledger: l, queue: make(chan *commit, mostWaiting), most: mostWaitingBytes, ended: make(chan struct{})}
	var err error
	if c.table.finder, err = newFinder(ctx, l.writer); err != nil {
		return nil, err
	}
	values := strings.Repeat(", ?", setCount)[2:]
	for statement, text := range map[**sql.Stmt]string{
		&c.table.get:  "SELECT " + rowColumns + " FROM operations WHERE n = ?",
		&c.table.put:  "INSERT INTO operations (" + setColumns + ") VALUES (" + values + ")",
		&c.table.set:  "UPDATE operations SET (" + setColumns + ") = (" + values + ") WHERE n = ?",
		&c.table.drop: "DELETE FROM operations WHERE n = ?",
	} {
		*statement, err = l.writer.PrepareContext(ctx, text) //nolint:sqlclosecheck // closed with the file
		if err != nil {
			return nil, err //nolint:wrapcheck // explained by OpenLedger
		}
	}
	if err := errors.Join(prepareAll(ctx, l.writer, c.calls.reads()), prepareAll(ctx, l.writer, c.calls.writes())); err != nil {
		return nil, err
	}
	err = l.writer.QueryRowContext(ctx, `SELECT last, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'calls'), 0) FROM changes`).
		Scan(&c.change, &c.seq)
	if err != nil {
		return nil, err //nolint:wrapcheck // explained by OpenLedger
	}
	// From the index alone; bodies are few, since they are kept for a short time.
	err = l.writer.QueryRowContext(ctx, "SELECT coalesce(sum(kept), 0) FROM operations INDEXED BY operations_bodies WHERE kept > 0").
		Scan(&c.bodies)
	if err != nil {
		return nil, err //nolint:wrapcheck // explained by OpenLedger
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	go c.run(running)
	return c, nil
}

// close ends what is going on; who waits gets an error.
func (c *commits) close() {
	c.stop()
	<-c.ended
}

// do has work done in a transaction, and returns when that is on the disk, or ctx has ended. Then work may still be done, unless ctx
// ended before it was begun.
func (c *commits) do(ctx context.Context, size int64, work func(ctx context.Context, b *batch) error) error {
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // explained by the caller
	}
	one := &commit{size: size, given: ctx.Err, work: work, done: make(chan error, 1)}
	if all := c.waiting.Add(size); all > c.most && all != size {
		c.waiting.Add(-size)
		return ErrOverloaded
	}
	select {
	case c.queue <- one:
	default:
		c.waiting.Add(-size)
		return ErrOverloaded
	}
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // explained by the caller
	case <-c.ended:
	}
	select {
	case err := <-one.done:
		return err
	default:
		return errClosed
	}
}

func (c *commits) run(ctx context.Context) {
	defer close(c.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-c.queue:
			c.write(ctx, c.gather(first))
		}
	}
}

// gather takes what waits, up to the bounds.
func (c *commits) gather(first *commit) []*commit {
	all, size := []*commit{first}, first.size
	for len(all) < mostTogether && size < mostTogetherBytes {
		select {
		case next := <-c.queue:
			all, size = append(all, next), size+next.size
			continue
		default:
		}
		break
	}
	c.waiting.Add(-size)
	return all
}

// write does all of them. One that fails takes none with it: they are done again, each by itself. Doing them again is safe, since what
// failed has left nothing behind that this process sees: SQLite shows a transaction only when it has gone to the disk.
func (c *commits) write(ctx context.Context, all []*commit) {
	began, err := c.transact(ctx, all)
	if err == nil || !began || len(all) == 1 {
		answerAll(all, err)
		return
	}
	for i, one := range all {
		began, err = c.transact(ctx, all[i:i+1])
		if !began {
			answerAll(all[i:], err) // nobody may write now
			return
		}
		answerAll([]*commit{one}, err)
	}
}

func answerAll(all []*commit, err error) {
	for _, one := range all {
		if err != nil {
			one.done <- err
		} else {
			one.done <- one.answer
		}
	}
}

// transact does all of them in one transaction; began tells whether that came to be.
func (c *commits) transact(ctx context.Context, all []*commit) (began bool, err error) {
	b := &batch{committer: c, bodies: c.bodies}
	err = transact(ctx, c.ledger.writer, func(tx *sql.Tx) error {
		began = true
		// The statements watch no context, which would cost each a goroutine. The transaction does.
		ctx := context.WithoutCancel(ctx)
		b.tx, b.statements = tx, c.table.in(ctx, tx)
		for _, one := range all {
			if one.answer = one.given(); one.answer != nil {
				continue // he does not wait any more, and nothing was begun
			}
			one.answer = one.work(ctx, b)
			if one.answer != nil && !isAnswer(one.answer) {
				return one.answer
			}
		}
		if b.call != nil {
			if err := b.call.flush(ctx); err != nil {
				return err
			}
		}
		return c.ledger.inPlace()
	})
	switch {
	case err == nil:
		c.bodies = b.bodies
		if b.call != nil {
			c.change, c.seq = b.call.change, b.call.seq
		}
	case ctx.Err() != nil:
		err = errClosed
	}
	return began, err
}

// isAnswer: it came of what was read before anything was written, so the transaction can go on.
func isAnswer(err error) bool {
	return errors.Is(err, operation.ErrSuperseded) || errors.Is(err, ErrDamaged) || isDeferredAnswer(err)
}

// in are the statements within a transaction, which closes them.
func (s *statements) in(ctx context.Context, tx *sql.Tx) statements {
	return statements{
		finder: s.finder.in(ctx, tx),
		get:    tx.StmtContext(ctx, s.get), put: tx.StmtContext(ctx, s.put),
		set: tx.StmtContext(ctx, s.set), drop: tx.StmtContext(ctx, s.drop),
	}
}

// insert adds a row.
func (b *batch) insert(ctx context.Context, r *row) error {
	values, err := r.values()
	if err != nil {
		return err
	}
	b.bodies += r.kept
	_, err = b.put.ExecContext(ctx, values...)
	return err //nolint:wrapcheck // explained by the caller
}

// update puts next where old stands.
func (b *batch) update(ctx context.Context, old, next *row) error {
	values, err := next.values()
	if err != nil {
		return err
	}
	b.bodies += next.kept - old.kept
	_, err = b.set.ExecContext(ctx, append(values, old.n)...)
	return err //nolint:wrapcheck // explained by the caller
}

// remove takes old away.
func (b *batch) remove(ctx context.Context, old *row) error {
	b.bodies -= old.kept
	_, err := b.drop.ExecContext(ctx, old.n)
	return err //nolint:wrapcheck // explained by the caller
}
