package breaker_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

func BenchmarkAdmitSettle(b *testing.B) {
	br := breaker.New(usual())
	now := zero
	a := patient("spiffe://example.com/ns/shop/sa/checkout")
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		ticket, err := br.Admit(now, a, 0.5)
		if err != nil {
			b.Fatal(err)
		}
		ticket.Settle(now, ok, 0.5)
	}
}

// BenchmarkAmongMany is an origin with as many tickets outstanding as are told apart; the oldest is settled, which moves the most.
func BenchmarkAmongMany(b *testing.B) {
	br := breaker.New(usual())
	now := zero
	var tickets [256]breaker.Ticket
	for i := range tickets {
		tickets[i], _ = br.Admit(now, patient("a"), 0)
	}
	next := 0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		tickets[next].Settle(now, ok, 0.5)
		tickets[next], _ = br.Admit(now, patient("a"), 0.5)
		next = (next + 1) % len(tickets)
	}
}

func BenchmarkRefuse(b *testing.B) {
	br := breaker.New(usual())
	br.Force(breaker.ForcedOpen, zero)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := br.Admit(zero, patient("a"), 0.5); err == nil {
			b.Fatal("admitted")
		}
	}
}

// BenchmarkExcuse is the dearest result: the percentile is sorted anew.
func BenchmarkExcuse(b *testing.B) {
	br := breaker.New(usual())
	now := zero
	for i := range 64 {
		now = now.Add(time.Second)
		ticket, _ := br.Admit(now, patient("a"), 0)
		ticket.Settle(now, breaker.Result{Kind: breaker.OK, Latency: time.Duration(i*37%64) * 20 * time.Millisecond}, 0)
	}
	br.Force(breaker.ForcedClosed, now)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		ticket, err := br.Admit(now, cut("a", 1200*time.Millisecond), 0.5)
		if err != nil {
			b.Fatal(err)
		}
		ticket.Settle(now, timeout, 0.5)
	}
}

// BenchmarkContention is one hot origin under 64 goroutines.
func BenchmarkContention(b *testing.B) {
	br := breaker.New(usual())
	a := patient("spiffe://example.com/ns/shop/sa/checkout")
	b.SetParallelism((64 + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		now := time.Now()
		for pb.Next() {
			ticket, err := br.Admit(now, a, 0.5)
			if err != nil {
				b.Error(err)
				return
			}
			ticket.Settle(now, ok, 0.5)
		}
	})
}

// settleTogether has as many tickets outstanding at once as there is room for, and ends them all.
func settleTogether(b *breaker.Breaker, tickets []breaker.Ticket) {
	now := zero.Add(time.Minute)
	for i := range tickets {
		tickets[i], _ = b.Admit(now, patient("a"), 0)
	}
	for _, ticket := range tickets {
		ticket.Settle(now, ok, 0)
	}
}

// heapPer is the heap that a breaker costs which was used, by many at once too, and is idle.
func heapPer(breakers int, trimmed bool) uint64 {
	held := make([]*breaker.Breaker, breakers)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range held {
		held[i] = breaker.New(usual())
		for n := range 40 {
			now := zero.Add(time.Duration(n) * time.Second)
			ticket, _ := held[i].Admit(now, patient("a"), 0)
			ticket.Settle(now, ok, 0)
		}
		settleTogether(held[i], make([]breaker.Ticket, 20))
		settleTogether(held[i], make([]breaker.Ticket, 2))
		if trimmed {
			held[i].Trim(zero.Add(time.Hour))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(held)
	return (after.HeapAlloc - before.HeapAlloc) / uint64(breakers)
}

func BenchmarkBytesPerIdleBreaker(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(heapPer(10000, true)), "bytes/breaker")
	}
}

func TestIdleBreakerStaysSmall(t *testing.T) {
	for trimmed, most := range map[bool]uint64{false: 800, true: 530} {
		if n := heapPer(2000, trimmed); n > most {
			t.Errorf("trimmed: %v: %d bytes for an idle breaker, and an origin has 2 KiB for everything", trimmed, n)
		}
	}
}

func TestAdmitAndSettleAllocateNothing(t *testing.T) {
	for _, outstanding := range []int{1, 2} {
		b := breaker.New(usual())
		tickets := make([]breaker.Ticket, outstanding)
		if n := testing.AllocsPerRun(1000, func() { settleTogether(b, tickets) }); n != 0 {
			t.Errorf("%v allocations with %d outstanding", n, outstanding)
		}
		if n := b.Snapshot(zero).Attempts; int(n) != 1001*outstanding {
			t.Errorf("%d attempts were counted", n)
		}
	}
}

// TestManyGoroutinesMeetOneProbeAtATime is for the race detector, and for the promise under contention.
func TestManyGoroutinesMeetOneProbeAtATime(t *testing.T) {
	c := plain()
	c.OpenBase, c.OpenCap, c.CloseAfter = time.Millisecond, time.Millisecond, 1<<30
	b := breaker.New(c)
	for range 3 {
		attempt(t, b, zero, patient("a"), lost)
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex // protects the fields below
		live   int
		probes int
	)
	now := ms(1)
	for g := range 64 {
		wg.Go(func() {
			for i := range 200 {
				ticket, err := b.Admit(now, patient("a"), 0.5)
				if err != nil {
					continue
				}
				mu.Lock()
				live++
				probes++
				if live > 1 || !ticket.Probe() {
					t.Errorf("%d live, probe: %v", live, ticket.Probe())
				}
				mu.Unlock()
				b.Hint(now)
				b.Snapshot(now)
				mu.Lock()
				live--
				mu.Unlock()
				ticket.Settle(now, []breaker.Result{ok, ignored}[(g+i)%2], 0.5)
			}
		})
	}
	wg.Wait()
	if probes == 0 {
		t.Error("nobody was ever the probe")
	}
	wantState(t, b, now, breaker.HalfOpen)
}
