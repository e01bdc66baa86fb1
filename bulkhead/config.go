package bulkhead

import (
	"fmt"
	"time"
)

// Criticality orders who waits; its numbers are the wire's.
type Criticality int32

// The values, in the order of the wire.
const (
	// Unspecified is Normal, and so is every number that is none of these.
	Unspecified Criticality = iota
	// Critical is served first and may fill the whole queue.
	Critical
	// Normal joins the queue below 90 % of it.
	Normal
	// Sheddable is served last and joins the queue below 70 % of it.
	Sheddable
)

// Config is one bulkhead. Every number is taken as it stands: the defaults are those of the policy.
type Config struct {
	// MaxInFlight attempts run at once; 0: no limit, and so nobody waits.
	MaxInFlight uint32
	// MaxPending may wait for a slot; 0: none waits.
	MaxPending uint32
	// PendingWait is the longest wait; 0: none waits.
	PendingWait time.Duration
}

// waitPart is the part of the remaining time that may be spent in the queue, as a divisor: the attempt needs the rest.
const waitPart = 10

// levels are the criticalities as the queue serves them, 0 first.
const levels = 3

// level is where a criticality is served, and how full, in percent, the queue may be for it to join.
func (c Criticality) level() (int, uint64) {
	switch c {
	case Critical:
		return 0, 100
	case Sheddable:
		return 2, 70
	default:
		return 1, 90
	}
}

// Reason says why an attempt may neither run nor wait.
type Reason int

// The reasons.
const (
	// ReasonFull: all slots are taken, and the queue takes no more of this criticality (or there is no queue).
	ReasonFull Reason = iota + 1
	// ReasonNoTime: all slots are taken, and the call has no time to wait.
	ReasonNoTime
)

// RefusedError is the bulkhead's no.
type RefusedError struct {
	// Reason says why.
	Reason Reason
	// InFlight and Pending are how many were running and waiting.
	InFlight, Pending uint32
}

// Error tells what was full.
func (e *RefusedError) Error() string {
	why := "the queue takes no more"
	if e.Reason == ReasonNoTime {
		why = "there is no time to wait"
	}
	return fmt.Sprintf("concurrency limit: %d in flight, %d waiting, %s", e.InFlight, e.Pending, why)
}
