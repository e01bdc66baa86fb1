package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/call"
)

const (
	// movesMax is how many moves of its breakers are remembered of an origin.
	movesMax = 16
	// pastsMax is of how many origins there is a past, those of the latest trouble: it takes some 550 bytes.
	pastsMax = originsMax / 4
)

// past is what an origin went through that its present state does not show. An origin that never had trouble has none.
type past struct {
	mu      sync.Mutex // protects the fields below
	trouble int64      // when it last had trouble, in nanoseconds of the epoch; 0: never
	moves   []move     // in the order in which they happened
}

// move is a [breaker.Transition] in a third of the memory.
type move struct {
	at         int64 // nanoseconds of the epoch
	cooldown   time.Duration
	generation uint32
	from, to   uint8
	cause      uint8
}

//nolint:gosec // the wire's enums are small, and which of two moves came first is told by the low bits of their numbers
func moveOf(t *breaker.Transition) move {
	return move{
		at: t.At.UnixNano(), cooldown: t.Cooldown, generation: uint32(t.Generation), from: uint8(t.From), to: uint8(t.To), cause: uint8(t.Cause),
	}
}

func (m *move) transition() breaker.Transition {
	return breaker.Transition{
		At: time.Unix(0, m.at), Cooldown: m.cooldown, Generation: uint64(m.generation),
		From: breaker.State(m.from), To: breaker.State(m.to), Cause: breaker.Cause(m.cause),
	}
}

// had notes trouble.
func (p *past) had(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = max(p.trouble, at)
}

// moved notes a move. Calls tell of theirs after the breaker's lock is gone, so that two may come in the wrong order.
func (p *past) moved(m move) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.to == uint8(breaker.Open) {
		p.trouble = max(p.trouble, m.at)
	}
	place := len(p.moves)
	for place > 0 && later(&p.moves[place-1], &m) {
		place--
	}
	if len(p.moves) < movesMax {
		p.moves = slices.Insert(p.moves, place, m)
	} else if place > 0 {
		copy(p.moves, p.moves[1:place])
		p.moves[place-1] = m
	}
}

func later(a, b *move) bool {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.generation, b.generation)) > 0
}

// told gives what is known, the latest move first.
func (p *past) told() (trouble time.Time, moves []breaker.Transition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trouble != 0 {
		trouble = time.Unix(0, p.trouble)
	}
	for i := range slices.Backward(p.moves) {
		moves = append(moves, p.moves[i].transition())
	}
	return trouble, moves
}

// remember takes from what happens to a call what is trouble of its origin.
func (o *Origins) remember(origin string, now time.Time, n *Notice) {
	switch {
	case n.What == WhatMove:
		o.moved(origin, &n.Move)
	case n.What == WhatHold, n.What == WhatTokenRefused, n.What == WhatRefusal && n.Reason == call.ReasonConcurrencyLimit:
		p, e := o.pasts.enter(origin, nil, now)
		p.had(now.UnixNano())
		e.leave()
	}
}

func (o *Origins) moved(origin string, t *breaker.Transition) {
	p, e := o.pasts.enter(origin, nil, t.At)
	p.moved(moveOf(t))
	e.leave()
}
