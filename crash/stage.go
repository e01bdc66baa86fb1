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

// longAttempt is what an attempt of a deferred call has: longer than it is held anywhere.
const longAttempt = 20 * time.Second

// stage is one broker with its data, its upstream and its caller, for deferred calls.
type stage struct {
	rnd     *rand.Rand
	history *history.Recorder
	up      *upstream.Held
	broker  *victim.Victim
	caller  *caller.Caller
	dir     string

	mu    sync.Mutex        // protects the fields below
	names map[string]string // of the broker, by operation
	order []string
}

func openStage(ctx context.Context, program string, seed uint64, dir string) (*stage, error) {
	s := &stage{rnd: rand.New(rand.NewPCG(seed, 0)), history: history.NewRecorder(time.Now()), dir: dir, names: map[string]string{}}
	rules := filepath.Join(dir, "policies.yaml")
	if err := os.WriteFile(rules, []byte(policies(longAttempt)), 0o600); err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	var err error
	if s.up, err = upstream.StartHeld(ctx, seed, s.history); err != nil {
		return nil, err
	}
	if s.broker, err = victim.Start(ctx, victim.Config{Program: program, Policies: rules, Dir: dir}, s.rnd); err != nil {
		return nil, errors.Join(err, s.up.Close())
	}
	if s.caller, err = caller.Dial(s.broker.Address(), s.up.Address(), 0, s.history); err != nil {
		return nil, errors.Join(err, s.broker.Kill(), s.up.Close())
	}
	return s, nil
}

// close ends it all; failed: the broker may have ended already.
func (s *stage) close(failed error) error {
	end := s.broker.Terminate
	if failed != nil {
		end = s.broker.Kill
	}
	return errors.Join(failed, end(), s.caller.Close(), s.up.Close())
}

// store is the file of the broker's deferred calls.
func (s *stage) store() string { return filepath.Join(s.dir, "data", "ledger.db") }

// submit submits one until it is acknowledged.
func (s *stage) submit(ctx context.Context, d *history.Deferred, up string, due time.Time) string {
	name := s.caller.Submit(ctx, d, up, due)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.names[d.Name]; !known && name != "" {
		s.order = append(s.order, d.Name)
		s.names[d.Name] = name
	}
	return name
}

// kill ends the broker at once, runs between while it is dead, and starts it again.
func (s *stage) kill(ctx context.Context, killed bool, between func() error) error {
	stop := history.Stop{At: s.history.At(time.Now()), Killed: killed}
	end := s.broker.Terminate
	if killed {
		end = s.broker.Kill
	}
	err := end()
	stop.Wrong = s.broker.Wrong()
	if err := errors.Join(err, between()); err != nil {
		return err
	}
	if err := s.broker.Restart(ctx); err != nil {
		return err
	}
	stop.Back = s.history.At(time.Now())
	s.history.Stop(stop)
	return nil
}

// finish waits until all of them are finished, reads each and then the list. Who is not finished in that time is a finding of the checker.
func (s *stage) finish(ctx context.Context, patience time.Duration) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for within.Err() == nil {
		n, err := s.caller.Counts(within)
		if err == nil && n["PENDING"]+n["RETRYING"]+n["SENDING"] == 0 {
			break
		}
		const look = 20 * time.Millisecond
		_ = pass(within, look) // the loop ends with it
	}
	const atOnce = 8
	inParallel(atOnce, len(s.order), func(n int) { s.caller.Look(ctx, s.order[n], s.names[s.order[n]], true) })
	return s.caller.List(ctx)
}
