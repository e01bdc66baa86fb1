package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
)

func deferredKeeping() []deferredPromise {
	return []deferredPromise{
		{"what was sending when the broker ended is judged", recovers},
		{"what waits is cancelled, and nothing else", cancels},
		{"dead letters are due again, at a rate", redrives},
		{"what is finished is purged, and nothing else", purges},
		{"what waits beyond its end is given up, and what outlived its time goes", expires},
	}
}

func recovers(t *testing.T, s Calls) {
	again := sending(t, s, storedCall(t, s, submitted("repeatable", 1)), true, 2)
	once := sending(t, s, storedCall(t, s, submitted("not", 1)), false, 2)
	pending := storedCall(t, s, submitted("pending", 1))
	second := sending(t, s, storedCall(t, s, submitted("second", 1)), true, 2)
	second.State, second.NextAttempt, second.Spent = deferred.StateRetrying, at(3), 1
	second = sending(t, s, wroteEnd(t, s, second, made(1, 2)), false, 4)
	done := finishedCall(t, s, "done", deferred.StateCompleted)
	for round, n := range []int{3, 0} {
		if got, err := s.Recover(t.Context(), at(50+round)); err != nil || got != n {
			t.Errorf("round %d: %d, %v; want %d", round, got, err, n)
		}
		for _, r := range []deferred.Record{again, once, second} {
			want, attempt := deferred.Orphaned(&r, at(50))
			want.Attempts = append(want.Attempts, attempt)
			want.Tried = uint32(len(want.Attempts))
			standsCall(t, s, want)
			if want.PossibleDuplicate != r.Repeatable || want.Effect != call.EffectUnknown {
				t.Errorf("%s: %+v", r.ID, want)
			}
		}
		standsCall(t, s, pending)
		standsCall(t, s, done)
	}
	countsAre(t, s, caller, map[deferred.State]uint64{
		deferred.StateRetrying: 1, deferred.StateUnknown: 2, deferred.StatePending: 1, deferred.StateCompleted: 1,
	})
	now := due(t, s, 50, 9, nil, nil)
	slices.Sort(now)
	equal(t, "due at once", now, []string{"pending", "repeatable"})
}

func cancels(t *testing.T, s Calls) {
	r := storedCall(t, s, submitted("a", 1))
	if _, err := s.Cancel(t.Context(), "another", r.ID, at(2), at(3)); !errors.Is(err, deferred.ErrNotFound) {
		t.Errorf("by another: %v", err)
	}
	standsCall(t, s, r)
	got, err := s.Cancel(t.Context(), caller, r.ID, at(2), at(3))
	r.State, r.NextAttempt, r.Updated, r.Ended, r.Until = deferred.StateCancelled, time.Time{}, at(2), at(2), at(3)
	r.Outcome, r.Effect, r.Reason = call.OutcomeCancelled, call.EffectNone, call.ReasonCancelled
	if err != nil {
		t.Error(err)
	}
	equal(t, "cancelled", plainCall(got), plainCall(r))
	standsCall(t, s, r)
	equal(t, "due", due(t, s, 9, 9, nil, nil), []string{})
	sends := sending(t, s, storedCall(t, s, submitted("b", 1)), true, 2)
	if _, err := s.Cancel(t.Context(), caller, sends.ID, at(3), at(4)); !errors.Is(err, deferred.ErrSending) {
		t.Errorf("sending: %v", err)
	}
	standsCall(t, s, sends)
	for i, state := range []deferred.State{deferred.StateCompleted, deferred.StateFailed, deferred.StateUnknown, deferred.StateCancelled} {
		r := finishedCall(t, s, fmt.Sprint(i), state)
		if _, err := s.Cancel(t.Context(), caller, r.ID, at(3), at(4)); !errors.Is(err, deferred.ErrFinished) {
			t.Errorf("state %d: %v", state, err)
		}
		standsCall(t, s, r)
	}
}

func named(ids ...string) *deferred.Which {
	return &deferred.Which{Filter: deferred.Filter{Caller: caller}, IDs: append([]string{}, ids...)}
}

