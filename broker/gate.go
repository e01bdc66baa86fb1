package broker

import "sync"

// gate counts the RPCs in flight and, once it is shut, tells when the last one has left.
type gate struct {
	left chan struct{} // closed when the gate is shut and nobody is inside

	mu     sync.Mutex // protects the fields below
	shut   bool
	inside int
}

func newGate() *gate { return &gate{left: make(chan struct{})} }

// enter reports whether the gate is open; whoever entered leaves.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.shut && g.inside == 0 {
		close(g.left)
	}
}

// close shuts the gate; those inside go on. Shutting it again changes nothing.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut && g.inside == 0 {
		close(g.left)
	}
	g.shut = true
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}
