package hedge_test

import (
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/hedge"
)

// TestManyAtOnce is for the race detector; whatever the order, what is said was learned, and what is known stays known.
func TestManyAtOnce(t *testing.T) {
	h := hedge.New(percentile(95))
	var wg sync.WaitGroup
	start := make(chan struct{})
	for g := range 32 {
		wg.Go(func() {
			<-start
			said := false
			for i := range 300 {
				now := after(time.Duration(i) * 20 * ms)
				h.Learn(now, time.Duration(1+(g+i)%9)*ms)
				h.LearnAtLeast(time.Duration(1+(g*i)%20) * ms)
				got, known := h.After()
				if s := h.Snapshot(); s.Samples > 128 || s.Known != (s.Samples >= 100) || !s.Known && s.Delay != 0 || said && !s.Known {
					t.Errorf("%+v", s)
				}
				if said && !known || known && (got < 1*ms || got > 20*ms || got%ms != 0) {
					t.Errorf("after %v, known: %v", got, known)
				}
				said = known
			}
		})
	}
	close(start)
	wg.Wait()
	if s := h.Snapshot(); s.Samples != 128 {
		t.Errorf("%d samples", s.Samples)
	}
}

func TestFixedDelayIsSafeAtOnce(t *testing.T) {
	h := hedge.New(hedge.Config{Delay: 20 * ms})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				h.Learn(epoch, time.Second)
				h.LearnAtLeast(time.Second)
				if got, known := h.After(); !known || got != 20*ms {
					t.Errorf("after %v, known: %v", got, known)
				}
				h.Snapshot()
			}
		})
	}
	wg.Wait()
}
