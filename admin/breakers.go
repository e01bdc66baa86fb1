package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

const (
	// forcedMax bounds how many origins are forced at a time.
	forcedMax = 10_000
	// clockCheck is how long the end of a force is waited for at a time, so that a wall clock that is set finds it soon.
	clockCheck = time.Minute
)

// Origins is where breakers are forced and reset.
type Origins interface {
	// Force sets who decides for all breakers of an origin, those that are made later as well.
	Force(origin string, mode breaker.Mode, now time.Time)
	// Reset has them forget everything; false: the origin is not known.
	Reset(origin string, now time.Time) bool
}

// Breakers keeps what operators said of the breakers of origins. It is durable before it takes effect, ends to the instant, and is found
// again after a restart.
type Breakers struct {
	store   BreakerStore
	origins Origins
	writing chan struct{} // holds a value while somebody writes
	acting  chan struct{} // holds a value while something is put in force; never for as long as a write takes
	changed chan struct{} // holds a value when the next end may be another one; never closed
	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed by run

	mu     sync.Mutex // protects the fields below; written by who is acting
	forced map[string]Forced
}

// Order is what an operator wants of the breakers of an origin.
type Order struct {
	// Origin is scheme://host:port.
	Origin string
	// Mode says who judges.
	Mode breaker.Mode
	// Principal is who wants it, Reason why.
	Principal, Reason string
	// ExpireTime is when a forced mode ends by itself; zero: never.
	ExpireTime time.Time
}

// LoadBreakers puts in force again what the store has, but for what is over, and keeps it until Close.
func LoadBreakers(ctx context.Context, store BreakerStore, origins Origins) (*Breakers, error) {
	all, err := store.Forced(ctx)
	if err != nil {
		return nil, fmt.Errorf("forced breakers: %w", err)
	}
	b := &Breakers{
		store: store, origins: origins, forced: make(map[string]Forced, len(all)),
		writing: make(chan struct{}, 1), acting: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	now := time.Now()
	for i := range all {
		if f := &all[i]; !f.over(now) {
			b.forced[f.Origin] = *f
			origins.Force(f.Origin, f.mode(), now)
		}
	}
	go b.run()
	return b, nil
}

// Close ends the watch over the ends, and waits for it. What is in force stays.
func (b *Breakers) Close() {
	close(b.stop)
	<-b.stopped
}

// Set has somebody else judge, from when it is stored. An error changes nothing: the store's, or [ErrManyForced].
func (b *Breakers) Set(ctx context.Context, c *Order) error {
	if err := b.take(ctx); err != nil {
		return err
	}
	defer b.giveBack()
	now := time.Now()
	before := b.of(c.Origin, now)
	var after *Forced
	if c.Mode == breaker.ForcedOpen || c.Mode == breaker.ForcedClosed {
		after = &Forced{
			Origin: c.Origin, Open: c.Mode == breaker.ForcedOpen, Principal: c.Principal, Reason: c.Reason, CreateTime: now.UTC().Round(0),
		}
		if !c.ExpireTime.IsZero() {
			after.ExpireTime = c.ExpireTime.UTC().Round(0)
		}
		if before == nil && b.count() >= forcedMax {
			return ErrManyForced
		}
	}
	record := recordOf("SetBreaker", c.Origin, c.Principal, c.Reason, now)
	record.Changes = changes(before, after)
	if err := b.write(ctx, c.Origin, after, record); err != nil {
		return err
	}
	b.act(c.Origin, after)
	b.wake()
	return nil
}

// act puts in force what is stored.
func (b *Breakers) act(origin string, f *Forced) {
	b.acting <- struct{}{}
	defer func() { <-b.acting }()
	b.keep(origin, f)
	b.origins.Force(origin, modeOf(f), time.Now())
}

// Reset has the breakers of an origin forget everything, once it stands in the audit; false: the origin is not known, any more.
func (b *Breakers) Reset(ctx context.Context, origin, principal, reason string) (bool, error) {
	if err := b.take(ctx); err != nil {
		return false, err
	}
	defer b.giveBack()
	now := time.Now()
	if err := b.write(ctx, origin, b.of(origin, now), recordOf("ResetOrigin", origin, principal, reason, now)); err != nil {
		return false, err
	}
	return b.origins.Reset(origin, now), nil
}

// List gives what is in force, by origin.
func (b *Breakers) List() []Forced {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Forced, 0, len(b.forced))
	for _, origin := range slices.Sorted(maps.Keys(b.forced)) {
		if f := b.forced[origin]; !f.over(now) {
			all = append(all, f)
		}
	}
	return all
}

// Forced gives what is in force of one origin; nil: its breakers judge by themselves.
func (b *Breakers) Forced(origin string) *Forced { return b.of(origin, time.Now()) }

func (b *Breakers) of(origin string, now time.Time) *Forced {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.forced[origin]
	if !ok || f.over(now) {
		return nil
	}
	return &f
}

func (b *Breakers) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.forced)
}

func (b *Breakers) keep(origin string, f *Forced) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f == nil {
		delete(b.forced, origin)
	} else {
		b.forced[origin] = *f
	}
}

// take waits until nobody else writes.
func (b *Breakers) take(ctx context.Context) error {
	select {
	case b.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("forced breakers: %w", context.Cause(ctx))
	}
}

func (b *Breakers) giveBack() { <-b.writing }

// write stores it. Of a write that fails nobody knows whether it was done (see [Store]), so that the store is asked; if it does not say,
// nothing is taken to have changed.
func (b *Breakers) write(ctx context.Context, origin string, f *Forced, record *Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	err := b.store.WriteForced(ctx, origin, f, record)
	if err == nil || f != nil && f.CreateTime.Equal(record.Time) && b.stored(ctx, f) || f == nil && b.of(origin, record.Time) != nil && b.gone(ctx, origin) {
		return nil
	}
	return &StoreError{err}
}

// stored tells whether the store has it.
func (b *Breakers) stored(ctx context.Context, f *Forced) bool {
	all, err := b.store.Forced(ctx)
	return err == nil && slices.ContainsFunc(all, func(other Forced) bool {
		return other.Origin == f.Origin && other.Open == f.Open && other.Principal == f.Principal && other.Reason == f.Reason &&
			other.CreateTime.Equal(f.CreateTime) && other.ExpireTime.Equal(f.ExpireTime)
	})
}

// gone tells whether the store has nothing of an origin, any more.
func (b *Breakers) gone(ctx context.Context, origin string) bool {
	all, err := b.store.Forced(ctx)
	return err == nil && !slices.ContainsFunc(all, func(f Forced) bool { return f.Origin == origin })
}

func recordOf(action, origin, principal, reason string, now time.Time) *Record {
	return &Record{Time: now.UTC().Round(0), Principal: principal, Action: action, Target: origin, Reason: reason}
}

// changes are those of the fields that a person sets. The reason of a force is a field too: it is shown for as long as it lasts.
func changes(before, after *Forced) []Change {
	var all []Change
	add := func(path, was, is string) {
		if was != is {
			all = append(all, Change{Path: path, Before: was, After: is})
		}
	}
	add("mode", modeOf(before).String(), modeOf(after).String())
	add("reason", before.reason(), after.reason())
	add("expire_time", before.expiry(), after.expiry())
	return all
}
