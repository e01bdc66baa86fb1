package broker

import (
	"context"
	"errors"
	"sync"
)

// The causes of contexts that a gate cancelled.
var (
	// errEnded is that of [gate.abort].
	errEnded = errors.New("the broker was ended before the call was over")
	// errShut is that of [gate.close], for those who only watch.
	errShut = errors.New("the broker is shutting down")
)

// gate knows the RPCs in flight. Once it is shut it tells when the last one has left, and can send away those that are inside.
type gate struct {
	left chan struct{} // closed when the gate is shut and nobody is inside

	mu     sync.Mutex // protects the fields below
	shut   bool
	inside map[uint64]guest // by the number of the RPC
	number uint64
}

// guest is an RPC inside.
type guest struct {
	cancel  context.CancelCauseFunc
	watches bool // it ends when the gate is shut: by itself it never would
}

func newGate() *gate {
	return &gate{left: make(chan struct{}), inside: make(map[uint64]guest)}
}

// enter lets an RPC in, false when the gate is shut. It leaves once, by its number; sendAway ends its context, of one that watches as
// soon as the gate is shut.
func (g *gate) enter(sendAway context.CancelCauseFunc, watches bool) (number uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return 0, false
	}
	g.number++
	g.inside[g.number] = guest{sendAway, watches}
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

// close shuts the gate; those inside go on, but for those who only watch. Shutting it again changes nothing.
func (g *gate) close() {
	for _, cancel := range g.shutOut() {
		cancel(errShut)
	}
}

func (g *gate) shutOut() (watchers []context.CancelCauseFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut && len(g.inside) == 0 {
		close(g.left)
	}
	g.shut = true
	return g.cancelsLocked(func(who guest) bool { return who.watches })
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
	return g.cancelsLocked(func(guest) bool { return true })
}

func (g *gate) cancelsLocked(of func(guest) bool) (all []context.CancelCauseFunc) {
	for _, who := range g.inside {
		if of(who) {
			all = append(all, who.cancel)
		}
	}
	return all
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// aborted: the RPC was sent away by [gate.abort], and not by its caller or its deadline.
func aborted(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errEnded) }

// sentHome: the RPC only watched, and was ended by [gate.close].
func sentHome(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errShut) }
