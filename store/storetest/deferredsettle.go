package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/operation"
)

// settled is what an unknown call becomes by a status probe that says that it was applied.
func settled(r deferred.Record, n int) deferred.Record {
	r = ends(r, deferred.StateCompleted, n)
	r.Response, r.Detail, r.Until = &call.Response{Status: 200, Headers: []call.Header{{Name: "A", Value: "b"}}, Body: []byte("found")}, "it was applied", at(1000)
	return r
}

// revived is what it becomes by one that proved that it was not.
func revived(r deferred.Record, n int) deferred.Record {
	r.State, r.Effect, r.FirstSend, r.Ended, r.Updated, r.NextAttempt = deferred.StateRetrying, call.EffectNone, time.Time{}, time.Time{}, at(n), at(n)
	return r
}

func settlesCalls(t *testing.T, s Calls) {
	settle := func(r deferred.Record) {
		t.Helper()
		if err := s.Settle(t.Context(), &r); err != nil {
			t.Fatalf("Settle %s: %v", r.ID, err)
		}
	}
	superseded := func(what string, r deferred.Record) {
		t.Helper()
		if err := s.Settle(t.Context(), &r); !errors.Is(err, deferred.ErrSuperseded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	applied := settled(finishedCall(t, s, "applied", deferred.StateUnknown), 20)
	was := finishedCall(t, s, "again", deferred.StateUnknown)
	again := revived(was, 21)
	dead := finishedCall(t, s, "dead", deferred.StateUnknown)
	for _, r := range []deferred.Record{applied, again} {
		off := r
		off.Epoch++
		superseded("a later epoch", off)
		off.Epoch -= 2
		superseded("an earlier epoch", off)
		off = r
		off.Seq += 100
		superseded("no such call", off)
	}
	standsCall(t, s, was)
	settle(applied)
	settle(again)
	dead.State, dead.Failure, dead.Effect, dead.Reason, dead.Updated = deferred.StateFailed, deferred.FailureExhausted, call.EffectNone, call.ReasonAttemptsExhausted, at(22)
	settle(dead)
	for _, r := range []deferred.Record{applied, again, dead} {
		standsCall(t, s, r)
		superseded("what is not unknown", settled(r, 30))
		standsCall(t, s, r)
	}
	if due, _, err := s.Due(t.Context(), at(21), 10, nil, nil); err != nil || len(due) != 1 || due[0].ID != again.ID {
		t.Errorf("due: %+v, %v", due, err)
	}
	sending(t, s, again, false, 23)
	if counts, err := s.Counts(t.Context(), caller); err != nil || counts[deferred.StateCompleted] != 1 || counts[deferred.StateSending] != 1 || counts[deferred.StateFailed] != 1 || counts[deferred.StateUnknown] != 0 {
		t.Errorf("counts: %v, %v", counts, err)
	}
}

// settlesTold: a direct call under the id of a call that was unknown hears what the status probe found.
func settlesTold(t *testing.T, s Calls) {
	unknown := func(id string) deferred.Record {
		r := ends(sending(t, s, storedCall(t, s, submitted(id, 1)), false, 2), deferred.StateUnknown, 3)
		r.FirstSend = at(2)
		return wroteEnd(t, s, r, made(1, 2))
	}
	asks := func(id string) operation.Record {
		t.Helper()
		got, led, err := s.Ledger.Begin(t.Context(), started(key(id), 40))
		if err != nil || led {
			t.Errorf("%s: led %v, %v", id, led, err)
		}
		return got
	}
	applied, again := unknown("applied"), unknown("again")
	for _, r := range []deferred.Record{settled(applied, 20), revived(again, 20)} {
		if err := s.Settle(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	got := asks("applied")
	if got.State != operation.StateFinished || got.Told != (call.Told{Outcome: call.OutcomeSuccess, Reason: call.ReasonSuccess}) || got.Effect != call.EffectAnswered ||
		got.Status != 200 || string(got.Body) != "found" || got.Deferred != applied.ID {
		t.Errorf("applied: %+v", got)
	}
	if known, err := got.Known(); err != nil || len(known.Attempts) != 1 {
		t.Errorf("applied: %+v, %v", known, err)
	}
	if got := asks("again"); got.State != operation.StateRunning || got.Effect != call.EffectNone || !got.FirstSend.IsZero() || got.Deferred != again.ID {
		t.Errorf("sent again: %+v", got)
	}
}
