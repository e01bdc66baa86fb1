package deferred

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"
)

// Change is a record as it is after it changed.
type Change struct {
	Record Record
	// Position is where to go on after this. The changes of one read have it together: going on after one that is not the last of them tells
	// some of them again.
	Position uint64
}

// The errors that end a watch.
var (
	// ErrClosed: the broker ends.
	ErrClosed = errors.New("the broker ends")
	// ErrAhead: there has been no such position. It is of another store, and a watch would wait for this one to get there.
	ErrAhead = errors.New("no change has had that position")
)

const (
	// watchPause is the shortest time between two looks of one watcher.
	watchPause = 50 * time.Millisecond
	// watchEvery is after how long a watcher looks though nothing was told.
	watchEvery = 10 * time.Second
)

// Watch gives the records that a filter picks as they change, in the order of their last change, several changes of one as its last: those
// from now on with after 0, else those after that position. It ends with an error: that of ctx, a [*StoreError], [ErrClosed], [ErrAhead]. A
// watcher that is slow misses what lies between and holds up nobody.
func (q *Queue) Watch(ctx context.Context, f *Filter, after uint64) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		err := q.watch(ctx, f, after, func(c Change) bool { return yield(c, nil) })
		if err != nil {
			yield(Change{}, err)
		}
	}
}

// watch returns nil when yield has had enough.
func (q *Queue) watch(ctx context.Context, f *Filter, position uint64, yield func(Change) bool) error {
	_, present, err := q.cfg.Keeper.Changes(ctx, f, 0, 0)
	switch {
	case err != nil:
		return q.explain(ctx, "watch", err)
	case position > present:
		return ErrAhead
	case position == 0:
		position = present
	}
	for {
		told := q.changes.next() // before the look: what changes during it wakes the next one
		changed, reached, err := q.cfg.Keeper.Changes(ctx, f, position, batch)
		if err != nil {
			return q.explain(ctx, "watch", err)
		}
		for i := range changed {
			c := Change{Record: changed[i], Position: position}
			if i == len(changed)-1 {
				c.Position = reached
			}
			if !yield(c) {
				return nil
			}
		}
		position = reached
		if len(changed) >= batch {
			continue
		}
		if err := q.awaitChange(ctx, told); err != nil {
			return err
		}
	}
}

func (q *Queue) awaitChange(ctx context.Context, told <-chan struct{}) error {
	began := time.Now()
	timer := time.NewTimer(watchEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-told:
	case <-ctx.Done():
		return fmt.Errorf("deferred call: %w", context.Cause(ctx))
	case <-q.closed:
		return ErrClosed
	}
	rest := watchPause - time.Since(began)
	if rest <= 0 {
		return nil
	}
	timer.Reset(rest)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("deferred call: %w", context.Cause(ctx))
	case <-q.closed:
		return ErrClosed
	}
}

// broadcast tells everybody who waits.
type broadcast struct {
	mu   sync.Mutex // protects the field below
	word chan struct{}
}

func newBroadcast() *broadcast { return &broadcast{word: make(chan struct{})} }

// next is closed with the next word, by tell.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.word
}

func (b *broadcast) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.word)
	b.word = make(chan struct{})
}
