package hedge_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sallyport/sallyport/hedge"
)

// origin is a model: latencies have a long tail, P(latency > x) = 1ms ÷ x, so that the 95th percentile is 20ms. A call that is not
// answered by then is hedged, and the first answer ends it.
type origin struct {
	every       time.Duration // between calls
	losers      bool          // the trigger is told of them
	winnerFirst bool
}

// run gives hedges per call, and the middle of the delays.
func (o origin) run(h *hedge.Trigger, calls int) (hedged float64, delay time.Duration) {
	rnd := rand.New(rand.NewPCG(8, 2013))
	latency := func() time.Duration { return time.Duration(float64(ms) / (1 - rnd.Float64())) }
	hedges, asked := 0, 0.0
	var sum float64 // of logarithms: a delay that is halved and then doubled has not moved
	for i := range calls {
		now := after(time.Duration(i) * o.every)
		first := latency()
		wait, known := h.After()
		if known {
			sum += math.Log(float64(wait))
			asked++
		}
		if !known || first <= wait {
			h.Learn(now, first)
			continue
		}
		hedges++
		second := latency()
		winner, loser := first, first-wait
		if wait+second < first {
			winner, loser = second, wait+second
		}
		if o.winnerFirst {
			h.Learn(now, winner)
		}
		if o.losers {
			h.LearnAtLeast(loser)
		}
		if !o.winnerFirst {
			h.Learn(now, winner)
		}
	}
	return float64(hedges) / float64(calls), time.Duration(math.Exp(sum / asked))
}

// TestEstimateStaysWithLosersAndCreepsWithout: the share that is asked for is 5 %. What is kept of a loser is shorter than the truth,
// so that it is a little more; without losers it is about three times as much.
func TestEstimateStaysWithLosersAndCreepsWithout(t *testing.T) {
	rows := []struct {
		name  string
		every time.Duration
		calls int
	}{
		{"a call a second", time.Second, 5_000},
		{"two hundred a second", 5 * ms, 40_000},
	}
	for _, row := range rows {
		for _, winnerFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, winner first: %v", row.name, winnerFirst), func(t *testing.T) {
				o := origin{every: row.every, losers: true, winnerFirst: winnerFirst}
				hedged, delay := o.run(hedge.New(percentile(95)), row.calls)
				if hedged < 0.05 || hedged > 0.07 || delay < 14*ms || delay > 20*ms {
					t.Errorf("%.4f hedges per call after %v, want 0.05 to 0.07 after 14ms to 20ms", hedged, delay)
				}
				o.losers = false
				hedged, delay = o.run(hedge.New(percentile(95)), row.calls)
				if hedged < 0.13 || delay > 8*ms {
					t.Errorf("not told of losers: %.4f hedges per call after %v, want 0.15 after 7ms: does the model show anything?", hedged, delay)
				}
			})
		}
	}
}
