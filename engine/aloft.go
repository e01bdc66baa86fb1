package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sallyport/sallyport/call"
)

// lateMost bounds the late attempts of an origin, whatever its max_in_flight; lateShare is the part of max_in_flight that they may hold,
// at least one. Beyond that an attempt ends with its call: slots are for callers who wait.
const (
	lateMost  = 128
	lateShare = 4
)

// lateLimit is how many attempts may outlive their callers at an origin; maxInFlight 0 sets no limit of its own.
func lateLimit(maxInFlight uint32) int {
	if maxInFlight == 0 {
		return lateMost
	}
	return int(min(max(maxInFlight/lateShare, 1), lateMost))
}

// lateCount counts the late attempts of every origin that has some.
type lateCount struct {
	mu sync.Mutex // protects the field below
	of map[string]int
}

func (c *lateCount) enter(origin string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[origin] >= most {
		return false
	}
	if c.of == nil {
		c.of = make(map[string]int)
	}
	c.of[origin]++
	return true
}

func (c *lateCount) leave(origin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[origin]--; c.of[origin] == 0 {
		delete(c.of, origin)
	}
}

// aloft are the late attempts of an engine.
type aloft struct {
	mu      sync.Mutex // protects the fields below
	flights map[*flight]struct{}
	closed  bool          // no more of them
	none    chan struct{} // closed when the last one has ended; nil while there is none
}

func (s *aloft) add(f *flight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.flights == nil {
		s.flights = make(map[*flight]struct{})
	}
	if len(s.flights) == 0 {
		s.none = make(chan struct{})
	}
	s.flights[f] = struct{}{}
	return true
}

func (s *aloft) remove(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.flights, f); len(s.flights) == 0 {
		close(s.none)
		s.none = nil
	}
}

// empty is closed when there is none; nil: there is none now.
func (s *aloft) empty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.none
}

// close takes no more, and gives those that there are.
func (s *aloft) close() (all []*flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for f := range s.flights {
		all = append(all, f)
	}
	return all
}

// Wait returns when no attempt runs on whose caller has been told. When ctx ends it cancels those that do, each of which then gives its
// Final, the effect unknown, and from then on attempts end with their calls. It is for the end, after the last call.
func (e *Engine) Wait(ctx context.Context) {
	gone := ctx.Done()
	for empty := e.aloft.empty(); empty != nil; empty = e.aloft.empty() {
		select {
		case <-empty:
		case <-gone:
			for _, f := range e.aloft.close() {
				f.cancel(errOver)
			}
			gone = nil
		}
	}
}

// Outliving is what an [Observer] may be beside: it hears of an attempt that outlives its call.
type Outliving interface {
	// AttemptOutlives is told before the call ends, on its goroutine. The context it returns is the one with which the end of the attempt
	// is told, at any time and on any goroutine; it does not end with ctx.
	AttemptOutlives(ctx context.Context, number uint32) context.Context
}

// timeOver is when the caller waits no longer: its time is up at now, or it went away. An attempt whose request has not left is given up.
// One that has left runs on where there is room, when it is the only one in flight; else it is torn down, as it is without an id.
func (r *run) timeOver(ctx context.Context, now time.Time) Step {
	r.flights.over = true
	gone := now.Before(r.plan.work)
	cause := call.ErrTimeUp
	if gone {
		cause = context.Cause(ctx)
	}
	for _, f := range r.flights.inAir {
		switch d := f.attempt.Departure; {
		case d.Stay():
			if gone {
				f.cancel(cause) // else it ends by itself: its time is up
			}
		case len(r.flights.inAir) == 1 && d.Latest.After(now) && r.mayOutlive(f):
			return r.handOn(ctx, now, f, gone)
		default:
			f.cancel(cause)
		}
	}
	return Step{Kind: StepListen}
}

// mayOutlive takes the place of a late attempt.
func (r *run) mayOutlive(f *flight) bool {
	if !r.origins.late.enter(r.origin.name, lateLimit(r.policy.Concurrency.MaxInFlight)) {
		return false
	}
	if !r.aloft.add(f) {
		r.origins.late.leave(r.origin.name)
		return false
	}
	return true
}

// giveUpPlace gives it back.
func (r *run) giveUpPlace(f *flight) {
	r.origins.late.leave(r.origin.name)
	r.aloft.remove(f)
}

// handOn leaves the attempt to a goroutine of its own, with all it holds, and ends the call with what is known so far.
func (r *run) handOn(ctx context.Context, now time.Time, f *flight, gone bool) Step {
	handed := false
	defer func() {
		if !handed { // by a panic
			r.giveUpPlace(f)
		}
	}()
	later := r.plan.outlived(gone)
	result := f.attempt.Departure.SoFar()
	result.Failure, result.TimedOut, result.Detail = call.FailureAttemptTimeout, true, "no complete answer within the attempt's time"
	if gone {
		result.Failure, result.TimedOut, result.Detail = call.FailureCancelled, false, "the call was cancelled during the attempt"
	}
	step := r.plan.Next(now, Event{Kind: EventResult, Gone: gone, Number: f.attempt.Number, Result: &result})
	if step.Kind != StepFinal {
		panic("engine: a call whose time is over goes on")
	}
	l := &lateRun{
		run:   run{Engine: r.Engine, policy: r.policy, plan: later, origin: r.origin, flights: r.flights},
		final: *step.Final,
		late:  make(chan call.Final, 1),
	}
	ctx = context.WithoutCancel(ctx)
	if o, ok := r.observer.(Outliving); ok {
		ctx = o.AttemptOutlives(ctx, f.attempt.Number)
	}
	r.flights, r.handedOn, handed = flights{}, true, true
	go l.land(ctx, f)
	step.Final.Late = l.late
	return step
}

// lateRun is a call whose caller has been told, while its last attempt is still in flight.
type lateRun struct {
	run

	final call.Final      // what the caller was told; then what it would have been
	late  chan call.Final // receives one value, is never closed
}

// land waits for the attempt and settles what it holds, then tells. Whatever panics harms nobody else: what the caller was told stands.
func (l *lateRun) land(ctx context.Context, f *flight) {
	defer l.giveUpPlace(f) // the last of all: who waits for it finds everything settled
	defer func() { l.late <- l.final }()
	defer func() {
		if v := recover(); v != nil {
			l.final.Note = fmt.Sprintf("a late attempt panicked: %v\n%s", v, debug.Stack())
		}
	}()
	defer l.leave(ctx)
	l.await(ctx)
}

func (l *lateRun) await(ctx context.Context) {
	landed := <-l.flights.landed
	if landed.crashed != nil {
		l.hasLanded(landed)
		l.taken = landed.taken
		l.final.Note = "a late attempt panicked: " + landed.crashed.String()
		l.observer.AttemptEnded(ctx, &l.final.Attempts[landed.attempt.Number-1], Shared{&l.origin})
		return
	}
	if step := l.touchDown(ctx, landed); step.Kind == StepFinal {
		l.final = *step.Final
	}
}
