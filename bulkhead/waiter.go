package bulkhead

import "time"

// Waiter is a place in the queue. Its owner waits for C, for Deadline and for whatever else may end its call, then calls Slot if C
// was closed and Leave if not:
//
//	select {
//	case <-w.C:
//		slot, _ := w.Slot()
//	case <-timer.C: // set to w.Deadline
//		w.Leave()
//	}
type Waiter struct {
	// C is closed when a slot was granted.
	C <-chan struct{}
	// Deadline is when to stop waiting: now + min(pending_wait, 10 % of the remaining time).
	Deadline time.Time

	from      *Bulkhead
	granted   chan struct{} // C
	announced *Waiter       // the next of those granted in one step

	// Of the queue, under the lock of the bulkhead.
	state state
	slot  Slot
	line  *line
	place link[Waiter] // in the line
}

// state of a waiter. It only grows.
type state int

const (
	stateWaiting state = iota
	stateGranted       // a slot is its, and not yet taken
	stateGone          // left, or has taken its slot
)

// Slot takes the slot that was granted. It is given once: false when none was granted yet, it was taken already, or Leave came first.
func (w *Waiter) Slot() (Slot, bool) {
	b := w.from
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.state != stateGranted {
		return Slot{}, false
	}
	slot := w.slot
	w.state, w.slot = stateGone, Slot{}
	return slot, true
}

// Leave gives the place up: time is up or the caller has gone. A slot granted in the meantime is passed on to the next waiter, so
// that none is lost whichever comes first. After Slot, or a second time, it does nothing.
func (w *Waiter) Leave() {
	b := w.from
	b.mu.Lock()
	var first *Waiter
	switch w.state {
	case stateWaiting:
		b.queue.remove(w)
		b.totals.Left++
	case stateGranted:
		first = b.releaseLocked(w.slot.hold)
		b.totals.Left++
	case stateGone:
	}
	w.state, w.slot = stateGone, Slot{}
	b.mu.Unlock()
	announce(first)
}
