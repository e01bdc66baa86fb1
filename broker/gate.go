package broker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// errEnded is the cause of a context that [gate.abort] cancelled.
var errEnded = errors.New("the broker was ended before the call was over")

// gate knows the RPCs in flight. Once it is shut it tells when the last one has left, and can send away those that are inside.
type gate struct {
	left chan struct{} // closed when the gate is shut and nobody is inside

	mu     sync.Mutex // protects the fields below
	shut   bool
	inside map[uint64]context.CancelCauseFunc // by the number of the RPC
	number uint64
}

func newGate() *gate {
	return &gate{left: make(chan struct{}), inside: make(map[uint64]context.CancelCauseFunc)}
}

// enter lets an RPC in, false when the gate is shut. It leaves once, by its number; sendAway ends its context.
func (g *gate) enter(sendAway context.CancelCauseFunc) (number uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return 0, false
	}
	g.number++
	g.inside[g.number] = sendAway
	return g.number, true
}

func (g *gate) leave(number uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, number)
	if g.shut && len(g.inside) == 0 {
		close(g.left)
	}
}

// close shuts the gate; those inside go on. Shutting it again changes nothing.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut && len(g.inside) == 0 {
		close(g.left)
	}
	g.shut = true
}

// abort shuts the gate and cancels those inside, who still say what they know and leave.
func (g *gate) abort() {
	g.close()
	for _, cancel := range g.cancels() {
		cancel(errEnded)
	}
}

func (g *gate) cancels() []context.CancelCauseFunc {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.inside))
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// aborted: the RPC was sent away by [gate.abort], and not by its caller or its deadline.
func aborted(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errEnded) }
