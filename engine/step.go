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
	// EventResult: an attempt that was sent has ended.
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
	// EventHedgeDue: Step.HedgeAt has come, and an attempt is still in flight.
	EventHedgeDue
	// EventHedgeAdmitted: the hedge has all that it takes; now is when it got it.
	EventHedgeAdmitted
	// EventHedgeRefused: something shared refused the hedge.
	EventHedgeRefused
)

// Event is what a plan is told.
type Event struct {
	Kind EventKind
	// Gone: the caller's context has ended.
	Gone bool
	// Number is the attempt that ended, Result what it gave, which the plan copies; EventResult only.
	Number uint32
	Result *call.Result
	// Queued is the wait for the slot, Probe that the attempt tests a half-open origin; EventAdmitted only.
	Queued time.Duration
	Probe  bool
	// HedgeAt is when one more attempt may run beside the admitted one; the zero time: not at all. EventAdmitted and
	// EventHedgeAdmitted only.
	HedgeAt time.Time
	// Until ends the hold; EventHeld only.
	Until time.Time
	// Reason is who refused, RetryAfter the earliest useful moment to come again, 0 when not known, Forced that an operator holds the
	// breaker open; EventRefused only.
	Reason     call.Reason
	RetryAfter time.Duration
	Forced     bool
}

// StepKind says what to do.
type StepKind uint8

// The steps a plan asks for.
const (
	// StepWithdraw: ask the retry budget for a token.
	StepWithdraw StepKind = iota + 1
	// StepAdmit: ask hold, concurrency limit and breaker, in the order of the architecture, to let the attempt start.
	StepAdmit
	// StepSend: start this attempt. When nothing can run beside it report its result, else go on as with StepListen.
	StepSend
	// StepHedge: ask for all that a hedge takes. Nothing waits, so that the answer to it is EventHedgeAdmitted or EventHedgeRefused
	// at once.
	StepHedge
	// StepListen: report what comes first, the result of an attempt in flight or EventHedgeDue.
	StepListen
	// StepWait: wait until that instant, or until the caller goes away.
	StepWait
	// StepFinal: the call is over.
	StepFinal
)

// Step is what a plan asks for. It is small, and so are the stacks on which it is handed from function to function.
type Step struct {
	Kind StepKind
	// Attempt is what to send, the plan's own until it is told of the next event; StepSend only.
	Attempt *call.Attempt
	// HedgeAt is when a hedge is due, the zero time for never; StepSend and StepListen only.
	HedgeAt time.Time
	// Cancel: the call is over but for the attempts in flight, which shall end now; StepListen only.
	Cancel bool
	// Until ends the wait; StepWait only.
	Until time.Time
	// Final is why the call ended; StepFinal only.
	Final *call.Final
}
