package hedge_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/hedge"
)

// asKept is what remains of a latency.
func asKept(latency time.Duration) time.Duration {
	h := hedge.New(percentile(50))
	learn(h, epoch, same(100, latency)...)
	got, _ := h.After()
	return got
}

func anyLatency() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		most := rapid.SampledFrom([]time.Duration{10 * us, ms, 20 * ms, time.Second, time.Minute, longest}).Draw(t, "most")
		return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, "latency"))
	})
}

func TestSampleIsTooLongByLessThanAThousandthAndNeverTooShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		latency := anyLatency().Draw(t, "latency")
		got := asKept(latency)
		if off := got - latency; off < 0 || off >= us && off*1000 >= latency || latency <= 9999*us && got%us != 0 {
			t.Fatalf("%v is kept as %v", latency, got)
		}
		if again := asKept(got); again != got {
			t.Fatalf("%v is kept as %v, and that as %v", latency, got, again)
		}
	})
}

func TestSamplesAreInTheOrderOfTheirLatencies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		latencies := rapid.SliceOfN(anyLatency(), 100, 100).Draw(t, "latencies")
		rank := rapid.IntRange(1, 100).Draw(t, "rank")
		h := hedge.New(percentile(float64(rank)))
		learn(h, epoch, latencies...)
		slices.Sort(latencies)
		wantAfterIn(t, h, asKept(latencies[rank-1]))
	})
}

func wantAfterIn(t *rapid.T, h *hedge.Trigger, want time.Duration) {
	if got, known := h.After(); !known || got != want {
		t.Fatalf("after %v, known: %v, want %v", got, known, want)
	}
}
