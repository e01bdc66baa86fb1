package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/operation"
)

func namespaces() []deferredPromise {
	return []deferredPromise{
		{"an id that a direct call has is a conflict", directTaken},
		{"a direct call that leads its id hands it over, once", handedOver},
		{"an id that nobody leads is not handed over", nothingToHandOver},
		{"a free id is taken with what an earlier call may have done", freeTaken},
		{"a direct call sees the deferred call that has its id", seenByDirect},
		{"the end of a deferred call is told to direct calls", endsTold},
		{"what a status probe found is told to direct calls", settlesTold},
		{"a redrive takes the id again, unless somebody else has it", redriveTakes},
		{"a purge leaves what is known of the id", purgeLeaves},
	}
}

// conflicts wants that id taken.
func conflicts(t testing.TB, s Calls, id string) {
	t.Helper()
	if _, stored, err := s.Submit(t.Context(), submitted(id, 5)); stored || !errors.Is(err, deferred.ErrConflict) {
		t.Errorf("%s: stored %v, %v; want ErrConflict", id, stored, err)
	}
	goneCall(t, s, caller, "id-"+id)
}

func directTaken(t *testing.T, s Calls) {
	running := direct(t, s, "running", nil)
	finished := direct(t, s, "finished", func(r *operation.Record) { *r = *answered(*r, 2) })
	unknown := direct(t, s, "unknown", func(r *operation.Record) { r.State = operation.StateUnknown })
	for _, r := range []operation.Record{running, finished, unknown} {
		conflicts(t, s, r.ID)
		stands(t, s.Ledger, r)
	}
	theirs := submitted("running", 5)
	theirs.Caller = "another"
	storedCall(t, s, theirs)
}

func freeTaken(t *testing.T, s Calls) {
	free := direct(t, s, "a", func(r *operation.Record) { *r = *freed(*r, 2) })
	got := storedCall(t, s, submitted("a", 5))
	if !got.FirstSend.Equal(free.FirstSend) || got.Effect != free.Effect || !got.Repeatable {
		t.Errorf("first sent %v, effect %v, repeatable %v; want %v, %v, and that what was sent may be", got.FirstSend, got.Effect, got.Repeatable, free.FirstSend, free.Effect)
	}
	standsCall(t, s, got)
	r, err := s.Ledger.Operation(t.Context(), key("a"))
	if err != nil || r.State != operation.StateRunning || r.Deferred != got.ID || r.Epoch != free.Epoch+1 || !r.CreateTime.Equal(free.CreateTime) {
		t.Errorf("%+v, %v", r, err)
	}
	// The lead before it is over.
	free.State = operation.StateFinished
	if err := s.Ledger.Write(t.Context(), &free); !errors.Is(err, operation.ErrSuperseded) {
		t.Errorf("a write of the earlier lead: %v", err)
	}
}

func seenByDirect(t *testing.T, s Calls) {
	r := storedCall(t, s, submitted("a", 1))
	seen := func() {
		t.Helper()
		got, led, err := s.Ledger.Begin(t.Context(), started(key("a"), 9))
		if err != nil || led || got.Deferred != r.ID || got.State != operation.StateRunning || got.Fingerprint != r.Fingerprint {
			t.Errorf("led %v, %+v, %v", led, got, err)
		}
	}
	seen()
	if n, err := s.Ledger.Settle(t.Context(), "the next broker", at(3)); n != 0 || err != nil {
		t.Errorf("settled %d, %v", n, err)
	}
	if _, err := s.Ledger.Prune(t.Context(), at(1<<20), 0); err != nil {
		t.Error(err)
	}
	seen()
	r = sending(t, s, r, true, 2)
	seen()
	r.State, r.NextAttempt = deferred.StateRetrying, at(9)
	wroteEnd(t, s, r)
	seen()
}

