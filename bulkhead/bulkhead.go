package bulkhead

import (
	"sync"
	"time"
)

// Bulkhead bounds the attempts in flight to one origin under one set of settings. Use New.
//
// While anybody waits, every slot is taken: a slot that becomes free belongs to the next waiter in the same step, and no newcomer
// can come between.
type Bulkhead struct {
	pendingWait time.Duration
	maxPending  uint32

	mu       sync.Mutex // protects the fields below, the queue and the state of slots and waiters
	limit    uint32     // 0: none
	inFlight uint32
	spares   uint32 // held by spare
	queue    queue
	spare    *hold // up to maxSpare holds for reuse, so that a slot without a wait costs no memory
	totals   Totals
}

// Totals only grow, so that a meter which reads them now and then misses nothing.
type Totals struct {
	// Entered are those who got a slot at once or joined the queue; Queued are those who joined it.
	Entered, Queued uint64
	// Granted are the slots given to waiters; Left are the waiters who went without one.
	Granted, Left uint64
	// Refused are those who neither got a slot nor joined.
	Refused uint64
}

// Snapshot is a bulkhead at one instant.
type Snapshot struct {
	// Limit is how many may run at once; 0: no limit.
	Limit uint32
	// InFlight are the slots taken; more than Limit after it was lowered.
	InFlight uint32
	// Pending are the waiters.
	Pending uint32
	// Totals count since the bulkhead was made.
	Totals Totals
}

// New gives a bulkhead with all slots free.
func New(c Config) *Bulkhead {
	return &Bulkhead{limit: c.MaxInFlight, maxPending: c.MaxPending, pendingWait: c.PendingWait}
}

// Enter asks for a slot for an attempt of a caller with that much time remaining. Exactly one of the three results is set: a slot at
// once; a waiter, whose place in the queue is held until its deadline; or a *RefusedError.
func (b *Bulkhead) Enter(now time.Time, caller string, c Criticality, remaining time.Duration) (Slot, *Waiter, error) {
	wait := min(b.pendingWait, remaining/waitPart)
	level, percent := c.level()

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freeLocked() {
		b.totals.Entered++
		return b.takeLocked(), nil, nil
	}
	pending := b.queue.held
	switch {
	case uint64(pending)*100 >= uint64(b.maxPending)*percent:
		return Slot{}, nil, b.refuseLocked(ReasonFull)
	case wait <= 0:
		return Slot{}, nil, b.refuseLocked(ReasonNoTime)
	}
	granted := make(chan struct{})
	w := &Waiter{C: granted, Deadline: now.Add(wait), from: b, granted: granted}
	b.queue.join(w, caller, level)
	b.totals.Entered++
	b.totals.Queued++
	return Slot{}, w, nil
}

// SetLimit changes how many may run at once, 0: no limit. A higher one is granted to waiters at once; under a lower one those in
// flight run on, and slots are given again when fewer are left.
func (b *Bulkhead) SetLimit(maxInFlight uint32) {
	b.mu.Lock()
	b.limit = maxInFlight
	first := b.grantLocked()
	b.mu.Unlock()
	announce(first)
}

// Trim gives back the memory kept for reuse while no slot is taken; whoever keeps bulkheads of idle origins calls it now and then.
func (b *Bulkhead) Trim() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight == 0 {
		b.spare, b.spares = nil, 0
	}
}

// Snapshot says how the bulkhead stands.
func (b *Bulkhead) Snapshot() Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Snapshot{Limit: b.limit, InFlight: b.inFlight, Pending: b.queue.held, Totals: b.totals}
}

func (b *Bulkhead) freeLocked() bool { return b.limit == 0 || b.inFlight < b.limit }

func (b *Bulkhead) refuseLocked(why Reason) *RefusedError {
	b.totals.Refused++
	return &RefusedError{Reason: why, InFlight: b.inFlight, Pending: b.queue.held}
}

// grantLocked gives the free slots to waiters, and returns these as a list for announce.
func (b *Bulkhead) grantLocked() *Waiter {
	var first, last *Waiter
	for b.queue.held > 0 && b.freeLocked() {
		w := b.queue.next()
		w.state, w.slot = stateGranted, b.takeLocked()
		b.totals.Granted++
		if first == nil {
			first = w
		} else {
			last.announced = w
		}
		last = w
	}
	return first
}

// announce tells waiters of their slots, after unlock. Each channel is closed here and nowhere else, once, for a waiter is granted
// once.
func announce(first *Waiter) {
	for w := first; w != nil; {
		next := w.announced
		w.announced = nil
		close(w.granted)
		w = next
	}
}
