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

func TestRetriedUntilItSucceeds(t *testing.T) {
	u := newUpstream(func(_ context.Context, _ *deferred.Record, nth int) call.Final {
		if nth < 4 {
			return busy()
		}
		return good()
	})
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		time.Sleep(17 * time.Second) // idle
		start := time.Now()
		submit(t, q, "a", "http://a:80")
		synctest.Wait()
		if r := wantState(t, q, "a", deferred.StateRetrying); !r.NextAttempt.Equal(start.Add(time.Second)) {
			t.Fatalf("due %v", r.NextAttempt)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := offsets(start, u.times("a")); got != "[0s 1s 3s 6s]" {
			t.Fatalf("attempts at %s", got)
		}
		r := wantState(t, q, "a", deferred.StateCompleted)
		if !r.PossibleDuplicate || r.Spent != 4 || r.Response.Status != 200 || !r.Ended.Equal(start.Add(6*time.Second)) || r.Tried != 4 {
			t.Fatalf("%+v", r)
		}
		for i, a := range r.Attempts {
			kind, decision := call.KindRetry, call.Decision{Verdict: call.VerdictRetry, Reason: call.ReasonStatusRetryable, Wait: time.Duration(i+1) * time.Second}
			if i == 0 {
				kind = call.KindPrimary
			}
			if i == 3 {
				decision = call.Decision{Verdict: call.VerdictStop, Reason: call.ReasonSuccess}
			}
			if a.Number != uint32(i+1) || a.Kind != kind || a.Decision != decision || a.Waited != time.Duration(i)*time.Second || a.Offset != u.times("a")[i].Sub(start) {
				t.Errorf("attempt %d: %+v", i, a)
			}
		}
		time.Sleep(2 * time.Hour) // its retention is over
		if _, err := q.Find(t.Context(), "one", "a"); !errors.Is(err, deferred.ErrNotFound) {
			t.Fatal(err)
		}
	})
}

func TestExhaustedIsADeadLetter(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return busy() })
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "a", "http://a:80", func(r *deferred.Record) { r.MaxRetries, r.Backoff = 2, time.Second })
		time.Sleep(time.Hour)
		r := wantState(t, q, "a", deferred.StateFailed)
		if r.Failure != deferred.FailureExhausted || len(r.Attempts) != 3 {
			t.Fatalf("%+v", r)
		}
		if n, err := q.Redrive(t.Context(), &deferred.Which{IDs: []string{"a"}}, 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(time.Hour)
		if r = wantState(t, q, "a", deferred.StateFailed); len(r.Attempts) != 6 || r.Attempts[3].Kind != call.KindRetry || r.Attempts[5].Number != 6 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestOnceOnlyIsParked(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return lost() })
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "a", "http://a:80", onceOnly)
		time.Sleep(24 * time.Hour)
		if r := wantState(t, q, "a", deferred.StateUnknown); len(u.times("a")) != 1 || r.PossibleDuplicate {
			t.Fatalf("%+v", r)
		}
	})
}

func TestExpiredAtItsEndAndNotAtTheNextAttempt(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return busy() })
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		start := time.Now()
		end := start.Add(2500 * time.Millisecond)
		submit(t, q, "a", "http://a:80", func(r *deferred.Record) { r.Expire = end })
		time.Sleep(2500*time.Millisecond - 1)
		synctest.Wait()
		wantState(t, q, "a", deferred.StateRetrying)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		r := wantState(t, q, "a", deferred.StateFailed)
		if r.Failure != deferred.FailureExpired || !r.Ended.Equal(end) {
			t.Fatalf("%+v", r)
		}
		time.Sleep(time.Hour)
		if got := offsets(start, u.times("a")); got != "[0s 1s]" {
			t.Fatalf("attempts at %s", got)
		}
	})
}

