package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sallyport/sallyport/crash/caller"
	"github.com/sallyport/sallyport/crash/history"
	"github.com/sallyport/sallyport/crash/upstream"
	"github.com/sallyport/sallyport/crash/victim"
)

// connections to the broker: one that breaks takes all its calls with it.
const connections = 4

// round is one broker with its data, from its first life to its last.
func round(ctx context.Context, o *options, seed uint64, dir string) (history.History, error) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	recorder := history.NewRecorder(time.Now())
	rules := filepath.Join(dir, "policies.yaml")
	if err := os.WriteFile(rules, []byte(policies(history.AttemptTimeout)), 0o600); err != nil {
		return history.History{}, fmt.Errorf("policies: %w", err)
	}
	death := &death{fire: make(chan struct{}, 1)}
	up, err := upstream.Start(ctx, seed, recorder, death.on)
	if err != nil {
		return history.History{}, err
	}
	broker, err := victim.Start(ctx, victim.Config{Program: o.program, Policies: rules, Dir: dir}, rnd)
	if err != nil {
		return history.History{}, errors.Join(err, up.Close())
	}
	callers := make([]*caller.Caller, connections)
	for i := range callers {
		if callers[i], err = caller.Dial(broker.Address(), up.Address(), uint64(i), recorder); err != nil {
			return history.History{}, errors.Join(err, broker.Kill(), up.Close())
		}
	}

	work := func(ctx context.Context) {
		inParallel(o.callers, o.operations, func(n int) { callers[n%connections].Run(ctx, seed, n) })
	}
	if o.kills {
		err = killWhile(ctx, broker, death, recorder, rnd, work)
	} else {
		work(ctx)
	}
	up.Calm()
	if err == nil {
		// All that is late has come by then.
		err = pass(ctx, settle)
	}
	if err == nil {
		const atOnce = 16
		inParallel(atOnce, o.operations, func(n int) { callers[n%connections].Last(ctx, caller.Plan(seed, n)) })
		err = broker.Terminate()
	} else {
		err = errors.Join(err, broker.Kill())
	}
	for _, c := range callers {
		err = errors.Join(err, c.Close())
	}
	return recorder.History(), errors.Join(err, up.Close())
}

// killWhile ends the broker and starts it again, many times, until the work is done.
func killWhile(ctx context.Context, broker *victim.Victim, death *death, h *history.Recorder, rnd *rand.Rand, work func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a broker that cannot be had again ends the work
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	defer func() { <-done }()
	for {
		death.arm(rnd)
		if !death.comes(done, rnd) {
			return ctx.Err() //nolint:wrapcheck // the audit was interrupted, or nil
		}
		const kills, of = 4, 5
		s := history.Stop{At: h.At(time.Now()), Killed: rnd.IntN(of) < kills}
		end := broker.Terminate
		if s.Killed {
			end = broker.Kill
		}
		if err := end(); err != nil {
			cancel()
			return err
		}
		s.Wrong = broker.Wrong()
		if rnd.IntN(2) == 0 {
			const down = 300 * time.Millisecond
			_ = pass(ctx, time.Duration(rnd.Int64N(int64(down)))) // the next life tells
		}
		if err := broker.Restart(ctx); err != nil {
			cancel()
			return err
		}
		s.Back = h.At(time.Now())
		h.Stop(s)
	}
}

// death is the instant at which the broker dies next: after some time, or when something happens upstream.
type death struct {
	fire chan struct{} // has one value when it is time

	mu     sync.Mutex // protects the fields below
	armed  bool
	moment upstream.Moment
	left   int
}

// arm draws what to wait for.
func (d *death) arm(rnd *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.fire: // of the life before
	default:
	}
	const many = 30
	d.armed = rnd.IntN(3) > 0
	d.moment, d.left = []upstream.Moment{upstream.Arrived, upstream.Committed}[rnd.IntN(2)], 1+rnd.IntN(many)
}

// on is told what happens upstream.
func (d *death) on(m upstream.Moment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.armed || m != d.moment {
		return
	}
	if d.left--; d.left == 0 {
		d.armed = false
		select {
		case d.fire <- struct{}{}:
		default:
		}
	}
}

// comes waits for it; false: the work is done.
func (d *death) comes(done <-chan struct{}, rnd *rand.Rand) bool {
	const shortest, longest = 50 * time.Millisecond, 1200 * time.Millisecond
	timer := time.NewTimer(shortest + time.Duration(rnd.Int64N(int64(longest-shortest))))
	defer timer.Stop()
	select {
	case <-done:
		return false
	case <-d.fire:
	case <-timer.C:
	}
	return true
}

// inParallel does it for each number below n, so many at once.
func inParallel(atOnce, n int, do func(int)) {
	next := make(chan int) // closed below
	var running sync.WaitGroup
	for range atOnce {
		running.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	running.Wait()
}

// pass waits.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the audit was interrupted
	}
}
