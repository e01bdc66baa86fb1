package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// submitters are how many submit at once while the broker is killed at random.
const submitters = 8

// randomly kills the broker so many times, at any moment, while calls are submitted and made.
func randomly(ctx context.Context, s *stage, kills int) error {
	s.up.Slow()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{}) // closed below
	var numbers atomic.Int64
	var working sync.WaitGroup
	for i := range submitters {
		rnd := rand.New(rand.NewPCG(s.rnd.Uint64(), uint64(i)))
		working.Go(func() { s.keepSubmitting(ctx, rnd, &numbers, stop) })
	}
	err := s.killAtRandom(ctx, kills)
	close(stop)
	if err != nil {
		cancel()
	}
	working.Wait()
	if err != nil {
		return err
	}
	const patience = time.Minute
	return s.finish(ctx, patience)
}

func (s *stage) killAtRandom(ctx context.Context, kills int) error {
	for range kills {
		const shortest, longest = 5 * time.Millisecond, 150 * time.Millisecond
		if err := pass(ctx, shortest+time.Duration(s.rnd.Int64N(int64(longest-shortest)))); err != nil {
			return err
		}
		const asked = 10 // one in so many is asked to end, which costs nothing of the kills
		if s.rnd.IntN(asked) == 0 {
			if err := s.kill(ctx, false, func() error { return nil }); err != nil {
				return err
			}
		}
		if err := s.kill(ctx, true, func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// keepSubmitting submits calls, cancels some, and looks after some, until stop is closed.
func (s *stage) keepSubmitting(ctx context.Context, rnd *rand.Rand, numbers *atomic.Int64, stop <-chan struct{}) {
	modes := history.Modes()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		const cancelled, looked, longest = 25, 3, 100 * time.Millisecond
		m := modes[rnd.IntN(len(modes))]
		d := history.Deferred{Name: fmt.Sprintf("any-%05d-%s", numbers.Add(1), m.Name), Mode: m, Cancelled: rnd.IntN(cancelled) == 0}
		s.history.Deferred(d)
		var due time.Time
		if rnd.IntN(2) == 0 {
			due = time.Now().Add(time.Duration(rnd.Int64N(int64(longest))))
		}
		name := s.submit(ctx, &d, s.up.Address(), due)
		if name == "" {
			return
		}
		_ = pass(ctx, time.Duration(rnd.Int64N(int64(longest)))) // the loop ends with it
		if d.Cancelled {
			s.caller.Cancel(ctx, name)
		}
		if rnd.IntN(looked) == 0 {
			s.caller.Look(ctx, d.Name, name, false)
		}
	}
}