func TestNotBefore(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() })
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		start := time.Now()
		for i, d := range []time.Duration{90 * time.Second, 7 * time.Second, 24 * time.Hour} {
			submit(t, q, fmt.Sprint(i), "http://a:80", func(r *deferred.Record) { r.NotBefore = start.Add(d) })
		}
		time.Sleep(25 * time.Hour)
		for i, want := range []string{"[1m30s]", "[7s]", "[24h0m0s]"} {
			if got := offsets(start, u.times(fmt.Sprint(i))); got != want {
				t.Errorf("attempts at %s, want %s", got, want)
			}
		}
	})
}

func TestIdleCostsALookAMinute(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() })
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(nil)
		q := queueOn(s, u)
		q.Run()
		defer closed(t, q)
		for i := range 500 {
			submit(t, q, fmt.Sprint(i), "http://a:80", func(r *deferred.Record) { r.NotBefore = time.Now().Add(24 * time.Hour) })
		}
		synctest.Wait()
		due, expire := s.count("due"), s.count("expire")
		time.Sleep(time.Hour)
		if d, e := s.count("due")-due, s.count("expire")-expire; d > 60 || e > 60 || due > 3 || expire > 3 {
			t.Errorf("%d and %d looks in an hour, %d and %d before", d, e, due, expire)
		}
		time.Sleep(23*time.Hour - 1)
		due = s.count("due")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if d := s.count("due") - due; d > 300 { // of 500 calls, two are under way and two wait behind them
			t.Errorf("%d reads", d)
		}
		if counts, err := q.Counts(t.Context(), "one"); counts[deferred.StateCompleted] != 500 || err != nil {
			t.Errorf("%v %v", counts, err)
		}
		q.Close(t.Context())
	})
}

func TestOneOriginHasAShare(t *testing.T) {
	u := newUpstream(func(ctx context.Context, r *deferred.Record, _ int) call.Final {
		if r.Origin == "http://slow:80" {
			return slow(ctx, 10*time.Second)
		}
		return good()
	})
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		start := time.Now()
		for i := range 300 {
			submit(t, q, fmt.Sprint("slow", i), "http://slow:80")
		}
		for i := range 20 {
			submit(t, q, fmt.Sprint("fast", i), "http://fast:80")
		}
		synctest.Wait()
		for i := range 20 {
			if got := offsets(start, u.times(fmt.Sprint("fast", i))); got != "[0s]" {
				t.Fatalf("call %d to the fast one at %s", i, got)
			}
		}
		if most := u.mostAtOnce(); most != 2 { // a quarter of eight
			t.Fatalf("%d at one origin at once", most)
		}
		time.Sleep(1500 * time.Second)
		synctest.Wait()
		for i := range 300 {
			wantState(t, q, fmt.Sprint("slow", i), deferred.StateCompleted)
		}
	})
}

func TestCallersTakeTurns(t *testing.T) {
	var order []string
	u := newUpstream(func(ctx context.Context, r *deferred.Record, _ int) call.Final {
		order = append(order, r.Caller)
		return slow(ctx, time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewDeferred(nil)
		q := deferred.New(deferred.Config{Store: s, Keeper: s, Dispatcher: u, Log: nil, AtOnce: 1})
		for i := range 50 {
			submit(t, q, fmt.Sprint("many", i), "http://a:80", func(r *deferred.Record) { r.Caller = "many" })
		}
		submit(t, q, "few", "http://a:80", func(r *deferred.Record) { r.Caller = "few" })
		q.Run()
		defer closed(t, q)
		time.Sleep(time.Minute)
		synctest.Wait()
		if order[0] != "few" && order[1] != "few" {
			t.Errorf("%v", order)
		}
		q.Close(t.Context())
	})
}

func TestAQuietOriginIsLeftAlone(t *testing.T) {
	u := newUpstream(nil)
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		start := time.Now()
		u.do = func(_ context.Context, r *deferred.Record, _ int) call.Final {
			if left := time.Until(start.Add(30 * time.Second)); left > 0 && r.Origin == "http://down:80" {
				return refusal(call.OutcomeBreakerOpen, left)
			}
			return good()
		}
		for i := range 50 {
			submit(t, q, fmt.Sprint(i), "http://down:80", func(r *deferred.Record) { r.Caller = fmt.Sprint("caller", i%3) })
		}
		submit(t, q, "up", "http://up:80")
		time.Sleep(30*time.Second - 1)
		asked := 0
		for i := range 50 {
			r := wantState(t, q, fmt.Sprint(i), deferred.StatePending)
			asked += len(u.times(fmt.Sprint(i)))
			if r.Spent != 0 || len(r.Attempts) != 0 {
				t.Fatalf("%+v", r)
			}
		}
		if asked > 2 {
			t.Fatalf("%d asked at an open breaker", asked)
		}
		wantState(t, q, "up", deferred.StateCompleted)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		for i := range 50 {
			wantState(t, q, fmt.Sprint(i), deferred.StateCompleted)
		}
	})
}

