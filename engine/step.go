package engine

import (
	"time"

	"github.com/sallyport/sallyport/call"
)

// EventKind says what happened.
type EventKind uint8

// The events a plan is told.
const (
	// EventStarted: the call was taken.
	EventStarted EventKind = iota + 1
	// EventResult: the attempt that was sent has ended.
	EventResult
	// EventWaited: the wait is over, or was cut short because the caller went away.
	EventWaited
	// EventGranted: the retry budget gave a token.
	EventGranted
	// EventAdmitted: the attempt has its concurrency slot and the breaker's ticket; now is when the slot was granted.
	EventAdmitted
	// EventHeld: the origin is held until Event.Until.
	EventHeld
	// EventRefused: what is shared between callers refused, by Event.Reason.
	EventRefused
)

// Event is what a plan is told.
type Event struct {
	Kind EventKind
	// Gone: the caller's context has ended.
	Gone bool
	// Result is what the attempt gave; EventResult only.
	Result call.Result
	// Queued is the wait for the slot, Probe that the attempt tests a half-open origin; EventAdmitted only.
	Queued time.Duration
	Probe  bool
	// Until ends the hold; EventHeld only.
	Until time.Time
	// Reason is who refused, RetryAfter the earliest useful moment to come again, 0 when not known; EventRefused only.
	Reason     call.Reason
	RetryAfter time.Duration
}

// StepKind says what to do.
type StepKind uint8

// The steps a plan asks for.
const (
	// StepWithdraw: ask the retry budget for a token.
	StepWithdraw StepKind = iota + 1
	// StepAdmit: ask hold, concurrency limit and breaker, in the order of the architecture, to let the attempt start.
	StepAdmit
	// StepSend: make this attempt and report its result.
	StepSend
	// StepWait: wait until that instant, or until the caller goes away.
	StepWait
	// StepFinal: the call is over.
	StepFinal
)

// Step is what a plan asks for.
type Step struct {
	Kind StepKind
	// Attempt is what to send; StepSend only.
	Attempt call.Attempt
	// Until ends the wait; StepWait only.
	Until time.Time
	// Final is why the call ended; StepFinal only.
	Final call.Final
}
