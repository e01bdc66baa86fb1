package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// Sender makes one attempt over HTTP. It returns when the attempt's resources are free: by a.Deadline, or soon after ctx ends.
type Sender interface {
	Send(ctx context.Context, c *call.Call, p *policy.Effective, a call.Attempt) call.Result
}

// Observer receives what happens; nothing it does changes a decision.
type Observer interface {
	// AttemptStarted may fill in the attempt's TraceParent, TraceID and SpanID.
	AttemptStarted(ctx context.Context, c *call.Call, a *call.Attempt)
	// AttemptEnded hears what came of it and what was decided after it; a.Start and a.Duration say when it ended.
	AttemptEnded(ctx context.Context, a *call.Attempt)
	// Waiting hears of a wait that begins.
	Waiting(ctx context.Context, now time.Time, d call.Decision)
}

// Engine carries out plans.
type Engine struct {
	sender   Sender
	observer Observer
	guard    *guard.Guard
}

// New makes an engine.
func New(s Sender, o Observer, g *guard.Guard) *Engine {
	return &Engine{sender: s, observer: o, guard: g}
}

// Do makes the call and returns when it is over: never later than its deadline, and after every attempt of it has ended. ctx
// tells that the caller went away; the time is the plan's.
func (e *Engine) Do(ctx context.Context, c *call.Call, p *policy.Effective) call.Final {
	plan := NewPlan(c, p, e.guard, rand.Float64)
	step := plan.Next(time.Now(), Event{Kind: EventStarted, Gone: ctx.Err() != nil})
	for {
		switch step.Kind {
		case StepSend:
			number := step.Attempt.Number
			result := e.attempt(ctx, c, p, plan, step.Attempt)
			step = plan.Next(time.Now(), Event{Kind: EventResult, Gone: ctx.Err() != nil, Result: result})
			e.observer.AttemptEnded(ctx, plan.attempt(number))
		case StepWait:
			e.observer.Waiting(ctx, time.Now(), plan.last().Decision)
			gone := wait(ctx, step.Until)
			step = plan.Next(time.Now(), Event{Kind: EventWaited, Gone: gone})
		case StepFinal:
			return step.Final
		}
	}
}

// attempt is the place where an attempt asks for what is shared between callers, in this order: breaker peek and hold,
// concurrency slot, breaker ticket; then it is sent.
func (e *Engine) attempt(ctx context.Context, c *call.Call, p *policy.Effective, plan *Plan, a call.Attempt) call.Result {
	e.observer.AttemptStarted(ctx, c, &a)
	plan.traced(&a)
	return e.sender.Send(ctx, c, p, a)
}

// wait returns at that instant, or earlier and true when the caller went away.
func wait(ctx context.Context, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() != nil
	case <-ctx.Done():
		return true
	}
}
