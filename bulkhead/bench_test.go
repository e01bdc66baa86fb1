package bulkhead_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/sallyport/sallyport/bulkhead"
)

func usual() bulkhead.Config {
	return bulkhead.Config{MaxInFlight: 512, MaxPending: 128, PendingWait: 100 * time.Millisecond}
}

func TestUncontendedPathTakesNoMemory(t *testing.T) {
	b := bulkhead.New(usual())
	slotOf(t, b, "a").Release() // the first makes what the others use again
	if n := testing.AllocsPerRun(100, func() { slotOf(t, b, "a").Release() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	// Trim takes what is free, and no more.
	slot := slotOf(t, b, "a")
	slotOf(t, b, "a").Release()
	if n := testing.AllocsPerRun(100, func() { b.Trim(); slotOf(t, b, "a").Release() }); n != 0 {
		t.Errorf("%v allocations while a slot is taken", n)
	}
	slot.Release()
	for range 20 {
		b.Trim()
		slotOf(t, b, "a").Release()
	}
	if n := testing.AllocsPerRun(100, func() { slotOf(t, b, "a").Release() }); n != 0 {
		t.Errorf("%v allocations after it was trimmed", n)
	}
}

// TestIdleBulkheadIsSmall: what a storm needed is gone with it. An idle origin has 2 KiB for all of its state.
func TestIdleBulkheadIsSmall(t *testing.T) {
	for trimmed, most := range map[bool]int64{false: 400, true: 160} {
		if each := heapPer(t, trimmed); each > most {
			t.Errorf("trimmed: %v: %d bytes a bulkhead, want at most %d", trimmed, each, most)
		}
	}
}

func heapPer(t *testing.T, trimmed bool) int64 {
	t.Helper()
	const many = 1000
	kept := make([]*bulkhead.Bulkhead, many)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range kept {
		b := bulkhead.New(limits(50, 100))
		var slots []bulkhead.Slot
		for range 50 {
			slots = append(slots, slotOf(t, b, "a"))
		}
		for range 90 {
			waiterOf(t, b, "a", bulkhead.Normal).Leave()
		}
		for _, slot := range slots {
			slot.Release()
		}
		if trimmed {
			b.Trim()
		}
		kept[i] = b
	}
	each := (heap() - before) / many
	runtime.KeepAlive(kept)
	return each
}

func BenchmarkEnterRelease(b *testing.B) {
	k := bulkhead.New(usual())
	b.ReportAllocs()
	for b.Loop() {
		slot, _, _ := k.Enter(epoch, "a", bulkhead.Normal, long)
		slot.Release()
	}
}

// BenchmarkHandOver is a slot that goes from one to a waiter and back.
func BenchmarkHandOver(b *testing.B) {
	k := bulkhead.New(limits(1, 10))
	slot := slotOf(b, k, "a")
	b.ReportAllocs()
	for b.Loop() {
		_, w, _ := k.Enter(epoch, "a", bulkhead.Normal, long)
		slot.Release()
		<-w.C
		slot, _ = w.Slot()
	}
}

func BenchmarkRefused(b *testing.B) {
	k := bulkhead.New(limits(1, 0))
	slotOf(b, k, "a")
	b.ReportAllocs()
	for b.Loop() {
		_, _, _ = k.Enter(epoch, "a", bulkhead.Normal, long)
	}
}

// BenchmarkContention is 64 goroutines on one bulkhead, below its limit and above it.
func BenchmarkContention(b *testing.B) {
	for name, c := range map[string]bulkhead.Config{"slots for all": usual(), "8 slots": limits(8, 1000)} {
		b.Run(name, func(b *testing.B) {
			k := bulkhead.New(c)
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					slot, w, _ := k.Enter(epoch, "a", bulkhead.Normal, long)
					if w != nil {
						<-w.C
						slot, _ = w.Slot()
					}
					slot.Release()
				}
			})
		})
	}
}
