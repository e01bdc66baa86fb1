package deferred_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/store/memory"
)

// asked is a store that remembers which records it was told to be busy.
type asked struct {
	*memory.Deferred

	mu   sync.Mutex
	busy []map[uint64]bool
	gave []uint64 // twice where it was given twice
}

func (s *asked) Due(ctx context.Context, now time.Time, n int, without map[deferred.Lane]bool, busy map[uint64]bool) ([]deferred.Record, time.Time, error) {
	due, next, err := s.Deferred.Due(ctx, now, n, without, busy)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = append(s.busy, maps.Clone(busy))
	for i := range due {
		s.gave = append(s.gave, due[i].Seq)
	}
	return due, next, err
}

// What was read and waits for room is not read a second time: it would be there twice.
func TestWhatIsReadAndNotBegunIsNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &asked{Deferred: memory.NewDeferred(nil)}
		q := queueOn(s, newUpstream(func(ctx context.Context, _ *deferred.Record, _ int) call.Final { return slow(ctx, 10*time.Second) }))
		const many = 4 // a quarter of eight run at once, as many wait beside them, and the rest would be let go
		for i := range many {
			submit(t, q, fmt.Sprint("a", i), "http://a:80")
		}
		q.Run() // one look finds them all
		defer closed(t, q)
		synctest.Wait()
		submit(t, q, "other", "http://b:80") // has it look again, while two fly and some wait
		synctest.Wait()
		s.mu.Lock()
		last := s.busy[len(s.busy)-1]
		s.mu.Unlock()
		for seq := range uint64(many) {
			if !last[seq+1] {
				t.Errorf("%d may be read again: busy were %v", seq+1, last)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		times := map[uint64]int{}
		for _, seq := range s.gave {
			if times[seq]++; times[seq] > 1 {
				t.Errorf("%d was read %d times: %v, busy were %v", seq, times[seq], s.gave, s.busy)
			}
		}
	})
}
