package deferred

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Queue keeps deferred calls and makes them. It is safe for concurrent use.
type Queue struct {
	cfg   Config
	start time.Time // with its monotonic reading, see now

	wake   chan struct{} // has room for one word that there may be something due; closed by nobody
	closed chan struct{} // closed by Close
	once   sync.Once
	loop   sync.WaitGroup // the loops
	runs   sync.WaitGroup // attempts

	mu      sync.Mutex // protects the fields below
	flights map[uint64]*flight
	lanes   map[string]int       // flights by origin
	quiet   map[string]time.Time // origins that refused, until when they are left alone
	ended   bool                 // nothing is begun any more
}

// flight is a record that is being worked on.
type flight struct {
	origin string
	caller string
	id     string
	cancel context.CancelCauseFunc
	asked  bool // somebody has cancelled the call
}

// Config is what a queue stands on; all of it is required.
type Config struct {
	Store      Store
	Keeper     Keeper
	Dispatcher Dispatcher
	// Log hears of a store that fails.
	Log *slog.Logger
	// AtOnce bounds the attempts that run at once; a quarter of them go to one origin at most.
	AtOnce int
}

const (
	// originShare is the part of AtOnce that one origin may have.
	originShare = 4
	// storeAgain is the pause after a store that failed, tidyEvery that between two looks for what is expired.
	storeAgain = time.Second
	tidyEvery  = time.Second
	// storeWithin bounds one use of the store.
	storeWithin = 5 * time.Second
	// batch is how many records are read at a time.
	batch = 128
)

// New makes a queue. [Queue.Run] starts it.
func New(cfg Config) *Queue {
	return &Queue{
		cfg: cfg, start: time.Now(),
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
		flights: map[uint64]*flight{}, lanes: map[string]int{}, quiet: map[string]time.Time{},
	}
}

// Run recovers what an earlier process left, and makes calls until Close.
func (q *Queue) Run() {
	q.loop.Go(func() {
		for !q.recover() {
			if !q.rest(storeAgain) {
				return
			}
		}
		q.loop.Go(q.tidy)
		q.work()
	})
}

// Close begins no more attempts, and returns when those under way have ended and are written. When ctx ends they are cancelled.
func (q *Queue) Close(ctx context.Context) {
	q.once.Do(func() { close(q.closed) })
	q.loop.Wait()
	done := make(chan struct{}) // closed by the goroutine below
	go func() {
		defer close(done)
		q.runs.Wait()
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	q.mu.Lock()
	for _, f := range q.flights {
		f.cancel(errClosing)
	}
	q.mu.Unlock()
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
	return q.now().Add(time.Until(t))
}

// Submit keeps a call. It is [ErrConflict] for an id that stands for something else.
func (q *Queue) Submit(ctx context.Context, r *Record) (Record, bool, error) {
	now := q.now()
	r.State, r.Created, r.Updated = StatePending, now, now
	r.NextAttempt = now
	if r.NotBefore.After(now) {
		r.NextAttempt = r.NotBefore
	}
	stands, stored, err := q.cfg.Store.Submit(ctx, r)
	if err != nil {
		return Record{}, false, q.explain(ctx, "submit", err)
	}
	if stored {
		q.poke()
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

// Cancel ends one. An attempt that is under way is cancelled, and the call is when that has ended; then what is known of its effect is told.
func (q *Queue) Cancel(ctx context.Context, caller, id string) (Record, error) {
	for {
		r, err := q.cfg.Keeper.Cancel(ctx, caller, id, q.now())
		if !errors.Is(err, ErrSending) {
			return r, q.explain(ctx, "cancel", err)
		}
		done := q.abort(caller, id)
		timer := time.NewTimer(shortDelay)
		select {
		case <-done:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return q.Find(context.WithoutCancel(ctx), caller, id)
		}
	}
}

// abort cancels the attempt of a call.
func (q *Queue) abort(caller, id string) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range q.flights {
		if f.id == id && f.caller == caller {
			f.asked = true
			f.cancel(errCancelled)
		}
	}
	return nil
}

// Redrive makes dead letters due again.
func (q *Queue) Redrive(ctx context.Context, which *Which, perSecond float64) (uint64, error) {
	n, err := q.cfg.Keeper.Redrive(ctx, which, perSecond, q.now())
	if n > 0 {
		q.poke()
	}
	return n, q.explain(ctx, "redrive", err)
}

// Purge deletes finished ones.
func (q *Queue) Purge(ctx context.Context, which *Which) (uint64, error) {
	n, err := q.cfg.Keeper.Purge(ctx, which)
	return n, q.explain(ctx, "purge", err)
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
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("deferred call: %w", context.Cause(ctx))
	}
	for _, answer := range []error{ErrNotFound, ErrConflict, ErrSuperseded, ErrFinished, ErrSending, ErrState} {
		if errors.Is(err, answer) {
			return answer
		}
	}
	q.cfg.Log.Error("the store of deferred calls failed", "doing", what, "error", err)
	return &StoreError{err}
}

// poke has the worker look for what is due.
func (q *Queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// rest reports whether the time passed before Close.
func (q *Queue) rest(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-q.closed:
		return false
	}
}
