package bulkhead_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/bulkhead"
)

// enter waits as a runner does: for the slot or the waiter's deadline. It gives the slot and how long that took.
func enter(b *bulkhead.Bulkhead, caller string, c bulkhead.Criticality, remaining time.Duration) (bulkhead.Slot, time.Duration) {
	start := time.Now()
	slot, w, err := b.Enter(start, caller, c, remaining)
	if w == nil || err != nil {
		return slot, time.Since(start)
	}
	timer := time.NewTimer(time.Until(w.Deadline))
	defer timer.Stop()
	select {
	case <-w.C:
		slot, _ = w.Slot()
	case <-timer.C:
		w.Leave()
	}
	return slot, time.Since(start)
}

func TestWaiterGetsTheSlotWhenItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{MaxInFlight: 1, MaxPending: 10, PendingWait: time.Second})
		first := slotOf(t, b, "a")
		var wg sync.WaitGroup
		wg.Go(func() {
			slot, waited := enter(b, "b", bulkhead.Normal, long)
			if slot == (bulkhead.Slot{}) || waited != 300*time.Millisecond {
				t.Errorf("slot %v after %v, want one after 300ms", slot, waited)
			}
			slot.Release()
		})
		time.Sleep(300 * time.Millisecond)
		first.Release()
		wg.Wait()
		wantState(t, b, 0, 0)
	})
}

func TestWaitEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bulkhead.New(bulkhead.Config{MaxInFlight: 1, MaxPending: 10, PendingWait: time.Second})
		first := slotOf(t, b, "a")
		for remaining, want := range map[time.Duration]time.Duration{time.Hour: time.Second, 900 * time.Millisecond: 90 * time.Millisecond} {
			if slot, waited := enter(b, "b", bulkhead.Critical, remaining); slot != (bulkhead.Slot{}) || waited != want {
				t.Errorf("slot %v after %v, want none after %v", slot, waited, want)
			}
		}
		first.Release()
		wantState(t, b, 0, 0)
	})
}

// TestGrantAndDeadlineInTheSameInstant: whichever the runner sees first, the slot is somebody's.
func TestGrantAndDeadlineInTheSameInstant(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			b := bulkhead.New(bulkhead.Config{MaxInFlight: 1, MaxPending: 10, PendingWait: 100 * time.Millisecond})
			first := slotOf(t, b, "a")
			var wg sync.WaitGroup
			var served atomic.Int32
			for i := range 5 {
				wg.Go(func() {
					if slot, _ := enter(b, fmt.Sprint(i), bulkhead.Critical, long); slot != (bulkhead.Slot{}) {
						served.Add(1)
						slot.Release()
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
			first.Release()
			wg.Wait()
			wantState(t, b, 0, 0)
			if s := b.Snapshot().Totals; s.Granted+s.Left < 5 || uint64(served.Load())+s.Left != 5 {
				t.Errorf("%d served of 5, %+v", served.Load(), s)
			}
		})
	}
}

// TestStormKeepsTheLimit: on a virtual clock, 200 callers at once; never more than the limit run, none is forgotten, and every one
// that was served waited no longer than it may.
func TestStormKeepsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4
		b := bulkhead.New(bulkhead.Config{MaxInFlight: limit, MaxPending: 100, PendingWait: 150 * time.Millisecond})
		var running, served, refused atomic.Int32
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				slot, waited := enter(b, fmt.Sprint(i%7), bulkhead.Criticality(i%3+1), long)
				if slot == (bulkhead.Slot{}) {
					refused.Add(1)
					return
				}
				if waited > 150*time.Millisecond {
					t.Errorf("served after %v", waited)
				}
				if n := running.Add(1); n > limit {
					t.Errorf("%d run at once", n)
				}
				time.Sleep(20 * time.Millisecond)
				running.Add(-1)
				served.Add(1)
				slot.Release()
			})
		}
		wg.Wait()
		wantState(t, b, 0, 0)
		// Slots are free at 0, 20, … 140 ms: eight times four.
		if served.Load() != 32 || refused.Load() != 168 {
			t.Errorf("%d served, %d not; want 32 and 168", served.Load(), refused.Load())
		}
	})
}

// TestManyAtOnceLoseNoSlot is for the race detector: real goroutines, no clock.
func TestManyAtOnceLoseNoSlot(t *testing.T) {
	const limit = 3
	b := bulkhead.New(limits(limit, 20))
	var running atomic.Int32
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for n := range 300 {
				slot, w, err := b.Enter(epoch, fmt.Sprint(i%5), bulkhead.Criticality(n%3+1), long)
				if err != nil {
					continue
				}
				if w != nil {
					if n%4 == 0 { // goes at once, whether granted or not
						w.Leave()
						continue
					}
					<-w.C
					if n%5 == 0 { // goes, though granted
						w.Leave()
						continue
					}
					slot, _ = w.Slot()
				}
				if now := running.Add(1); now > limit+1 { // the limit is 4 at times
					t.Errorf("%d run at once", now)
				}
				running.Add(-1)
				if !slot.Release() || slot.Release() {
					t.Error("want one release")
				}
				if i == 0 {
					b.SetLimit(uint32(limit + n%2))
				}
			}
		})
	}
	wg.Wait()
	wantState(t, b, 0, 0)
}
