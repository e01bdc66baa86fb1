package hedge_test

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/hedge"
)

// oracle keeps all samples for ever, in order, and sorts the last 128 when it is asked.
type oracle struct {
	percentile *big.Rat // as it is written, not as binary has it
	samples    []time.Duration
	last       time.Time
	// Since the last answer was kept, once full.
	answers int
	losers  []time.Duration
	owed    float64
}

func newOracle(percentile float64) *oracle {
	exact, _ := new(big.Rat).SetString(strconv.FormatFloat(percentile, 'f', -1, 64))
	return &oracle{percentile: exact}
}

func (o *oracle) full() bool { return len(o.samples) >= 128 }

func (o *oracle) keep(latency time.Duration) {
	latency = min(max(latency, 0), longest)
	unit := us
	for (latency+unit-1)/unit > 9999 { // four digits
		unit *= 10
	}
	if rest := latency % unit; rest > 0 {
		latency += unit - rest
	}
	o.samples = append(o.samples, latency)
}

func (o *oracle) learn(now time.Time, latency time.Duration) {
	if o.full() {
		o.answers++
		if now.Sub(o.last) < pause {
			return
		}
		o.owed = min(o.owed+float64(len(o.losers))/float64(o.answers), 2)
		if len(o.losers) > 0 && o.owed >= 1 {
			o.keep(o.losers[len(o.losers)-1])
			o.owed--
		}
		o.answers, o.losers = 0, nil
	}
	o.keep(latency)
	if now.After(o.last) {
		o.last = now
	}
}

func (o *oracle) learnAtLeast(elapsed time.Duration) {
	value, known := o.after()
	switch {
	case !known || elapsed < value:
	case o.full():
		o.losers = append(o.losers, elapsed)
	default:
		o.keep(elapsed)
	}
}

func (o *oracle) after() (time.Duration, bool) {
	last := slices.Clone(o.samples[max(0, len(o.samples)-128):])
	if len(last) < 100 {
		return 0, false
	}
	slices.Sort(last)
	rank := 1
	for part(rank, len(last)).Cmp(o.percentile) < 0 { // in percent
		rank++
	}
	return last[rank-1], true
}

func part(rank, n int) *big.Rat { return big.NewRat(int64(100*rank), int64(n)) }

func live(t *rapid.T) {
	p := rapid.OneOf(
		rapid.SampledFrom([]float64{1e-9, 0.8, 12.8, 50, 90, 95, 99, 99.9, 100}),
		rapid.Map(rapid.IntRange(1, 100_000), func(n int) float64 { return float64(n) / 1000 }),
	).Draw(t, "percentile")
	latency := rapid.OneOf(
		rapid.Map(rapid.IntRange(0, 300_000), func(n int) time.Duration { return time.Duration(n) * 100 }),
		rapid.SampledFrom([]time.Duration{math.MinInt64, -1, 0, 1, us - 1, us, us + 1, longest - 1, longest, longest + 1, math.MaxInt64}),
		rapid.Map(rapid.Int64Range(0, int64(longest)), func(n int64) time.Duration { return time.Duration(n) }),
	)
	gap := rapid.OneOf(
		rapid.SampledFrom([]time.Duration{0, 0, 1, pause - 1, pause, pause + 1, time.Hour, -1, -pause, -time.Minute}),
		rapid.Map(rapid.IntRange(0, 100_000), func(n int) time.Duration { return time.Duration(n) * us }),
	)
	h, o := hedge.New(percentile(p)), newOracle(p)
	now := epoch
	compare := func() {
		want, wantKnown := o.after()
		got, known := h.After()
		if got != want || known != wantKnown {
			t.Fatalf("%v after %d samples: %v, known: %v; the oracle says %v, %v", now, len(o.samples), got, known, want, wantKnown)
		}
		if s := h.Snapshot(); s.Samples != min(len(o.samples), 128) || s.Delay != want || s.Known != wantKnown {
			t.Fatalf("%+v, the oracle has %d samples and says %v, %v", s, len(o.samples), want, wantKnown)
		}
	}
	if rapid.Bool().Draw(t, "warm") {
		n := rapid.IntRange(95, 135).Draw(t, "answers")
		for i := range n {
			latency := time.Duration(i*37%n) * ms / 5
			now = now.Add(pause)
			h.Learn(now, latency)
			o.learn(now, latency)
		}
		compare()
	}
	for range rapid.IntRange(1, 120).Draw(t, "steps") {
		now = now.Add(gap.Draw(t, "gap"))
		took := latency.Draw(t, "latency")
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0, 1, 2:
			h.Learn(now, took)
			o.learn(now, took)
		case 3:
			h.LearnAtLeast(took)
			o.learnAtLeast(took)
		case 4: // a hedge that wins
			value, _ := o.after()
			elapsed := value + max(took, 0)%time.Hour
			h.Learn(now, took)
			o.learn(now, took)
			h.LearnAtLeast(elapsed)
			o.learnAtLeast(elapsed)
		case 5: // just at the edge
			value, _ := o.after()
			elapsed := value - time.Duration(rapid.IntRange(0, 1).Draw(t, "short"))
			h.LearnAtLeast(elapsed)
			o.learnAtLeast(elapsed)
		}
		compare()
	}
}

func TestTriggerAgreesWithThePlainOracle(t *testing.T) { rapid.Check(t, live) }

// FuzzEvents drives the same life by the fuzzer's bytes.
func FuzzEvents(f *testing.F) { f.Fuzz(rapid.MakeFuzz(live)) }