func TestAHoldParksNobodyElse(t *testing.T) {
	u := newUpstream(func(_ context.Context, r *deferred.Record, nth int) call.Final {
		if r.Caller == "held" && nth == 1 {
			return refusal(call.OutcomeThrottled, time.Hour)
		}
		return good()
	})
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		for i := range 20 {
			submit(t, q, fmt.Sprint("held", i), "http://a:80", func(r *deferred.Record) { r.Caller = "held" })
			submit(t, q, fmt.Sprint("other", i), "http://a:80")
		}
		time.Sleep(time.Hour - 1)
		asked := 0
		for i := range 20 {
			asked += len(u.times(fmt.Sprint("held", i)))
			wantState(t, q, fmt.Sprint("other", i), deferred.StateCompleted)
		}
		if asked > 2 {
			t.Fatalf("%d asked during a hold", asked)
		}
	})
}

func TestAPanicIsOneCalls(t *testing.T) {
	u := newUpstream(func(_ context.Context, r *deferred.Record, nth int) call.Final {
		if r.Origin == "http://bad:80" && nth == 1 {
			panic("a bug")
		}
		return good()
	})
	judged := 0
	u.terms = func(r *deferred.Record) (deferred.Terms, error) {
		switch {
		case r.ID == "judged":
			if judged++; judged == 1 {
				panic("another")
			}
		case r.ID == "invalid":
			return deferred.Terms{}, errors.New("no such method")
		}
		return usual(r), nil
	}
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		start := time.Now()
		submit(t, q, "again", "http://bad:80")
		submit(t, q, "once", "http://bad:80", onceOnly)
		submit(t, q, "judged", "http://a:80")
		submit(t, q, "invalid", "http://a:80")
		submit(t, q, "fine", "http://a:80")
		synctest.Wait()
		wantState(t, q, "fine", deferred.StateCompleted)
		if r := wantState(t, q, "once", deferred.StateUnknown); len(r.Attempts) != 1 || r.Effect != call.EffectUnknown || r.FirstSend.IsZero() {
			t.Errorf("%+v", r)
		}
		if r := wantState(t, q, "invalid", deferred.StateFailed); r.Failure != deferred.FailurePermanent || r.Detail != "no such method" {
			t.Errorf("%+v", r)
		}
		time.Sleep(2 * time.Minute)
		if r := wantState(t, q, "again", deferred.StateCompleted); !r.PossibleDuplicate || len(r.Attempts) != 2 {
			t.Errorf("%+v", r)
		}
		wantState(t, q, "judged", deferred.StateCompleted)
		if got := offsets(start, u.times("judged")); got != "[1m0s]" {
			t.Errorf("attempts at %s", got)
		}
	})
}

