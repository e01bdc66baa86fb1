package engine

import (
	"context"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/call"
)

// Observer receives what happens, on the goroutine of the call; nothing it does changes a decision. Attempts may run beside each other:
// their numbers tell them apart. What an attempt does that outlives its call is told on a goroutine of its own, see [Outliving].
type Observer interface {
	// AttemptStarted may fill in the attempt's TraceParent, TraceID and SpanID.
	AttemptStarted(ctx context.Context, c *call.Call, a *call.Attempt)
	// AttemptEnded hears what came of it and what was decided after it; a.Start and a.Duration say when it ended.
	AttemptEnded(ctx context.Context, a *call.Attempt, s Shared)
	// Noticed hears of what happened at now, between attempts.
	Noticed(ctx context.Context, now time.Time, n Notice)
}

// What says what a [Notice] is of.
type What uint8

// What there is to notice.
const (
	// WhatWait: a wait begins, before a repeat or for a hold.
	WhatWait What = iota + 1
	// WhatRefusal: a rule of ours refused an attempt before anything was dialled for it. It ends the call, but for a hedge's.
	WhatRefusal
	// WhatMove: the call moved the origin's breaker.
	WhatMove
	// WhatHold: an answer asked not to be called, and a hold was set or made longer.
	WhatHold
	// WhatTokenGranted: the retry budget granted a retry or a hedge.
	WhatTokenGranted
	// WhatTokenHandedBack: what it granted was not sent.
	WhatTokenHandedBack
	// WhatTokenRefused: the retry budget refused.
	WhatTokenRefused
)

// Notice is what happens between attempts.
type Notice struct {
	What What
	// Call is whose attempts they are.
	Call *call.Call
	// Kind of the attempt that is refused or waited for, unspecified otherwise; a probe is known by its admission only, and not
	// foreseen here.
	Kind call.Kind
	// Reason for a wait or a refusal.
	Reason call.Reason
	// Wait is how long a wait or a hold is; in the queue for a slot how long at most.
	Wait time.Duration
	// Move is what the breaker did; WhatMove only.
	Move breaker.Transition
	// Credential: the hold is for one credential and not for all; WhatHold only.
	Credential bool
	// Token is the bound that refused; WhatTokenRefused only.
	Token budget.Reason
	// Shared is how that stands which all callers of the origin share.
	Shared Shared
}

// Shared is asked for what the callers of an origin share. Each question costs a lock.
type Shared struct{ origin *origin }

// Breaker is the state of the origin's breaker.
func (s Shared) Breaker(now time.Time) breaker.State { return s.origin.breaker.State(now) }

// BudgetLeft is what the budget still has, as [budget.Snapshot] tells it.
func (s Shared) BudgetLeft(now time.Time) float64 { return s.origin.budget.Snapshot(now).Left }
