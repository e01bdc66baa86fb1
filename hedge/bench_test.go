package hedge_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/sallyport/sallyport/hedge"
)

func kinds() map[string]hedge.Config {
	return map[string]hedge.Config{"fixed": {Delay: 20 * ms}, "percentile": percentile(95)}
}

// full gives a trigger of which every place is taken, and when the last one was.
func full(c hedge.Config) (*hedge.Trigger, time.Time) {
	h := hedge.New(c)
	return h, learn(h, epoch, upTo(128)...)
}

// heapPer is the heap one used, idle trigger costs.
func heapPer(c hedge.Config, triggers int) int64 {
	held := make([]*hedge.Trigger, triggers)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what lay in a pool survives the first
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range held {
		held[i], _ = full(c)
	}
	each := (heap() - before) / int64(triggers)
	runtime.KeepAlive(held)
	return each
}

// TestIdleTriggerIsSmall: an idle origin has 2 KiB for all of its state.
func TestIdleTriggerIsSmall(t *testing.T) {
	for name, limit := range map[string]int64{"fixed": 100, "percentile": 400} {
		if each := heapPer(kinds()[name], 1000); each >= limit {
			t.Errorf("%s: %d bytes a trigger, want less than %d", name, each, limit)
		}
	}
}

func TestLearningTakesNoMemory(t *testing.T) {
	for name, c := range kinds() {
		h, now := full(c)
		if n := testing.AllocsPerRun(200, func() {
			now = now.Add(pause)
			h.Learn(now, 7*ms)
			h.Learn(now, 7*ms)
			h.LearnAtLeast(time.Second)
			h.After()
			h.Snapshot()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// BenchmarkLearn is a busy origin: most answers are only counted.
func BenchmarkLearn(b *testing.B) {
	for name, c := range kinds() {
		b.Run(name, func(b *testing.B) {
			h, now := full(c)
			b.ReportAllocs()
			for b.Loop() {
				h.Learn(now, 7*ms)
			}
		})
	}
}

// BenchmarkLearnKept is the dearest answer: it is kept, and the percentile sorted anew.
func BenchmarkLearnKept(b *testing.B) {
	h, now := full(percentile(95))
	latencies := upTo(1000)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(pause)
		i = (i + 1) % len(latencies)
		h.Learn(now, latencies[i])
	}
}

func BenchmarkLearnAtLeast(b *testing.B) {
	h, _ := full(percentile(95))
	b.ReportAllocs()
	for b.Loop() {
		h.LearnAtLeast(time.Second)
	}
}

func BenchmarkAfter(b *testing.B) {
	for name, c := range kinds() {
		b.Run(name, func(b *testing.B) {
			h, _ := full(c)
			b.ReportAllocs()
			for b.Loop() {
				h.After()
			}
		})
	}
}

// BenchmarkContention is one hot origin under 64 goroutines: the wait is asked for, and the answer told.
func BenchmarkContention(b *testing.B) {
	h, now := full(percentile(95))
	b.SetParallelism((64 + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			h.After()
			h.Learn(now, 7*ms)
		}
	})
}

func BenchmarkBytesPerTrigger(b *testing.B) {
	for name, c := range kinds() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(float64(heapPer(c, 2000)), "bytes/trigger")
			}
		})
	}
}
