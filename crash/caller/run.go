package caller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// Plan draws the nth operation of a history. The same seed gives the same one.
func Plan(seed uint64, n int) history.Operation {
	rnd := rand.New(rand.NewPCG(seed, uint64(n))) //nolint:gosec // counts from 0
	routes := history.Routes()
	// As often as there is something to find there.
	names := []string{
		"plain", "plain", "plain", "plain", "guarded", "rejecting", "rejecting", "probed", "probed",
		"keyed", "keyed", "keyed", "short", "short", "hedged", "put",
	}
	o := history.Operation{Name: fmt.Sprintf("op-%05d", n), Route: routes[names[rnd.IntN(len(names))]]}
	o.Identified = o.Route.Method != "POST" || o.Route.Probed || rnd.IntN(8) > 0
	if rnd.IntN(10) == 0 {
		const large = 20_000 // several segments
		o.Padding = large
	}
	return o
}

// Run asks for an operation from start to end: one caller or several at once, each until it knows or gives up.
func (c *Caller) Run(ctx context.Context, seed uint64, n int) {
	const stream = 1 << 32                               // apart from the numbers that Plan draws
	rnd := rand.New(rand.NewPCG(seed, stream+uint64(n))) //nolint:gosec // counts from 0
	o := Plan(seed, n)
	c.history.Operation(o)
	callers := 1
	if o.Identified {
		callers = []int{1, 1, 1, 2, 2, 3, 5}[rnd.IntN(7)]
	}
	spread := []time.Duration{0, 20 * time.Millisecond, 800 * time.Millisecond}[rnd.IntN(3)]
	var running sync.WaitGroup
	for i := range callers {
		own := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
		other := i > 0 && own.IntN(5) == 0
		running.Go(func() {
			if spread > 0 && i > 0 {
				wait(ctx, time.Duration(own.Int64N(int64(spread))))
			}
			c.insist(ctx, o, own, patience{other: other})
		})
	}
	running.Wait()
}

// insist asks until the answer is in, or it is not worth while any more.
func (c *Caller) insist(ctx context.Context, o history.Operation, rnd *rand.Rand, p patience) {
	most := 2 + rnd.IntN(6)
	for range most {
		p.deadline = []time.Duration{
			80 * time.Millisecond, 250 * time.Millisecond, 600 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second,
		}[rnd.IntN(5)]
		p.cancelAfter = 0
		if rnd.IntN(6) == 0 {
			p.cancelAfter = 1 + time.Duration(rnd.Int64N(int64(p.deadline)))
		}
		a := c.ask(ctx, o, p)
		if ctx.Err() != nil {
			return
		}
		if o.Identified && rnd.IntN(4) == 0 {
			c.Read(ctx, o, false)
		}
		again := again(o, a, rnd)
		if !again {
			return
		}
		wait(ctx, 10*time.Millisecond+time.Duration(rnd.Int64N(int64(300*time.Millisecond))))
	}
}

// again is what the documents tell a caller, and a little impatience: where an id protects it, it asks although it need not.
func again(o history.Operation, a history.Ask, rnd *rand.Rand) bool {
	const impatient = 3 // one in so many
	switch {
	case a.Code != history.OK:
		// Without an id an error that proves nothing is the end of it.
		return a.NothingSent || o.Identified && a.Code != history.InvalidArgument
	case slices.Contains([]string{"RETRY", "RETRY_SAME_ID", "WAIT"}, a.Next):
		return o.Identified || a.Effect == "NONE"
	}
	return o.Identified && rnd.IntN(impatient) == 0
}

// wait passes that time.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
