package breaker

import "time"

// State is what an attempt meets. Its numbers are the wire's.
type State int32

// The states.
const (
	// Closed admits.
	Closed State = iota + 1
	// Open refuses.
	Open
	// HalfOpen admits leased probes, one at a time.
	HalfOpen
)

// String gives the glossary's word.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
	default:
		return "unknown"
	}
}

// Mode says who decides: the breaker, or an operator. Its numbers are the wire's.
type Mode int32

// The modes.
const (
	// Auto lets the attempts decide.
	Auto Mode = iota + 1
	// ForcedOpen refuses every attempt until the mode changes.
	ForcedOpen
	// ForcedClosed admits every attempt; results are counted, for observers, and trip nothing.
	ForcedClosed
)

// String gives the mode's word.
func (m Mode) String() string {
	switch m {
	case Auto:
		return "auto"
	case ForcedOpen:
		return "forced open"
	case ForcedClosed:
		return "forced closed"
	default:
		return "unknown"
	}
}

// Cause is the rule that moved a breaker.
type Cause int32

// The causes, in the order of the diagram.
const (
	// CauseConsecutive: ConsecutiveFailures in a row.
	CauseConsecutive Cause = iota + 1
	// CauseFailureRate: too large a share of the window failed.
	CauseFailureRate
	// CauseSlowCalls: too large a share of the window was slow.
	CauseSlowCalls
	// CauseNoAnswer: MinRequests attempts in the window and not one answer, a black hole.
	CauseNoAnswer
	// CauseCooldownOver: the open time is over and a probe was admitted.
	CauseCooldownOver
	// CauseProbeFailed: the probe failed, or was answered with a 429.
	CauseProbeFailed
	// CauseProbesSucceeded: CloseAfter probes succeeded in a row.
	CauseProbesSucceeded
	// CauseForced: an operator chose another mode.
	CauseForced
	// CauseReset: an operator had everything forgotten.
	CauseReset
)

// String gives the cause as a phrase for a person.
func (c Cause) String() string {
	switch c {
	case CauseConsecutive:
		return "consecutive failures"
	case CauseFailureRate:
		return "failure rate"
	case CauseSlowCalls:
		return "slow calls"
	case CauseNoAnswer:
		return "no answer"
	case CauseCooldownOver:
		return "cooldown over"
	case CauseProbeFailed:
		return "probe failed"
	case CauseProbesSucceeded:
		return "probes succeeded"
	case CauseForced:
		return "forced"
	case CauseReset:
		return "reset"
	default:
		return "unknown"
	}
}

// Transition is one move, for whoever announces it once no lock is held.
type Transition struct {
	// From and To are equal where an operator's word changed the mode alone.
	From, To State
	// Cause is the rule that moved it.
	Cause Cause
	// At is when.
	At time.Time
	// Cooldown is the open time that begins, jitter included; 0 unless To is Open by a rule of the breaker's own.
	Cooldown time.Duration
	// Generation numbers the moves of one breaker, so that those announced out of order can be put back in order.
	Generation uint64
}