func TestCancel(t *testing.T) {
	u := newUpstream(func(ctx context.Context, r *deferred.Record, _ int) call.Final {
		if r.ID == "deaf" {
			time.Sleep(5 * time.Second)
			return good()
		}
		return slow(ctx, time.Hour)
	})
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		for _, id := range []string{"sending", "deaf"} {
			submit(t, q, id, "http://a:80", onceOnly)
		}
		submit(t, q, "waiting", "http://a:80", func(r *deferred.Record) { r.NotBefore = time.Now().Add(time.Hour) })
		synctest.Wait()
		start := time.Now()
		r, err := q.Cancel(t.Context(), "one", "sending")
		if err != nil || r.State != deferred.StateCancelled || r.Effect != call.EffectUnknown || time.Since(start) != time.Second {
			t.Fatalf("after %v: %v %+v", time.Since(start), err, r)
		}
		if r, err = q.Cancel(t.Context(), "one", "waiting"); err != nil || r.State != deferred.StateCancelled || time.Since(start) != time.Second {
			t.Fatalf("%v %+v", err, r)
		}
		if !r.Until.Equal(time.Now().Add(time.Hour)) {
			t.Fatalf("kept until %v", r.Until)
		}
		if _, err = q.Cancel(t.Context(), "one", "waiting"); !errors.Is(err, deferred.ErrFinished) {
			t.Fatal(err)
		}
		if _, err = q.Cancel(t.Context(), "other", "deaf"); !errors.Is(err, deferred.ErrNotFound) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = q.Cancel(ctx, "one", "deaf"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Fatal(err, time.Since(start))
		}
		if _, err = q.Cancel(t.Context(), "one", "deaf"); !errors.Is(err, deferred.ErrFinished) || time.Since(start) != 5*time.Second {
			t.Fatal(err, time.Since(start))
		}
		wantState(t, q, "deaf", deferred.StateCompleted)
	})
}

func TestCloseLetsAttemptsFinish(t *testing.T) {
	u := newUpstream(func(ctx context.Context, _ *deferred.Record, _ int) call.Final { return slow(ctx, 10*time.Second) })
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewDeferred(nil)
		q := queueOn(s, u)
		q.Run()
		defer closed(t, q)
		for i := range 5 {
			submit(t, q, fmt.Sprint(i), "http://a:80", onceOnly)
		}
		synctest.Wait()
		start := time.Now()
		q.Close(t.Context())
		if time.Since(start) != 10*time.Second {
			t.Errorf("closed after %v", time.Since(start))
		}
		for i := range 5 {
			want := deferred.StateCompleted
			if i > 1 {
				want = deferred.StatePending
			}
			wantState(t, q, fmt.Sprint(i), want)
		}
	})
}

func TestCloseCutsWhatTakesTooLong(t *testing.T) {
	u := newUpstream(func(ctx context.Context, _ *deferred.Record, nth int) call.Final {
		if nth > 1 {
			return good()
		}
		return slow(ctx, time.Hour)
	})
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewDeferred(nil)
		q := queueOn(s, u)
		q.Run()
		defer closed(t, q)
		submit(t, q, "again", "http://a:80")
		submit(t, q, "once", "http://a:80", onceOnly)
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		q.Close(ctx)
		if time.Since(start) != 31*time.Second {
			t.Errorf("closed after %v", time.Since(start))
		}
		wantState(t, q, "once", deferred.StateUnknown)
		wantState(t, q, "again", deferred.StateRetrying)
		q = queueOn(s, u)
		q.Run()
		defer closed(t, q)
		synctest.Wait()
		if r := wantState(t, q, "again", deferred.StateCompleted); !r.PossibleDuplicate || len(r.Attempts) != 2 {
			t.Errorf("%+v", r)
		}
		wantState(t, q, "once", deferred.StateUnknown)
		q.Close(t.Context())
	})
}

func TestAHandedOverCallGoesOnWithItsAttempts(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() })
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "a", "http://a:80", func(r *deferred.Record) {
			r.Attempts = []call.Attempt{{Number: 1, Kind: call.KindPrimary}, {Number: 2, Kind: call.KindRetry}}
			r.Effect, r.FirstSend = call.EffectUnknown, time.Now()
		})
		synctest.Wait()
		r := wantState(t, q, "a", deferred.StateCompleted)
		if len(r.Attempts) != 3 || r.Attempts[2].Number != 3 || r.Attempts[2].Kind != call.KindRetry || !r.PossibleDuplicate {
			t.Fatalf("%+v", r)
		}
	})
}
