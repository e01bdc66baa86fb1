package bulkhead

// Slot is the right to run one attempt, held until the attempt's resources are truly free, also after a timeout. The zero Slot is
// none.
type Slot struct {
	hold *hold
	turn uint64
}

// hold is one slot in use. It outlives the Slot, which knows by the turn whether it is still meant: so copies of a Slot, too, are
// released once.
type hold struct {
	from *Bulkhead
	turn uint64
	next *hold // of the spares
}

// maxSpare bounds the memory an idle origin keeps for reuse.
const maxSpare = 8

// Release gives the slot to the next waiter, or frees it. A second release, of a copy too, is refused: it changes nothing and
// returns false. (A panic was weighed: it would take a call down for a mistake that does no harm when refused.)
func (s Slot) Release() bool {
	if s.hold == nil {
		return false
	}
	b := s.hold.from
	b.mu.Lock()
	if s.hold.turn != s.turn {
		b.mu.Unlock()
		return false
	}
	first := b.releaseLocked(s.hold)
	b.mu.Unlock()
	announce(first)
	return true
}

func (b *Bulkhead) takeLocked() Slot {
	b.inFlight++
	h := b.spare
	if h == nil {
		h = &hold{from: b}
	} else {
		b.spare, h.next = h.next, nil
		b.spares--
	}
	return Slot{hold: h, turn: h.turn}
}

func (b *Bulkhead) releaseLocked(h *hold) *Waiter {
	h.turn++
	b.inFlight--
	if b.spares < maxSpare {
		h.next, b.spare = b.spare, h
		b.spares++
	}
	return b.grantLocked()
}
