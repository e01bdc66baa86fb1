package operation

import (
	"time"

	"github.com/sallyport/sallyport/call"
)

// Key names an operation. An id means nothing without the caller whose it is.
type Key struct {
	// Caller is the authenticated identity, never a request field.
	Caller string
	// ID is 1 to 255 visible ASCII characters.
	ID string
}

// State is what is known of an operation.
type State int32

// The states, in the order of the wire.
const (
	StateUnspecified State = iota
	// StateRunning: it is under way, be it by an attempt that outlived its caller.
	StateRunning
	// StateFinished: it ended, and its effect is known or may be made again.
	StateFinished
	// StateUnknown: it must not be repeated, and its effect is unknown.
	StateUnknown
)

// Fingerprint tells payloads apart, see [FingerprintOf]. The zero value is that of an id that is free again.
type Fingerprint [32]byte

// Record is what a ledger keeps of one operation. The plain fields are those that a ledger reads; what it does not read are the bytes at
// the end, which may hold secrets: a ledger on disk seals them.
type Record struct {
	Key
	// Epoch counts the leads of the id, from 1. A lead that is over writes no more.
	Epoch uint64
	// Owner is the process that leads or led it.
	Owner string
	// Fingerprint of the call that leads it; zero: the id is free.
	Fingerprint Fingerprint
	State       State
	// Deferred is the id of the deferred call that has the id, or had it last; "" for a direct call's. While that call waits the record is
	// RUNNING, and no start of the broker settles it.
	Deferred string
	// MustNotRepeat: what may have been sent is not sent again under this id.
	MustNotRepeat bool

	// Outcome, Effect and Reason are those its caller got, zero while he waits; Effect is also that of a late answer or a probe.
	Outcome call.Outcome
	Effect  call.Effect
	Reason  call.Reason
	// Told is what a repeat is told instead: a cancelled operation may have an answer. Zero when the id is free or it still runs.
	Told call.Told
	// Status of the last complete answer, 0 without one.
	Status int

	// FirstSend is when a byte may have left first, in any lead of the id; zero: none has.
	FirstSend time.Time
	// CreateTime is when the ledger first heard of the id, UpdateTime when the record last changed.
	CreateTime, UpdateTime time.Time
	// BodyUntil is when Body may go, and of a finished operation Details too; Until when all of it may go. Nothing goes while it runs.
	BodyUntil, Until time.Time

	// Request is what a status probe needs of the call: [Request].
	Request []byte
	// Details are the attempts, the head of the answer, and what else is told.
	Details []byte
	// Body of the last complete answer. BodyBytes is how long it was, also when it is no longer kept.
	Body      []byte
	BodyBytes int64
}

// Free reports whether the id may be led again.
func (r *Record) Free() bool { return r.Fingerprint == Fingerprint{} && r.State != StateRunning }

// before is what the leads of the id so far leave to the next one. One that ended with its broker has not told when it was sent: not
// before the id was heard of.
func (r *Record) before() call.Before {
	b := call.Before{FirstSend: r.FirstSend, Unknown: r.Effect == call.EffectUnknown}
	if b.Unknown && b.FirstSend.IsZero() {
		b.FirstSend = r.CreateTime
	}
	return b
}
