package deferred

import (
	"time"

	"github.com/sallyport/sallyport/call"
)

// State is where a deferred call stands.
type State int32

// The states, in the order of the wire.
const (
	StateUnspecified State = iota
	// StatePending: it waits for its first attempt.
	StatePending
	// StateRetrying: it waits for its next attempt.
	StateRetrying
	// StateSending: an attempt is under way.
	StateSending
	// StateCompleted: it was answered with a success.
	StateCompleted
	// StateFailed: it is a dead letter.
	StateFailed
	// StateUnknown: it was sent, nothing definitive came, and it must not be repeated.
	StateUnknown
	// StateCancelled: it was cancelled.
	StateCancelled
)

// Finished reports whether nothing happens to it any more by itself.
func (s State) Finished() bool { return s >= StateCompleted }

// Failure says why it is a dead letter.
type Failure int32

// The failures, in the order of the wire.
const (
	FailureNone Failure = iota
	FailurePermanent
	FailureExhausted
	FailureExpired
)

// Delivery is what its submitter accepts.
type Delivery int32

// The modes, in the order of the wire.
const (
	DeliveryByPolicy Delivery = iota
	DeliveryAtLeastOnce
	DeliveryAtMostOnce
)

// Record is a deferred call as it is kept. The bytes that may hold secrets are Request, and what stands in Response: a store on disk seals them.
type Record struct {
	// Seq rises with every submission, from 1; the store gives it. ID names it to callers, unguessable.
	Seq uint64
	ID  string
	// Caller is the authenticated identity; OperationID is his, or made for it. Fingerprint tells payloads apart.
	Caller, OperationID string
	Fingerprint         [32]byte
	// Origin is where it goes, scheme://host:port. Labels are the call's.
	Origin      string
	Criticality call.Criticality
	Labels      map[string]string
	Delivery    Delivery

	// Lead is of a direct call that goes on as this one: the epoch of its lead in the ledger of operations, of which the id is taken over. 0: it
	// was no direct call. It is not kept.
	Lead uint64

	State   State
	Failure Failure
	// Epoch counts the attempts that were begun, over all redrives; who writes the outcome of one names it.
	Epoch uint64
	// Spent counts those that count against MaxRetries, since it was submitted or redriven.
	Spent uint32
	// Tried counts the attempts in its log, also where Attempts are left out.
	Tried uint32
	// MaxRetries bounds the repeats; Backoff is the wait before the first of them, 0: the policy's (then MaxRetries is too, unless given).
	MaxRetries uint32
	Backoff    time.Duration
	// Repeatable: what was sent last may be repeated if nobody knows how it ended; false once somebody has decided to send again what must
	// not be.
	Repeatable bool
	// PossibleDuplicate: it may have been sent twice.
	PossibleDuplicate bool

	// NextAttempt is when it is due; zero when nothing is. Expire is when it is given up.
	NextAttempt, NotBefore, Expire time.Time
	Created, Updated, Ended        time.Time
	// Until is when the record may go; zero: not before it is purged.
	Until time.Time
	// FirstSend is when a byte may have left first; zero: none has.
	FirstSend time.Time

	Outcome call.Outcome
	Effect  call.Effect
	Reason  call.Reason
	Detail  string
	// Attempts are all that were made, in order.
	Attempts []call.Attempt
	Response *call.Response
	// Request is what was submitted, in a form that only its maker reads.
	Request []byte
}
