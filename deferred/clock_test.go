package deferred_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
)

// The wall clock stepped while the broker was down. What the earlier process wrote is an hour early or late then: it is made when the wall
// clock says, once, and nothing is looked for more often than while nothing is amiss. One whose attempt was cut goes on at once.
func TestAStepOfTheClockBetweenTwoStarts(t *testing.T) {
	for name, step := range map[string]time.Duration{"forward": -time.Hour, "back": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty(nil)
				then := time.Now().Add(step) // the wall clock of the earlier process
				for _, id := range []string{"waits", "cut"} {
					r := &deferred.Record{
						ID: id, Caller: "one", OperationID: id, Origin: "http://a:80", State: deferred.StatePending, MaxRetries: 5, Backoff: time.Second,
						Created: then, Updated: then, NextAttempt: then.Add(10 * time.Minute), Expire: then.Add(24 * time.Hour),
					}
					kept, _, err := s.Submit(t.Context(), r)
					if err != nil {
						t.Fatal(err)
					}
					if id == "cut" {
						if err := s.Begin(t.Context(), kept.Seq, 0, true, then); err != nil {
							t.Fatal(err)
						}
					}
				}
				start := time.Now()
				u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() })
				q := queueOn(s, u)
				q.Run()
				defer closed(t, q)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				want := max(0, step+10*time.Minute)
				if got := offsets(start, u.times("waits")); got != offsets(start, []time.Time{start.Add(want)}) {
					t.Errorf("it waited until %s, want %s", got, want)
				}
				if got := offsets(start, u.times("cut")); got != "[0s]" {
					t.Errorf("the one that was cut was made at %s", got)
				}
				const most = 2*60 + 10 // one a minute, and one for each that happens
				if n := s.count("due"); n > most {
					t.Errorf("the store was looked into %d times", n)
				}
			})
		})
	}
}
