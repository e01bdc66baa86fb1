package operation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

// account is what was really done, kept apart from the broker and its ledger.
type account struct {
	mu      sync.Mutex // protects the fields below
	effects map[string]int
	under   map[string]int // sends of an id at this moment
	broken  []string
}

func (a *account) complainf(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = append(a.broken, fmt.Sprintf(format, args...))
}

// send does the operation with an effect, without one, or without an answer.
func (a *account) send(rnd func(int) int) func(context.Context, *call.Call) call.Final {
	return func(ctx context.Context, c *call.Call) call.Final {
		if ctx.Err() != nil {
			return ended(c, call.OutcomeCancelled, call.EffectNone, call.ReasonCancelled)
		}
		id := c.OperationID
		a.mu.Lock()
		if a.under[id]++; a.under[id] > 1 {
			a.broken = append(a.broken, id+" was sent twice at once")
		}
		a.mu.Unlock()
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.under[id]--
		}()
		timer := time.NewTimer(time.Duration(rnd(400)) * time.Millisecond)
		defer timer.Stop()
		gone := false
		select {
		case <-timer.C:
		case <-ctx.Done():
			gone = true
		}
		kind := rnd(5)
		if kind == 0 && !gone {
			return refused(c)
		}
		a.mu.Lock()
		if kind > 1 {
			a.effects[id]++
		}
		a.mu.Unlock()
		switch {
		case gone:
			return cancelled(c)
		case kind < 3:
			return lost(c)
		case kind == 3:
			later := make(chan call.Final, 1)
			time.AfterFunc(time.Duration(rnd(2000))*time.Millisecond, func() { later <- answers(201)(c) })
			return runsOn(later)(c)
		}
		return answers(201)(c)
	}
}

// TestNothingIsDoneTwice: whatever the callers, the ledger and the starts of the broker do, an operation that must not be repeated has one
// effect at most, and nobody is told that there is none when there is one.
func TestNothingIsDoneTwice(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				var mu sync.Mutex // protects rnd
				source := rand.New(rand.NewPCG(seed, 7))
				rnd := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return source.IntN(n)
				}
				a := &account{effects: map[string]int{}, under: map[string]int{}}
				var all sync.WaitGroup
				for range 12 {
					all.Go(func() {
						for range 25 {
							time.Sleep(time.Duration(rnd(300)) * time.Millisecond)
							id := fmt.Sprintf("op-%d", rnd(30))
							ask := payment(id, nil)
							ask.Send = a.send(rnd)
							within(ask, time.Duration(1+rnd(1500))*time.Millisecond)
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rnd(1500))*time.Millisecond)
							got, err := w.Do(ctx, ask)
							cancel()
							a.mu.Lock()
							effects := a.effects[id]
							a.mu.Unlock()
							switch {
							case err != nil:
							case got.Outcome == call.OutcomeOperationConflict:
								a.complainf("%s conflicts with itself", id)
							case got.Effect == call.EffectNone && !got.Replayed && effects > 0 && got.Sends > 0:
								a.complainf("%s was told as not done", id)
							case got.Outcome == call.OutcomeSuccess && effects != 1:
								a.complainf("%s was told as done, it was done %d times", id, effects)
							case got.Replayed && got.Sends != 0:
								a.complainf("%s was told again with sends", id)
							}
						}
					})
				}
				all.Go(func() {
					for range 40 {
						time.Sleep(time.Duration(rnd(200)) * time.Millisecond)
						w.ledger.set(func(l *faulty) {
							l.begin, l.write = nil, nil
							bad := &fault{takes: time.Duration(rnd(3000)) * time.Millisecond, deaf: rnd(2) == 0, after: rnd(2) == 0}
							if rnd(2) == 0 {
								bad.err = errDisk
							}
							switch rnd(4) {
							case 0:
								l.begin = bad
							case 1:
								l.write = bad
							}
						})
					}
					w.ledger.set(func(l *faulty) { l.begin, l.write = nil, nil })
				})
				all.Wait()
				time.Sleep(time.Minute)
				synctest.Wait()
				for id, n := range a.effects {
					if n > 1 {
						t.Errorf("%s was done %d times", id, n)
					}
					r := w.stored(id)
					if r.State == operation.StateRunning || r.Free() && n > 0 || r.Effect == call.EffectNone && n > 0 {
						t.Errorf("%s was done %d times, the ledger has %v, effect %v, free: %v", id, n, r.State, r.Effect, r.Free())
					}
				}
				for _, b := range a.broken {
					t.Error(b)
				}
				if len(a.effects) < 10 {
					t.Errorf("%d ids had an effect: the run says little", len(a.effects))
				}
			})
		})
	}
}
