package deferred_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/store/memory"
)

// mutable is an upstream whose policy may come to forbid what it allowed, and that loses every answer.
func mutable(strict *atomic.Bool, ofLast call.Final) *upstream {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return ofLast })
	u.terms = func(r *deferred.Record) (deferred.Terms, error) {
		t := usual(r)
		t.Repeatable = !strict.Load()
		return t, nil
	}
	return u
}

func TestWhatPoliciesForbidMeanwhileIsNotRepeated(t *testing.T) {
	for name, last := range map[string]call.Final{"without an answer": lost(), "with one that says nothing": busy()} {
		t.Run(name, func(t *testing.T) {
			strict := &atomic.Bool{}
			u := mutable(strict, last)
			bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
				t.Helper()
				submit(t, q, "a", "http://a:80")
				synctest.Wait()
				wantState(t, q, "a", deferred.StateRetrying)
				strict.Store(true)
				time.Sleep(24 * time.Hour)
				r := wantState(t, q, "a", deferred.StateUnknown)
				if n := len(u.times("a")); n != 1 || r.Effect != call.EffectUnknown || r.Reason != call.ReasonNotRepeatable || r.PossibleDuplicate || r.Detail == "" {
					t.Fatalf("sent %d times: %+v", n, r)
				}
				// Somebody decides that it is sent all the same: once.
				if n, err := q.Redrive(t.Context(), &deferred.Which{IDs: []string{"a"}}, 10); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				time.Sleep(24 * time.Hour)
				if r = wantState(t, q, "a", deferred.StateUnknown); len(u.times("a")) != 2 || !r.PossibleDuplicate {
					t.Fatalf("sent %d times: %+v", len(u.times("a")), r)
				}
			})
		})
	}
}

func TestADeadLetterThatPoliciesForbidMeanwhileIsUnknown(t *testing.T) {
	strict := &atomic.Bool{}
	u := mutable(strict, busy())
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "a", "http://a:80", func(r *deferred.Record) { r.MaxRetries, r.Backoff = 1, time.Second })
		time.Sleep(time.Hour)
		wantState(t, q, "a", deferred.StateFailed)
		strict.Store(true)
		if n, err := q.Redrive(t.Context(), &deferred.Which{Filter: deferred.Filter{Caller: "one", State: deferred.StateFailed}}, 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(time.Hour)
		if wantState(t, q, "a", deferred.StateUnknown); len(u.times("a")) != 2 {
			t.Fatalf("sent %d times", len(u.times("a")))
		}
	})
}

func TestWhatACrashCutIsNotRepeatedWherePoliciesForbidItMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(nil)
		strict := &atomic.Bool{}
		u := mutable(strict, lost())
		q := queueOn(s, u)
		q.Run()
		s.fault = func(op string) error { // it dies before it writes what became of the attempt
			if op == "end" {
				return errBroken
			}
			return nil
		}
		submit(t, q, "a", "http://a:80")
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		q.Close(ended)
		s.mend()
		strict.Store(true)
		again := queueOn(s, u)
		again.Run()
		defer closed(t, again)
		time.Sleep(24 * time.Hour)
		r, err := again.Find(t.Context(), "", "a")
		if err != nil || r.State != deferred.StateUnknown || len(u.times("a")) != 1 {
			t.Fatalf("sent %d times: %+v, %v", len(u.times("a")), r, err)
		}
	})
}
