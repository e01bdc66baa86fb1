package broker

import (
	"context"
	"slices"
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
	var inside []uint64
	enter := func(want bool) {
		t.Helper()
		number, ok := g.enter(func(error) {}, false)
		if ok != want {
			t.Fatalf("entered: %v", !want)
		}
		inside = append(inside, number)
	}
	leave := func() {
		g.leave(inside[0])
		inside = inside[1:]
	}
	expect("new", false, false)
	enter(true)
	leave()
	expect("open and empty is not the end", false, false)
	enter(true)
	enter(true)
	g.close()
	expect("shut with two inside", true, false)
	enter(false)
	leave()
	expect("shut with one inside", true, false)
	g.close()
	expect("shut again", true, false)
	leave()
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
		g, shut := newGate(), false
		type rpc struct {
			ctx    context.Context //nolint:containedctx // it is what the gate may end
			number uint64
		}
		var inside []rpc
		sentAway := false
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				ctx, sendAway := context.WithCancelCause(t.Context())
				number, ok := g.enter(sendAway, false)
				if ok == shut {
					t.Fatalf("entered although shut, or not although open (shut %v)", shut)
				}
				if ok {
					inside = append(inside, rpc{ctx, number})
				}
			},
			"leave": func(t *rapid.T) {
				if len(inside) == 0 {
					t.Skip("nobody is inside")
				}
				i := rapid.IntRange(0, len(inside)-1).Draw(t, "who")
				g.leave(inside[i].number)
				inside = slices.Delete(inside, i, i+1)
			},
			"abort": func(*rapid.T) {
				shut, sentAway = true, true
				g.abort()
			},
			"close": func(*rapid.T) {
				shut = true
				g.close()
			},
			"": func(t *rapid.T) {
				if g.isShut() != shut || g.empty() != (shut && len(inside) == 0) {
					t.Fatalf("shut %v, empty %v; the model says %v with %d inside", g.isShut(), g.empty(), shut, len(inside))
				}
				for _, r := range inside {
					if (r.ctx.Err() != nil) != sentAway || aborted(r.ctx) != sentAway {
						t.Fatalf("context %v, cause %v; sent away: %v", r.ctx.Err(), context.Cause(r.ctx), sentAway)
					}
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
				number, ok := g.enter(func(error) {}, false)
				if !ok {
					return
				}
				mu.Lock()
				within++
				mu.Unlock()
				mu.Lock()
				within--
				mu.Unlock()
				g.leave(number)
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
