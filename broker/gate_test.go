package broker

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// empty reports whether the gate says that the last one has left.
func (g *gate) empty() bool {
	select {
	case <-g.left:
		return true
	default:
		return false
	}
}

func TestGateWalk(t *testing.T) {
	g := newGate()
	expect := func(step string, shut, empty bool) {
		t.Helper()
		if g.isShut() != shut || g.empty() != empty {
			t.Fatalf("%s: shut %v, empty %v, want %v, %v", step, g.isShut(), g.empty(), shut, empty)
		}
	}
	enter := func(want bool) {
		t.Helper()
		if g.enter() != want {
			t.Fatalf("entered: %v", !want)
		}
	}
	expect("new", false, false)
	enter(true)
	g.leave()
	expect("open and empty is not the end", false, false)
	enter(true)
	enter(true)
	g.close()
	expect("shut with two inside", true, false)
	enter(false)
	g.leave()
	expect("shut with one inside", true, false)
	g.close()
	expect("shut again", true, false)
	g.leave()
	expect("the last one left", true, true)
	enter(false)
	g.close()
	expect("shut for good", true, true)

	g = newGate()
	g.close()
	expect("shut while empty", true, true)
	g.close()
	expect("shut twice while empty", true, true)
}

func TestGateAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, inside, shut := newGate(), 0, false
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				if g.enter() == shut {
					t.Fatalf("entered although shut, or not although open (shut %v)", shut)
				}
				if !shut {
					inside++
				}
			},
			"leave": func(t *rapid.T) {
				if inside == 0 {
					t.Skip("nobody is inside")
				}
				inside--
				g.leave()
			},
			"close": func(*rapid.T) {
				shut = true
				g.close()
			},
			"": func(t *rapid.T) {
				if g.isShut() != shut || g.empty() != (shut && inside == 0) {
					t.Fatalf("shut %v, empty %v; the model says %v with %d inside", g.isShut(), g.empty(), shut, inside)
				}
			},
		})
	})
}

func TestGateWaitsForEveryoneInARace(t *testing.T) {
	g, inside := newGate(), sync.WaitGroup{}
	var mu sync.Mutex // protects within
	within := 0
	for range 64 {
		inside.Go(func() {
			for range 50 {
				if !g.enter() {
					return
				}
				mu.Lock()
				within++
				mu.Unlock()
				mu.Lock()
				within--
				mu.Unlock()
				g.leave()
			}
		})
	}
	g.close()
	<-g.left
	mu.Lock()
	if within != 0 {
		t.Errorf("%d inside when the gate said that the last one had left", within)
	}
	mu.Unlock()
	inside.Wait()
}
