package deferred_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/store/memory"
)

// charged is the answer of a status probe that says "applied".
var charged = call.Response{Status: 200, Body: []byte("charged")}

// probing is an upstream that loses the answer to the first attempt of a call, and whose status probe says what a test does.
func probing(probe func(ctx context.Context, r *deferred.Record, nth int, lastByte time.Time) deferred.Found) *upstream {
	u := newUpstream(func(_ context.Context, _ *deferred.Record, nth int) call.Final {
		if nth == 1 {
			return lost()
		}
		return good()
	})
	u.probe = probe
	return u
}

func nothing(context.Context, *deferred.Record, int, time.Time) deferred.Found {
	return deferred.Found{}
}

func TestAStatusProbeSettlesWhatIsUnknown(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		found                 deferred.Found
		change                func(*deferred.Record)
		state                 deferred.State
		failure               deferred.Failure
		outcome               call.Outcome
		effect                call.Effect
		reason                call.Reason
		sends, status, probes int
	}{
		{"applied", deferred.Found{Applied: &charged}, nil, deferred.StateCompleted, 0, call.OutcomeSuccess, call.EffectAnswered, call.ReasonSuccess, 1, 200, 3},
		{"not applied", deferred.Found{NotApplied: true}, nil, deferred.StateCompleted, 0, call.OutcomeSuccess, call.EffectAnswered, call.ReasonSuccess, 2, 200, 3},
		{
			"not applied, and no attempt is left",
			deferred.Found{NotApplied: true},
			func(r *deferred.Record) { r.Backoff = time.Second }, deferred.StateFailed,
			deferred.FailureExhausted, call.OutcomeUnknown, call.EffectNone, call.ReasonAttemptsExhausted, 1, 0, 3,
		},
		{
			"not applied, and it is too late",
			deferred.Found{NotApplied: true},
			func(r *deferred.Record) { r.Expire = time.Now().Add(time.Second) }, deferred.StateFailed,
			deferred.FailureExpired, call.OutcomeDeadlineExceeded, call.EffectNone, call.ReasonDeadline, 1, 0, 3,
		},
		{"nothing", deferred.Found{}, nil, deferred.StateUnknown, 0, call.OutcomeUnknown, call.EffectUnknown, call.ReasonNotRepeatable, 1, 0, 14},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := probing(func(_ context.Context, _ *deferred.Record, nth int, _ time.Time) deferred.Found {
				if nth < 3 {
					return deferred.Found{}
				}
				return tt.found
			})
			bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
				t.Helper()
				submit(t, q, "a", "http://a:80", onceOnly, func(r *deferred.Record) {
					if tt.change != nil {
						tt.change(r)
					}
				})
				time.Sleep(30 * time.Minute)
				if tt.state == deferred.StateUnknown {
					time.Sleep(24 * time.Hour)
				}
				r := find(t, q, "a")
				if len(u.asked("a")) != tt.probes || len(u.times("a")) != tt.sends {
					t.Errorf("asked %d times, sent %d times", len(u.asked("a")), len(u.times("a")))
				}
				last := u.times("a")[0]
				for i, at := range u.asked("a") { // a second first, doubled up to a quarter of an hour, half more or less
					mean := min(time.Second<<i, 15*time.Minute)
					if pause := at.Sub(last); pause < mean/2 || pause > mean*3/2 {
						t.Errorf("probe %d after %v", i+1, pause)
					}
					last = at
				}
				status := 0
				if r.Response != nil {
					status = r.Response.Status
				}
				if tt.effect == call.EffectNone && !r.FirstSend.IsZero() {
					t.Errorf("first sent %v", r.FirstSend) // a key would be thought forgotten
				}
				if r.State != tt.state || r.Failure != tt.failure || r.Outcome != tt.outcome || r.Effect != tt.effect || r.Reason != tt.reason || status != tt.status {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

func TestProbesAreToldWhenTheLastByteWasSent(t *testing.T) {
	var told []time.Time
	u := probing(func(_ context.Context, _ *deferred.Record, _ int, lastByte time.Time) deferred.Found {
		told = append(told, lastByte)
		return deferred.Found{}
	})
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewDeferred(nil)
		first := queueOn(s, u)
		first.Run()
		submit(t, first, "a", "http://a:80", onceOnly)
		synctest.Wait()
		ended := time.Now()
		time.Sleep(10 * time.Second)
		first.Close(t.Context())
		q := queueOn(s, u)
		q.Run()
		defer closed(t, q)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(told) < 5 {
			t.Errorf("asked %d times", len(told))
		}
		for _, at := range told {
			if !at.Equal(ended) {
				t.Errorf("told %v, want %v", at, ended)
			}
		}
	})
}

// What cannot be proved in the first hour or two is asked about again when it can be.
func TestProbesGoOnWhenSomethingCanBeProved(t *testing.T) {
	start := time.Time{}
	u := probing(func(_ context.Context, _ *deferred.Record, _ int, lastByte time.Time) deferred.Found {
		provable := lastByte.Add(48 * time.Hour)
		return deferred.Found{Provable: provable, NotApplied: !time.Now().Before(provable)}
	})
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		start = time.Now()
		submit(t, q, "a", "http://a:80", onceOnly)
		time.Sleep(48*time.Hour + time.Minute)
		if r := find(t, q, "a"); r.State != deferred.StateCompleted || len(u.asked("a")) != 15 || len(u.times("a")) != 2 {
			t.Errorf("state %d, asked %d times, sent at %s", r.State, len(u.asked("a")), offsets(start, u.times("a")))
		}
	})
}

