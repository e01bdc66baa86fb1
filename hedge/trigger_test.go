package hedge_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/hedge"
)

func TestPercentileIsTheNearestRank(t *testing.T) {
	const least = 1e-12
	rows := []struct {
		name       string
		percentile float64
		latencies  []time.Duration
		want       time.Duration
	}{
		{"half of 100", 50, upTo(100), 50 * ms},
		{"95 of 100", 95, upTo(100), 95 * ms},
		{"99 of 100", 99, upTo(100), 99 * ms},
		{"100 of 100", 100, upTo(100), 100 * ms},
		{"half of 101 is the 51st", 50, upTo(101), 51 * ms},
		{"95 of 101 is the 96th", 95, upTo(101), 96 * ms},
		{"half of 128", 50, upTo(128), 64 * ms},
		{"95 of 128 is the 122nd", 95, upTo(128), 122 * ms},
		{"99 of 128 is the 127th", 99, upTo(128), 127 * ms},
		{"100 of 128", 100, upTo(128), 128 * ms},
		{"a little less than 100 of 128", 99.3, upTo(128), 128 * ms},
		{"12.8 of 125, which binary does not know", 12.8, upTo(125), 16 * ms},
		{"the least percentile is the first", least, upTo(128), 1 * ms},
		{"all alike", 95, same(128, 7*ms), 7 * ms},
		{"one is slow, and the 99th does not see it", 99, append(same(99, 7*ms), time.Minute), 7 * ms},
		{"two are slow", 99, append(same(98, 7*ms), time.Minute, time.Minute), time.Minute},
		{"rounded up to the microsecond", 95, same(100, 7*ms+1), 7*ms + us},
		{"the last exact microsecond", 95, same(100, 9999*us), 9999 * us},
		{"a nanosecond beyond it", 95, same(100, 9999*us+1), 10 * ms},
		{"rounded up to four digits", 95, same(100, 12345*us), 12350 * us},
		{"the last of four digits", 95, same(100, 99_990*us), 99_990 * us},
		{"a microsecond beyond it", 95, same(100, 99_991*us), 100 * ms},
		{"minutes", 95, same(100, 83*time.Minute+20*time.Second), 5000 * time.Second},
		{"minutes and a millisecond", 95, same(100, 83*time.Minute+20*time.Second+ms), 5001 * time.Second},
		{"the next but one to the longest", 95, same(100, longest-2*time.Second+1), longest - time.Second},
		{"no time at all", 95, same(100, 0), 0},
		{"less than no time", 95, same(100, -5), 0},
		{"the longest that is told apart", 95, same(100, longest), longest},
		{"one nanosecond longer", 95, same(100, longest+1), longest},
		{"the longest there is", 95, same(100, math.MaxInt64), longest},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			h := hedge.New(percentile(row.percentile))
			learn(h, epoch, row.latencies...)
			wantAfter(t, h, row.want)
		})
	}
}

func TestNothingIsSaidBeforeAHundredSamples(t *testing.T) {
	h := hedge.New(percentile(95))
	wantUnknown(t, h, 0)
	latencies := upTo(100)
	now := learn(h, epoch, latencies[:99]...)
	wantUnknown(t, h, 99)
	h.LearnAtLeast(time.Hour) // at or beyond what?
	wantUnknown(t, h, 99)
	learn(h, now, latencies[99])
	wantAfter(t, h, 95*ms)
}

func TestFixedDelayLearnsNothing(t *testing.T) {
	for _, delay := range []time.Duration{0, 1, 20 * ms, time.Hour} {
		h := hedge.New(hedge.Config{Delay: delay})
		wantAfter(t, h, delay)
		learn(h, epoch, upTo(128)...)
		h.LearnAtLeast(time.Hour)
		wantAfter(t, h, delay)
		if s := h.Snapshot(); s.Samples != 0 {
			t.Errorf("%v: %d samples are kept", delay, s.Samples)
		}
	}
}

func TestDelayDoesNotCountBesideAPercentile(t *testing.T) {
	h := hedge.New(hedge.Config{Delay: 20 * ms, Percentile: 95})
	wantUnknown(t, h, 0)
	learn(h, epoch, upTo(100)...)
	wantAfter(t, h, 95*ms)
}

func TestTheLast128AreKept(t *testing.T) {
	h := hedge.New(percentile(100))
	now := learn(h, epoch, time.Minute)
	now = learn(h, now, same(127, 5*ms)...)
	wantAfter(t, h, time.Minute)
	now = learn(h, now, 6*ms) // takes the place of the minute
	wantAfter(t, h, 6*ms)
	now = learn(h, now, same(127, 5*ms)...)
	wantAfter(t, h, 6*ms)
	learn(h, now, 5*ms)
	wantAfter(t, h, 5*ms)
	if s := h.Snapshot(); s.Samples != 128 {
		t.Errorf("%d samples", s.Samples)
	}
}