func redrives(t *testing.T, s Calls) {
	failed, unknown := finishedCall(t, s, "failed", deferred.StateFailed), finishedCall(t, s, "unknown", deferred.StateUnknown)
	done, pending := finishedCall(t, s, "done", deferred.StateCompleted), storedCall(t, s, submitted("pending", 99))
	theirs := submitted("theirs", 1)
	theirs.Caller = "another"
	dead := wroteEnd(t, s, ends(storedCall(t, s, theirs), deferred.StateFailed, 2))
	every := []*deferred.Record{&failed, &unknown, &done, &pending, &dead}
	same := func() {
		t.Helper()
		for _, r := range every {
			standsCall(t, s, *r)
		}
	}
	for what, one := range map[string]struct {
		which *deferred.Which
		err   error
	}{
		"one is completed": {named(failed.ID, done.ID), deferred.ErrState},
		"one waits":        {named(pending.ID, failed.ID), deferred.ErrState},
		"one is not there": {named(failed.ID, "id-none"), deferred.ErrNotFound},
		"one is another's": {named(failed.ID, dead.ID), deferred.ErrNotFound},
	} {
		if n, err := s.Redrive(t.Context(), one.which, 1, at(10)); n != 0 || !errors.Is(err, one.err) {
			t.Errorf("%s: %d, %v", what, n, err)
		}
		same()
	}
	if n, err := s.Redrive(t.Context(), named(), 1, at(10)); n != 0 || err != nil {
		t.Errorf("none is named: %d, %v", n, err)
	}
	if n, err := s.Redrive(t.Context(), named(unknown.ID, failed.ID, unknown.ID), 4, at(10)); n != 2 || err != nil {
		t.Errorf("two are named: %d, %v", n, err)
	}
	failed, unknown = failed.Redriven(at(10), at(10)), unknown.Redriven(at(10), at(10).Add(time.Second/4))
	same()
	equal(t, "due", due(t, s, 10, 9, nil, nil), []string{"failed"})
	// By a filter: the oldest first, and what does not fit is left alone.
	failed = wroteEnd(t, s, ends(sending(t, s, failed, true, 11), deferred.StateFailed, 12), made(2, 11))
	n, err := s.Redrive(t.Context(), &deferred.Which{}, 0.5, at(20))
	if n != 2 || err != nil {
		t.Errorf("by a filter: %d, %v", n, err)
	}
	failed, dead = failed.Redriven(at(20), at(20)), dead.Redriven(at(20), at(20).Add(2*time.Second))
	same()
	if n, err := s.Redrive(t.Context(), &deferred.Which{Filter: deferred.Filter{State: deferred.StateCompleted}}, 1, at(20)); n != 0 || err != nil {
		t.Errorf("completed ones: %d, %v", n, err)
	}
	same()
	// Many, over more than a piece.
	const many = 1100
	sideBySide(func(i int) {
		for n := i; n < many; n += together {
			r := submitted(fmt.Sprint("m", n), 1)
			r.Caller = "many"
			r.State, r.Failure, r.NextAttempt, r.Ended = deferred.StateFailed, deferred.FailureExhausted, time.Time{}, at(2)
			if _, _, err := s.Submit(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	})
	n, err = s.Redrive(t.Context(), &deferred.Which{Filter: deferred.Filter{Caller: "many"}}, 1000, at(30))
	if n != many || err != nil {
		t.Errorf("many: %d, %v", n, err)
	}
	all, _, err := s.Due(t.Context(), at(30).Add(549*time.Millisecond), 10_000, nil, nil)
	waits := 0
	for _, r := range all {
		if r.Caller == "many" {
			waits++
		}
	}
	if err != nil || waits != 550 {
		t.Errorf("%d are due after 549 ms at 1000 a second, want 550: %v", waits, err)
	}
}

func purges(t *testing.T, s Calls) {
	var every []deferred.Record
	for i, state := range []deferred.State{deferred.StateCompleted, deferred.StateFailed, deferred.StateUnknown, deferred.StateCancelled} {
		every = append(every, finishedCall(t, s, fmt.Sprint(i), state))
	}
	pending, sends := storedCall(t, s, submitted("pending", 1)), sending(t, s, storedCall(t, s, submitted("sends", 1)), true, 2)
	for what, one := range map[string]struct {
		which *deferred.Which
		err   error
	}{
		"one waits":        {named(every[0].ID, pending.ID), deferred.ErrState},
		"one is sending":   {named(every[0].ID, sends.ID), deferred.ErrState},
		"one is not there": {named(every[0].ID, "id-none"), deferred.ErrNotFound},
	} {
		if n, err := s.Purge(t.Context(), one.which); n != 0 || !errors.Is(err, one.err) {
			t.Errorf("%s: %d, %v", what, n, err)
		}
		standsCall(t, s, every[0])
	}
	if n, err := s.Purge(t.Context(), named(every[0].ID, every[2].ID)); n != 2 || err != nil {
		t.Errorf("two are named: %d, %v", n, err)
	}
	goneCall(t, s, caller, every[0].ID)
	goneCall(t, s, caller, every[2].ID)
	standsCall(t, s, every[1])
	if n, err := s.Purge(t.Context(), &deferred.Which{Filter: deferred.Filter{Caller: "another"}}); n != 0 || err != nil {
		t.Errorf("another's: %d, %v", n, err)
	}
	if n, err := s.Purge(t.Context(), &deferred.Which{Filter: deferred.Filter{Caller: caller}}); n != 2 || err != nil {
		t.Errorf("by a filter: %d, %v", n, err)
	}
	standsCall(t, s, pending)
	standsCall(t, s, sends)
	equal(t, "what is left", listedCalls(t, s, deferred.Filter{}, 0, 9), []uint64{sends.Seq, pending.Seq})
}

// expired does what there is to do at an instant, and gives the next.
func expired(t testing.TB, s Calls, n int) time.Time {
	t.Helper()
	for {
		next, more, err := s.Expire(t.Context(), at(n))
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return next
		}
	}
}

func expires(t *testing.T, s Calls) {
	next := func(n int, want time.Time) {
		t.Helper()
		if got := expired(t, s, n); !got.Equal(want) {
			t.Errorf("after %d the next is %v, want %v", n, got, want)
		}
	}
	next(1, time.Time{})
	limited := func(id string, n int) deferred.Record {
		r := submitted(id, 1)
		r.Expire = at(n)
		return storedCall(t, s, r)
	}
	pending, later, endless := limited("pending", 10), limited("later", 12), storedCall(t, s, submitted("endless", 1))
	sends := sending(t, s, limited("sends", 10), true, 2)
	keeps := ends(sending(t, s, storedCall(t, s, submitted("keeps", 1)), true, 2), deferred.StateCompleted, 3)
	keeps.Until = at(11)
	keeps = wroteEnd(t, s, keeps)
	dead := finishedCall(t, s, "dead", deferred.StateFailed) // stays until it is purged
	every := []*deferred.Record{&pending, &later, &endless, &sends, &keeps, &dead}
	same := func() {
		t.Helper()
		for _, r := range every {
			standsCall(t, s, *r)
		}
	}
	next(9, at(10))
	same()
	next(10, at(11))
	pending = pending.Expired(at(10))
	same()
	next(11, at(12))
	goneCall(t, s, caller, keeps.ID)
	every = slices.DeleteFunc(every, func(r *deferred.Record) bool { return r == &keeps })
	same()
	next(12, time.Time{})
	later = later.Expired(at(12))
	same()
	equal(t, "due", due(t, s, 20, 9, nil, nil), []string{"endless"})
	const many = 1100
	sideBySide(func(i int) {
		for n := i; n < many; n += together {
			r := submitted(fmt.Sprint("m", n), 1)
			r.Caller, r.Expire = "many", at(20)
			if n%2 == 0 {
				r.State, r.NextAttempt, r.Until = deferred.StateCompleted, time.Time{}, at(20)
			}
			if _, _, err := s.Submit(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	})
	next(20, time.Time{})
	countsAre(t, s, "many", map[deferred.State]uint64{deferred.StateFailed: many / 2})
}