func TestWhatNobodyCanAskAboutIsLeft(t *testing.T) {
	u := probing(nil)
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "a", "http://a:80", onceOnly)
		time.Sleep(time.Hour)
		if n := len(u.asked("a")); n != 1 {
			t.Errorf("asked %d times", n)
		}
		if r, err := q.Reconcile(t.Context(), "one", "a"); !errors.Is(err, errNoProbe) || r.State != deferred.StateUnknown {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := q.Reconcile(t.Context(), "two", "a"); !errors.Is(err, deferred.ErrNotFound) {
			t.Errorf("another's: %v", err)
		}
	})
}

func TestReconcileAsksNow(t *testing.T) {
	u := probing(nothing)
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "a", "http://a:80", onceOnly)
		synctest.Wait()
		if r, err := q.Reconcile(t.Context(), "one", "a"); err != nil || r.State != deferred.StateUnknown || len(u.asked("a")) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		u.mu.Lock()
		u.probe = func(context.Context, *deferred.Record, int, time.Time) deferred.Found {
			return deferred.Found{Applied: &charged}
		}
		u.mu.Unlock()
		for range 2 { // the second time there is nothing to ask
			r, err := q.Reconcile(t.Context(), "", "a")
			if err != nil || r.State != deferred.StateCompleted || string(r.Response.Body) != "charged" || !r.Until.Equal(time.Now().Add(time.Hour)) || len(u.asked("a")) != 2 {
				t.Errorf("%+v, %v, asked %d times", r, err, len(u.asked("a")))
			}
		}
		time.Sleep(10 * time.Minute)
		if n := len(u.asked("a")); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

// What a person has done meanwhile stays.
func TestAProbeThatComesLateSettlesNothing(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return lost() })
	u.probe = func(_ context.Context, _ *deferred.Record, nth int, _ time.Time) deferred.Found {
		if nth > 1 {
			return deferred.Found{}
		}
		time.Sleep(10 * time.Second)
		return deferred.Found{NotApplied: true} // of the first attempt; by now there is a second
	}
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "a", "http://a:80", onceOnly)
		time.Sleep(5 * time.Second)
		if n, err := q.Redrive(t.Context(), &deferred.Which{IDs: []string{"a"}}, 0); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		time.Sleep(time.Hour)
		if r := find(t, q, "a"); r.State != deferred.StateUnknown || len(u.times("a")) != 2 {
			t.Errorf("state %d, sent %d times", r.State, len(u.times("a")))
		}
	})
}

func TestWhatWasUnknownAtTheStartIsAskedAbout(t *testing.T) {
	const many = 300 // more than a page
	u := probing(func(context.Context, *deferred.Record, int, time.Time) deferred.Found {
		return deferred.Found{Applied: &charged}
	})
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewDeferred(nil)
		for i := range many {
			r, _, err := s.Submit(t.Context(), &deferred.Record{
				ID: fmt.Sprint(i), Caller: "one", OperationID: fmt.Sprint(i), Origin: "http://a:80", State: deferred.StatePending,
			})
			if err = errors.Join(err, s.Begin(t.Context(), r.Seq, 0, false, time.Now())); err != nil {
				t.Fatal(err)
			}
		}
		q := queueOn(s, u)
		q.Run()
		defer closed(t, q)
		time.Sleep(time.Minute)
		if counts, err := q.Counts(t.Context(), ""); err != nil || counts[deferred.StateCompleted] != many {
			t.Errorf("%v, %v", counts, err)
		}
	})
}

func TestTheEndOfTheBrokerWaitsForNoProbe(t *testing.T) {
	u := probing(func(ctx context.Context, _ *deferred.Record, _ int, _ time.Time) deferred.Found {
		<-ctx.Done()
		return deferred.Found{}
	})
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "asked", "http://a:80", onceOnly)
		time.Sleep(time.Minute)
		submit(t, q, "resting", "http://a:80", onceOnly)
		synctest.Wait()
		start := time.Now()
		q.Close(t.Context())
		if took := time.Since(start); took != 0 || len(u.asked("asked")) != 1 || len(u.asked("resting")) != 0 {
			t.Errorf("took %v, asked %v and %v", took, u.asked("asked"), u.asked("resting"))
		}
	})
}

func TestAFaultOfTheStoreKeepsNobodyFromAsking(t *testing.T) {
	for _, op := range []string{"settle", "find", "list"} {
		for _, fault := range []error{errBroken, errAfter, errHangs} {
			t.Run(fmt.Sprint(op, " ", fault), func(t *testing.T) {
				u := probing(func(context.Context, *deferred.Record, int, time.Time) deferred.Found {
					return deferred.Found{NotApplied: true}
				})
				synctest.Test(t, func(t *testing.T) {
					left := 2
					s := newFaulty(func(what string) error {
						if what != op || left == 0 {
							return nil
						}
						left--
						return fault
					})
					q := queueOn(s, u)
					q.Run()
					defer closed(t, q)
					submit(t, q, "a", "http://a:80", onceOnly)
					time.Sleep(40 * time.Second)
					s.mend()
					if wantState(t, q, "a", deferred.StateCompleted); len(u.times("a")) != 2 {
						t.Errorf("sent %d times", len(u.times("a")))
					}
				})
			})
		}
	}
}