func endsTold(t *testing.T, s Calls) { //nolint:gocognit // a table and its walk
	success := call.Told{Outcome: call.OutcomeSuccess, Reason: call.ReasonSuccess}
	unknown := call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}
	for i, one := range []struct {
		what       string
		state      deferred.State
		effect     call.Effect
		status     int
		repeatable bool
		want       call.Told
	}{
		{"completed", deferred.StateCompleted, call.EffectAnswered, 200, true, success},
		{"unknown", deferred.StateUnknown, call.EffectUnknown, 0, false, unknown},
		{"failed for good", deferred.StateFailed, call.EffectAnswered, 404, false, call.Told{Outcome: call.OutcomeHTTPError, Reason: call.ReasonStatusNotRetryable}},
		{"refused a token", deferred.StateFailed, call.EffectAnswered, 401, false, call.Told{}},
		{"failed without effect", deferred.StateFailed, call.EffectNone, 0, false, call.Told{}},
		{"failed, and may be repeated", deferred.StateFailed, call.EffectUnknown, 503, true, call.Told{}},
		{"failed, and may not be", deferred.StateFailed, call.EffectUnknown, 503, false, unknown},
		{"cancelled without effect", deferred.StateCancelled, call.EffectNone, 0, false, call.Told{}},
		{"cancelled, and may not be repeated", deferred.StateCancelled, call.EffectUnknown, 0, false, unknown},
		{"cancelled, and may be", deferred.StateCancelled, call.EffectUnknown, 0, true, call.Told{}},
	} {
		id := fmt.Sprint(i)
		r := ends(sending(t, s, storedCall(t, s, submitted(id, 1)), one.repeatable, 2), one.state, 30)
		r.Effect, r.FirstSend = one.effect, at(2)
		if one.status > 0 {
			r.Response = &call.Response{Status: one.status, Headers: []call.Header{{Name: "A", Value: "b"}}, Body: []byte("body"), Protocol: "HTTP/2"}
		}
		r = wroteEnd(t, s, r, made(1, 2))
		got, led, err := s.Ledger.Begin(t.Context(), started(key(id), 40))
		if err != nil || led != (one.want == call.Told{}) {
			t.Errorf("%s: led %v, %v", one.what, led, err)
		}
		if led {
			if !got.FirstSend.Equal(at(2)) || got.Effect != one.effect || got.Epoch != 2 || got.Deferred != "" {
				t.Errorf("%s: the next lead: %+v", one.what, got)
			}
			continue
		}
		state := operation.StateFinished
		if one.want == unknown {
			state = operation.StateUnknown
		}
		if got.Told != one.want || got.State != state || got.Outcome != r.Outcome || got.Effect != r.Effect || got.Reason != r.Reason ||
			got.Status != one.status || got.Deferred != r.ID || got.Fingerprint != r.Fingerprint {
			t.Errorf("%s: %+v", one.what, got)
		}
		known, err := got.Known()
		if err != nil || len(known.Attempts) != 1 {
			t.Fatalf("%s: %+v, %v", one.what, known, err)
		}
		equal(t, one.what+", the attempt", known.Attempts, r.Attempts)
		if one.status > 0 {
			equal(t, one.what+", the answer", known.Response, r.Response)
		}
		// What is told stays as long as the deferred call does.
		for more := true; more; {
			if more, err = s.Ledger.Prune(t.Context(), at(1<<20), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, led, err := s.Ledger.Begin(t.Context(), started(key(id), 50)); led || err != nil {
			t.Errorf("%s, pruned: led %v, %v", one.what, led, err)
		}
	}
	// By whatever it ends.
	r := submitted("expires", 1)
	r.Expire = at(10)
	storedCall(t, s, r)
	storedCall(t, s, submitted("cancelled", 1))
	sending(t, s, storedCall(t, s, submitted("orphan", 1)), false, 2)
	expired(t, s, 10)
	if _, err := s.Cancel(t.Context(), caller, "id-cancelled", at(10), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Recover(t.Context(), at(10)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for id, free := range map[string]bool{"expires": true, "cancelled": true, "orphan": false} {
		got, led, err := s.Ledger.Begin(t.Context(), started(key(id), 40))
		if err != nil || led != free || !free && (got.Told != unknown || got.State != operation.StateUnknown) {
			t.Errorf("%s: led %v, %+v, %v", id, led, got, err)
		}
	}
}

func redriveTakes(t *testing.T, s Calls) {
	kept := finishedCall(t, s, "kept", deferred.StateFailed)
	free := ends(sending(t, s, storedCall(t, s, submitted("free", 1)), true, 2), deferred.StateFailed, 3)
	free.Effect = call.EffectNone
	free = wroteEnd(t, s, free)
	lost := ends(sending(t, s, storedCall(t, s, submitted("lost", 1)), true, 2), deferred.StateFailed, 3)
	lost.Effect = call.EffectNone
	lost = wroteEnd(t, s, lost)
	direct(t, s, "lost", nil)
	if n, err := s.Redrive(t.Context(), named(kept.ID, lost.ID), 1, at(9)); n != 0 || !errors.Is(err, deferred.ErrConflict) {
		t.Errorf("one id is taken: %d, %v; want ErrConflict", n, err)
	}
	standsCall(t, s, kept)
	if n, err := s.Redrive(t.Context(), &deferred.Which{Filter: deferred.Filter{Caller: caller}}, 1, at(9)); n != 2 || err != nil {
		t.Errorf("by a filter: %d, %v; want the 2 others", n, err)
	}
	standsCall(t, s, lost)
	for _, r := range []deferred.Record{kept, free} {
		got, led, err := s.Ledger.Begin(t.Context(), started(key(r.OperationID), 40))
		if err != nil || led || got.State != operation.StateRunning || got.Deferred != r.ID || got.Told != (call.Told{}) || got.Fingerprint != r.Fingerprint {
			t.Errorf("%s: led %v, %+v, %v", r.ID, led, got, err)
		}
	}
}

func purgeLeaves(t *testing.T, s Calls) {
	r := finishedCall(t, s, "a", deferred.StateCompleted)
	if n, err := s.Purge(t.Context(), named(r.ID)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	got, led, err := s.Ledger.Begin(t.Context(), started(key("a"), 9))
	if err != nil || led || got.Told.Outcome != call.OutcomeSuccess || got.Deferred != "" {
		t.Errorf("led %v, %+v, %v", led, got, err)
	}
	conflicts(t, s, "a") // it was sent, and is not sent again
	// A day after its end it is forgotten.
	for _, one := range []struct {
		n    int
		free bool
	}{{3 + 1439, false}, {3 + 1440, true}} {
		if _, err := s.Ledger.Prune(t.Context(), at(one.n), manyBytes); err != nil {
			t.Fatal(err)
		}
		_, err := s.Ledger.Operation(t.Context(), key("a"))
		if errors.Is(err, operation.ErrNotFound) != one.free {
			t.Errorf("at minute %d: %v", one.n, err)
		}
	}
}
