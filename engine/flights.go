package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// flights are the attempts of one call that another may run beside, each on a goroutine of its own. The goroutine of the call waits
// for every one of them.
type flights struct {
	inAir  []*flight
	landed chan *flight // receives each flight once, never closed; nil before the first
	// apart: they do not end with the caller's context, but when the call says so; over: it has.
	apart, over bool
}

// flight is an attempt on its way.
type flight struct {
	attempt call.Attempt
	taken   taken
	cancel  context.CancelCauseFunc
	result  call.Result
	crashed *crash // instead of a result
}

// errOver is why an attempt is cancelled.
var errOver = errors.New("the call is over")

// crash carries a panic of an attempt to the goroutine of its call, which is recovered at the edge like any other.
type crash struct {
	value any
	stack []byte
}

// String is for the log.
func (c *crash) String() string { return fmt.Sprintf("%v\n%s", c.value, c.stack) }

// launch starts the attempt; listen hears of its end.
func (r *run) launch(ctx context.Context, a call.Attempt) {
	if r.flights.landed == nil {
		r.flights.landed = make(chan *flight)
	}
	if len(r.flights.inAir) == 0 {
		r.flights.apart, r.flights.over = a.Departure != nil, false
	}
	if r.flights.apart {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	f := &flight{attempt: a, taken: r.taken, cancel: cancel}
	r.taken = taken{}
	r.flights.inAir = append(r.flights.inAir, f)
	go f.fly(ctx, r.sender, r.plan.call, r.policy, r.flights.landed)
}

func (f *flight) fly(ctx context.Context, s Sender, c *call.Call, p *policy.Effective, landed chan<- *flight) {
	defer func() {
		if v := recover(); v != nil {
			f.crashed = &crash{v, debug.Stack()}
		}
		landed <- f
	}()
	f.result = s.Send(ctx, c, p, f.attempt)
}

// listen waits for the first landing, or until a hedge is due.
func (r *run) listen(ctx context.Context, step *Step) Step {
	if step.Cancel {
		r.cancelFlights()
	}
	var due <-chan time.Time // nil: never
	if !step.HedgeAt.IsZero() {
		timer := time.NewTimer(time.Until(step.HedgeAt))
		defer timer.Stop()
		due = timer.C
	}
	var gone <-chan struct{} // nil: flights see to both themselves
	var up <-chan time.Time
	if r.flights.apart && !r.flights.over {
		timer := time.NewTimer(time.Until(r.plan.work))
		defer timer.Stop()
		gone, up = ctx.Done(), timer.C
	}
	hedge := false
	select {
	case f := <-r.flights.landed:
		return r.touchDown(ctx, f)
	case <-due:
		hedge = true
	case <-gone:
	case <-up:
	}
	select { // all this is for want of an answer: one that came in the same moment goes first
	case f := <-r.flights.landed:
		return r.touchDown(ctx, f)
	default:
	}
	if hedge {
		return r.next(ctx, Event{Kind: EventHedgeDue})
	}
	return r.timeOver(ctx, time.Now())
}

func (r *run) touchDown(ctx context.Context, f *flight) Step {
	r.hasLanded(f)
	r.taken = f.taken // whatever panics from here on, it comes back
	if f.crashed != nil {
		panic(f.crashed)
	}
	return r.landed(ctx, f.attempt.Number, &f.result)
}

func (r *run) cancelFlights() {
	r.flights.over = true
	for _, f := range r.flights.inAir {
		f.cancel(errOver)
	}
}

func (r *run) hasLanded(f *flight) {
	f.cancel(errOver)
	r.flights.inAir = slices.DeleteFunc(r.flights.inAir, func(other *flight) bool { return other == f })
}

// ground ends what is still in flight when the call ends by a panic.
func (r *run) ground() {
	r.cancelFlights()
	for len(r.flights.inAir) > 0 {
		f := <-r.flights.landed
		r.hasLanded(f)
		f.taken.giveBack(time.Now())
	}
}
