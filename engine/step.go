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
)

// Event is what a plan is told.
type Event struct {
	Kind EventKind
	// Gone: the caller's context has ended.
	Gone bool
	// Result is what the attempt gave; EventResult only.
	Result call.Result
}

// StepKind says what to do.
type StepKind uint8

// The steps a plan asks for.
const (
	// StepSend: make this attempt and report its result.
	StepSend StepKind = iota + 1
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
