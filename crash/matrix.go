package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sallyport/sallyport/crash/history"
	"github.com/sallyport/sallyport/crash/upstream"
)

// cell is a step at which the broker is killed, and a kind of calls.
type cell struct {
	step       history.Step
	repeatable bool
}

// cells are all of them.
func cells() []cell {
	var all []cell
	for _, step := range history.Steps() {
		all = append(all, cell{step, true}, cell{step, false})
	}
	return all
}

// each is how many calls one kill hits.
const each = 4

// modes are those of the calls that one kill hits: each of its kind as often.
func (c cell) modes() []history.Mode {
	var kind []history.Mode
	for _, m := range history.Modes() {
		if m.Repeatable == c.repeatable {
			kind = append(kind, m)
		}
	}
	var all []history.Mode
	for i := range each {
		all = append(all, kind[i%len(kind)])
	}
	return all
}

// errBusy: a step was missed on a machine that has too much to do. It is no finding, and no kill of its cell.
var errBusy = errors.New("the machine is too busy: calls were due before the step was reached")

// mostTries is how often a step may be missed.
const mostTries = 5

// errStuck: a call that was killed does not end.
var errStuck = errors.New("does not end")

// reachWithin is how long the calls may take to come to their step.
const reachWithin = 10 * time.Second

// matrix kills the broker so many times in each cell.
func matrix(ctx context.Context, s *stage, kills int, out io.Writer) error {
	for _, c := range cells() {
		began := time.Now()
		for i := range kills {
			err := s.hit(ctx, c, i)
			for tries := 1; tries < mostTries && errors.Is(err, errBusy); tries++ {
				_, _ = fmt.Fprintf(out, "  %s: %s; once more\n", c.step, err)
				err = s.hit(ctx, c, i+kills*tries)
			}
			if errors.Is(err, errStuck) { // what comes after it would tell nothing; the checker says what it is
				_, _ = fmt.Fprintf(out, "  %s, repeatable %t: %s; no more kills\n", c.step, c.repeatable, err)
				return s.finish(ctx, time.Second)
			}
			if err != nil {
				return fmt.Errorf("kill %d %s, repeatable %t: %w", i+1, c.step, c.repeatable, err)
			}
		}
		_, _ = fmt.Fprintf(out, "  %-16s repeatable %-5t  %d kills  %s\n", c.step, c.repeatable, kills, time.Since(began).Round(100*time.Millisecond))
	}
	return s.finish(ctx, reachWithin)
}

// attack is one kill with the calls that it hits.
type attack struct {
	*stage

	calls []history.Deferred
	ids   []string
	gate  *upstream.Gate
	lock  *storeLock
	hold  *upstream.Hold
}

// hit brings some calls to a step, kills the broker there, starts it again and waits until the calls have ended.
func (s *stage) hit(ctx context.Context, c cell, n int) error {
	a := &attack{stage: s}
	for i, m := range c.modes() {
		d := history.Deferred{Name: fmt.Sprintf("%s-%d-%d-%s", slug(c.step), n, i, m.Name), Mode: m, Step: c.step}
		a.calls = append(a.calls, d)
	}
	within, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	missed := a.reach(within, c.step)
	for _, d := range a.calls {
		if missed != nil {
			d.Step = "" // it is killed all the same, at no certain step
		}
		s.history.Deferred(d)
	}
	if err := errors.Join(s.kill(ctx, true, a.letGo), a.lock.close()); err != nil {
		return err
	}
	if missed != nil && !errors.Is(missed, errBusy) {
		return missed
	}
	for i := range a.calls {
		if a.caller.Await(within, a.calls[i].Name, a.ids[i], "COMPLETED", "FAILED", "UNKNOWN", "CANCELLED") == "" {
			return fmt.Errorf("%s %w", a.calls[i].Name, errStuck)
		}
	}
	return missed
}

// letGo is for when the broker is dead.
func (a *attack) letGo() error {
	if a.hold != nil {
		a.up.Release(a.hold)
	}
	err := a.lock.release()
	if a.gate != nil {
		err = errors.Join(err, a.gate.Open())
	}
	return err
}

// reach returns when all the calls are at the step.
func (a *attack) reach(ctx context.Context, step history.Step) (err error) {
	// Later than the broker is dead, and before long.
	const later = 700 * time.Millisecond
	switch step {
	case history.Accepted:
		due := time.Now().Add(later)
		a.submitAll(ctx, a.up.Address(), due)
		return inTime(due)
	case history.Claimed:
		// The broker takes them up when they are due, and its write that an attempt begins waits for the lock.
		due := time.Now().Add(later / 2)
		a.submitAll(ctx, a.up.Address(), due)
		if a.lock, err = lockStore(ctx, a.store()); err != nil {
			return err
		}
		return errors.Join(inTime(due), pass(ctx, time.Until(due)+later/7))
	case history.Intended:
		if a.gate, err = a.up.Gate(ctx); err != nil {
			return err
		}
		a.submitAll(ctx, a.gate.Address(), time.Time{})
		return a.all(ctx, "SENDING")
	case history.FirstByte, history.Headers, history.Halfway:
		a.hold = a.up.Hold(step, each)
		a.submitAll(ctx, a.up.Address(), time.Time{})
		return reached(ctx, a.hold)
	case history.Uncommitted:
		return a.uncommitted(ctx)
	case history.Committed:
		a.submitAll(ctx, a.up.Address(), time.Time{})
		return a.all(ctx, "COMPLETED")
	}
	return fmt.Errorf("no such step: %s", step)
}

// uncommitted lets the answers be written whole when the broker cannot write.
func (a *attack) uncommitted(ctx context.Context) (err error) {
	written := a.up.Written()
	hold := a.up.Hold(history.Halfway, each)
	a.hold = hold
	a.submitAll(ctx, a.up.Address(), time.Time{})
	if err := reached(ctx, hold); err != nil {
		return err
	}
	if a.lock, err = lockStore(ctx, a.store()); err != nil {
		return err
	}
	a.up.Release(hold)
	const look, read = time.Millisecond, 20 * time.Millisecond
	for a.up.Written() < written+each && err == nil {
		err = pass(ctx, look)
	}
	return errors.Join(err, pass(ctx, read)) // so that the broker has read them, as is likely, and its write waits
}

// submitAll submits the calls of the attack; what failed is a finding of the checker.
func (a *attack) submitAll(ctx context.Context, up string, due time.Time) {
	a.ids = make([]string, len(a.calls))
	inParallel(len(a.calls), len(a.calls), func(i int) { a.ids[i] = a.submit(ctx, &a.calls[i], up, due) })
}

// all waits until each of them is in that state, as it is told.
func (a *attack) all(ctx context.Context, state string) error {
	for i := range a.calls {
		if got := a.caller.Await(ctx, a.calls[i].Name, a.ids[i], state); got != state {
			return fmt.Errorf("%s does not come to be %s", a.calls[i].Name, state)
		}
	}
	return nil
}

func reached(ctx context.Context, h *upstream.Hold) error {
	select {
	case <-h.Reached():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the calls do not come to the step: %w", ctx.Err())
	}
}

// inTime tells whether a step was reached before the calls were due.
func inTime(due time.Time) error {
	if !time.Now().Before(due) {
		return errBusy
	}
	return nil
}

func slug(s history.Step) string {
	out := []byte(s)
	for i := range out {
		if out[i] == ' ' {
			out[i] = '-'
		}
	}
	return string(out)
}
