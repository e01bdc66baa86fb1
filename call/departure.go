package call

import (
	"errors"
	"sync/atomic"
	"time"
)

// ErrTimeUp is the cause with which an attempt that has departed is cancelled when its caller's time is up: it counts as timed out.
var ErrTimeUp = errors.New("the time for the attempt is up")

// Departure settles between an attempt and its call whether the request leaves, once, for an attempt that may outlive its caller
// (semantics.md §3, late answers). Nil for any other attempt, which ends with its call.
//
//	            ┌── Depart ──► departed   a byte may have been sent: the attempt runs on until Latest
//	waiting ────┤
//	            └── Stay ────► stayed     not a byte is sent, ever
type Departure struct {
	// Latest is when an attempt that has departed ends; one that has not ends with Attempt.Deadline.
	Latest time.Time
	// Way is how the request leaves: RemoteAddress, Protocol, Reused and Opening. The attempt fills it in before it departs.
	Way Result
	// Heard is what came back so far: 0 nothing, 1 something, and the status once the head of the answer is there.
	Heard atomic.Int32

	state atomic.Uint32
}

const (
	waiting uint32 = iota
	departed
	stayed
)

// Depart is asked before the first byte of the request is handed to a connection; false: it must not be, and nobody may try again.
func (d *Departure) Depart() bool {
	return d == nil || d.state.CompareAndSwap(waiting, departed) || d.state.Load() == departed
}

// Stay keeps the request back; false: it has departed, and Way can be read.
func (d *Departure) Stay() bool {
	return d.state.CompareAndSwap(waiting, stayed) || d.state.Load() == stayed
}

// SoFar is the result of an attempt that has departed and that nobody waits for any more, but for its failure.
func (d *Departure) SoFar() Result {
	r := d.Way
	r.Evidence = EvidenceSentNoResponse
	if heard := d.Heard.Load(); heard > 0 {
		r.Evidence = EvidencePartialResponse
		if heard > 1 {
			r.Status = int(heard)
		}
	}
	return r
}