func TestAtFirstEveryAnswerCountsThenOneInAPause(t *testing.T) {
	h := hedge.New(percentile(100))
	for range 128 {
		h.Learn(epoch, 5*ms)
	}
	if s := h.Snapshot(); s.Samples != 128 {
		t.Fatalf("%d samples", s.Samples)
	}
	h.Learn(epoch, time.Second)
	h.Learn(after(pause-1), time.Second)
	wantAfter(t, h, 5*ms)
	h.Learn(after(pause), 8*ms)
	wantAfter(t, h, 8*ms)
	h.Learn(after(2*pause-1), time.Second)
	wantAfter(t, h, 8*ms)
	h.Learn(after(3*pause), 9*ms) // what is kept counts, not a grid
	h.Learn(after(4*pause-1), time.Second)
	wantAfter(t, h, 9*ms)
}

func TestTimeGoingBackCountsAsTheLatest(t *testing.T) {
	h := hedge.New(percentile(100))
	for range 64 {
		h.Learn(after(time.Hour), 5*ms)
	}
	for range 64 {
		h.Learn(epoch, 5*ms)
	}
	for _, now := range []time.Time{{}, epoch, after(math.MinInt64), after(time.Hour + pause - 1)} {
		h.Learn(now, time.Second)
		wantAfter(t, h, 5*ms)
	}
	h.Learn(after(time.Hour+pause), 6*ms)
	wantAfter(t, h, 6*ms)
}

func TestLoserCountsFromThePercentileOn(t *testing.T) {
	rows := []struct {
		name    string
		elapsed time.Duration
		want    time.Duration
		samples int
	}{
		{"less says nothing", 95*ms - 1, 95 * ms, 100},
		{"at the percentile it is beyond", 95 * ms, 95 * ms, 101}, // the 96th of 101, and there are two of 95ms now
		{"a little beyond", 95*ms + 1, 95*ms + 10*us, 101},
		{"far beyond", time.Hour, 96 * ms, 101},
		{"the longest there is", math.MaxInt64, 96 * ms, 101},
		{"no time", 0, 95 * ms, 100},
		{"less than no time", math.MinInt64, 95 * ms, 100},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			h := hedge.New(percentile(95))
			learn(h, epoch, upTo(100)...)
			h.LearnAtLeast(row.elapsed)
			if s := h.Snapshot(); s.Samples != row.samples {
				t.Errorf("%d samples, want %d", s.Samples, row.samples)
			}
			wantAfter(t, h, row.want)
		})
	}
}

func TestLoserSaysNothingBelowThePresentPercentile(t *testing.T) {
	h := hedge.New(percentile(95))
	learn(h, epoch, upTo(100)...)
	h.LearnAtLeast(200 * ms)
	wantAfter(t, h, 96*ms)
	h.LearnAtLeast(95 * ms) // it was enough before
	wantAfter(t, h, 96*ms)
	if s := h.Snapshot(); s.Samples != 101 {
		t.Errorf("%d samples", s.Samples)
	}
}

func TestLosersAreThinnedAsAnswersAre(t *testing.T) {
	rows := []struct {
		name            string
		answers, losers int // in a pause
		pauses          int
		want            int // losers kept
	}{
		{"none", 4, 0, 40, 0},
		{"one in four", 4, 1, 40, 10},
		{"three in four", 4, 3, 40, 30},
		{"as many as answers", 4, 4, 40, 40},
		{"more than answers", 1, 3, 40, 40},
		{"a slow origin", 1, 1, 7, 7},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := ranks(time.Second, func(h *hedge.Trigger) {
				now := learn(h, epoch, same(128, 0)...)
				for range row.pauses {
					for range row.losers {
						h.LearnAtLeast(time.Second)
					}
					for range row.answers - 1 {
						h.Learn(now, 0)
					}
					now = learn(h, now, 0)
				}
			})
			if got != row.want {
				t.Errorf("%d losers are kept, want %d", got, row.want)
			}
		})
	}
}

func TestWhatIsOwedDoesNotPileUp(t *testing.T) {
	got := ranks(time.Second, func(h *hedge.Trigger) {
		now := learn(h, epoch, same(128, 0)...)
		for range 1000 {
			h.LearnAtLeast(time.Second)
		}
		now = learn(h, now, same(20, 0)...) // one is kept with the first of these, and where no loser came none is
		h.LearnAtLeast(time.Second)
		learn(h, now, same(20, 0)...)
	})
	if got != 2 {
		t.Errorf("%d losers are kept, want 2", got)
	}
}

// ranks counts the samples of one length in a full trigger: it plays the history once for each of the 128 ranks.
func ranks(of time.Duration, history func(h *hedge.Trigger)) int {
	n := 0
	for rank := 1; rank <= 128; rank++ {
		h := hedge.New(percentile(float64(rank) * 100 / 128))
		history(h)
		if got, _ := h.After(); got == of {
			n++
		}
	}
	return n
}

func TestPercentileOutOfBoundsDoesNotPanic(t *testing.T) {
	for _, p := range []float64{-1, 101, math.NaN(), math.Inf(1), math.Inf(-1)} {
		h := hedge.New(percentile(p))
		latencies := upTo(100)
		learn(h, epoch, latencies...)
		if got, known := h.After(); !known || !slices.Contains(latencies, got) {
			t.Errorf("percentile %v: after %v, known: %v", p, got, known)
		}
	}
}
