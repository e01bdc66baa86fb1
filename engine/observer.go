package engine

import (
	"context"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/call"
)

// Observer receives what happens, on the goroutine of the call; nothing it does changes a decision. Attempts may run beside each other:
// their numbers tell them apart.
type Observer interface {
	// AttemptStarted may fill in the attempt's TraceParent, TraceID and SpanID.
	AttemptStarted(ctx context.Context, c *call.Call, a *call.Attempt)
	// AttemptEnded hears what came of it and what was decided after it; a.Start and a.Duration say when it ended.
	AttemptEnded(ctx context.Context, a *call.Attempt, s Shared)
	// Noticed hears of a wait or a refusal at now.
	Noticed(ctx context.Context, now time.Time, n Notice)
}

// Notice is what happens between attempts: a wait that begins, or a rule of ours that refused an attempt before anything was dialled
// for it. A refusal ends the call, but for a hedge's.
type Notice struct {
	// Refused: a refusal, else a wait.
	Refused bool
	// Kind of the attempt that was refused or is waited for; a probe is known by its admission only, and not foreseen here.
	Kind call.Kind
	// Reason for it.
	Reason call.Reason
	// Wait is how long, and in the queue for a slot how long at most; 0 for a refusal.
	Wait time.Duration
	// Shared is how that stands which all callers of the origin share.
	Shared Shared
}

// Shared is asked for what the callers of an origin share. Each question costs a lock.
type Shared struct{ origin *origin }

// Breaker is the state of the origin's breaker.
func (s Shared) Breaker(now time.Time) breaker.State { return s.origin.breaker.State(now) }

// BudgetLeft is what the budget still has, as [budget.Snapshot] tells it.
func (s Shared) BudgetLeft(now time.Time) float64 { return s.origin.budget.Snapshot(now).Left }
