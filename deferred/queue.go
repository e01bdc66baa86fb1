package deferred

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Queue keeps deferred calls and makes them. It is safe for concurrent use.
type Queue struct {
	cfg   Config
	start time.Time // with its monotonic reading, see now

	closed chan struct{} // closed by Close: nothing is begun any more
	hurry  chan struct{} // closed by Close when its time is up: what is under way is cancelled
	once   [2]sync.Once  // of closing these two
	loops  sync.WaitGroup
	runs   sync.WaitGroup // attempts, and those who ask about calls that are UNKNOWN
	asked  atomic.Int64   // how many of the latter

	places  *places
	due     *alarm // the worker's
	ends    *alarm // the tidier's
	changes *broadcast
}

// Config is what a queue stands on; all of it is required.
type Config struct {
	Store      Store
	Keeper     Keeper
	Dispatcher Dispatcher
	// Log hears of a store that fails, and of a dispatch that panics.
	Log *slog.Logger
	// AtOnce bounds the attempts that run at once; a quarter of them go to one origin at most.
	AtOnce int
}

const (
	// originShare is the part of AtOnce that one origin may have.
	originShare = 4
	// storeAgain is the pause after a store that failed.
	storeAgain = time.Second
	// lookEvery is after how long the store is looked into though it has told of nothing.
	lookEvery = time.Minute
	// storeWithin bounds one use of the store.
	storeWithin = 5 * time.Second
	// batch is how many records are read at a time.
	batch = 128
)

// New makes a queue. [Queue.Run] starts it.
func New(cfg Config) *Queue {
	q := &Queue{
		cfg: cfg, start: time.Now(), closed: make(chan struct{}), hurry: make(chan struct{}),
		places: newPlaces(cfg.AtOnce), due: newAlarm(), ends: newAlarm(), changes: newBroadcast(),
	}
	return q
}

// Run recovers what an earlier process left, and makes calls until Close. It returns at once.
func (q *Queue) Run() {
	q.loops.Go(func() {
		for !q.recover() || !q.askAboutUnknown() {
			if !pause(q.closed) {
				return
			}
		}
		q.loops.Go(q.tidy)
		q.work()
	})
}

// Close begins no more attempts, and returns when those under way have ended and are written. When ctx ends they are cancelled, and what
// the store does not take then stays begun, for the next start to judge.
func (q *Queue) Close(ctx context.Context) {
	q.once[0].Do(func() { close(q.closed) })
	done := make(chan struct{}) // closed by the goroutine below
	go func() {
		defer close(done)
		q.loops.Wait()
		q.runs.Wait()
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	q.once[1].Do(func() { close(q.hurry) })
	q.places.cancelAll(errClosing)
	<-done
}

var (
	errClosing   = errors.New("the broker ends")
	errCancelled = errors.New("the deferred call was cancelled")
)

// now is the wall clock of the start of this queue, carried on by the monotonic one: steps of the wall clock neither hurry nor hold up what
// waits. What a caller gives as an instant is carried over by its distance from the present one, see [Queue.At].
func (q *Queue) now() time.Time { return q.start.Add(time.Since(q.start)).Round(0).UTC() }

// At is an instant of the wall clock in the queue's own time.
func (q *Queue) At(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return q.now().Add(t.Sub(time.Now().Round(0)))
}

// Submit keeps a call. It is [ErrConflict] for an id that stands for something else. Instants in r are of the queue's own time. One that was
// made directly before has Created, since when its attempts are timed.
func (q *Queue) Submit(ctx context.Context, r *Record) (Record, bool, error) {
	now := q.now()
	r.Updated, r.NextAttempt = now, now
	if r.Created.IsZero() {
		r.Created = now
	}
	r.Tried = uint32(len(r.Attempts)) //nolint:gosec // those of one call that is handed over
	r.State = StatePending
	if r.Tried > 0 {
		r.State = StateRetrying
	}
	if r.NotBefore.After(now) {
		r.NextAttempt = r.NotBefore
	}
	stands, stored, err := q.cfg.Store.Submit(ctx, r)
	err = q.explain(ctx, "submit", err)
	if stored || unsure(ctx, err) {
		q.written(r)
	}
	if err != nil {
		return Record{}, false, err
	}
	return stands, stored, nil
}

// Find gives one deferred call of a caller.
func (q *Queue) Find(ctx context.Context, caller, id string) (Record, error) {
	r, err := q.cfg.Store.Find(ctx, caller, id)
	return r, q.explain(ctx, "find", err)
}

// List gives those a filter picks, the latest first.
func (q *Queue) List(ctx context.Context, f *Filter, before uint64, n int) ([]Record, error) {
	all, err := q.cfg.Store.List(ctx, f, before, n)
	return all, q.explain(ctx, "list", err)
}

// Counts counts a caller's by state.
func (q *Queue) Counts(ctx context.Context, caller string) (map[State]uint64, error) {
	counts, err := q.cfg.Store.Counts(ctx, caller)
	return counts, q.explain(ctx, "count", err)
}

// Redrive makes dead letters due again.
func (q *Queue) Redrive(ctx context.Context, which *Which, perSecond float64) (uint64, error) {
	n, err := q.cfg.Keeper.Redrive(ctx, which, perSecond, q.now())
	err = q.explain(ctx, "redrive", err)
	if n > 0 || unsure(ctx, err) {
		q.due.ring()
		q.ends.ring()
		q.changes.tell()
	}
	return n, err
}

// Purge deletes finished ones.
func (q *Queue) Purge(ctx context.Context, which *Which) (uint64, error) {
	n, err := q.cfg.Keeper.Purge(ctx, which)
	return n, q.explain(ctx, "purge", err)
}

// written tells those who wait what a record has become, or may have.
func (q *Queue) written(r *Record) {
	switch {
	case r.State.Finished():
		q.ends.by(r.Until)
	case r.State != StateSending:
		q.due.by(r.NextAttempt)
		q.ends.by(r.Expire)
	}
	q.changes.tell()
}

// StoreError says that the store cannot be used.
type StoreError struct{ Cause error }

// Error tells no more than the cause does.
func (e *StoreError) Error() string {
	return "the store of deferred calls cannot be used: " + e.Cause.Error()
}

func (e *StoreError) Unwrap() error { return e.Cause }

// explain passes answers on, and makes a [*StoreError] of what is none.
func (q *Queue) explain(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	for _, answer := range []error{ErrNotFound, ErrConflict, ErrSuperseded, ErrFinished, ErrSending, ErrState} {
		if errors.Is(err, answer) {
			return answer
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("deferred call: %w", context.Cause(ctx))
	}
	q.cfg.Log.Error("the store of deferred calls failed", "doing", what, "error", err)
	return &StoreError{err}
}

// unsure: nobody knows whether the write was done.
func unsure(ctx context.Context, err error) bool {
	_, failed := errors.AsType[*StoreError](err)
	return failed || err != nil && ctx.Err() != nil
}

// pause waits after a store that failed, and reports whether its time passed before stop was closed.
func pause(stop <-chan struct{}) bool {
	timer := time.NewTimer(storeAgain)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		return false
	}
}
