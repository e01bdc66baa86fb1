package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/operation"
)

// Deferred is all that a store of deferred calls does.
type Deferred interface {
	deferred.Store
	deferred.Keeper
}

// Calls is a store of deferred calls, and the ledger of operations that shares its namespace of ids; nil where there is none.
type Calls struct {
	Deferred
	Ledger Ledger
}

// RunDeferred tests the stores that open gives: each new and empty, and closed by the end of the test it was opened for.
func RunDeferred(t *testing.T, open func(t testing.TB) Calls) {
	t.Helper()
	for _, group := range [][]deferredPromise{submissions(), attempts(), dues(), deferredLists(), deferredKeeping(), deferredShared()} {
		for _, p := range group {
			t.Run(p.name, func(t *testing.T) { p.test(t, open(t)) })
		}
	}
	for _, p := range namespaces() {
		t.Run(p.name, func(t *testing.T) {
			s := open(t)
			if s.Ledger == nil {
				t.Skip("it shares its ids with no ledger")
			}
			p.test(t, s)
		})
	}
}

type deferredPromise struct {
	name string
	test func(t *testing.T, s Calls)
}

func submissions() []deferredPromise {
	return []deferredPromise{
		{"a submission is kept with all it has", submissionsKept},
		{"the same submission again is the same call", sameSubmission},
		{"an id with another payload is a conflict", otherPayload},
		{"numbers rise, also after a purge", numbersRise},
	}
}

const otherOrigin = "https://b.example.com:443"

// submitted is a deferred call as it is submitted, at minute n.
func submitted(id string, n int) *deferred.Record {
	return &deferred.Record{
		ID: "id-" + id, Caller: caller, OperationID: id, Fingerprint: [32]byte{7, 1}, Origin: "https://a.example.com:443",
		Criticality: call.CriticalityNormal, State: deferred.StatePending, MaxRetries: 5, Backoff: time.Second,
		NextAttempt: at(n), Created: at(n), Updated: at(n), Request: []byte("request of " + id),
	}
}

// plainCall is r as a store gives it back.
func plainCall(r deferred.Record) deferred.Record {
	for _, t := range []*time.Time{&r.NextAttempt, &r.NotBefore, &r.Expire, &r.Created, &r.Updated, &r.Ended, &r.Until, &r.FirstSend} {
		*t = t.Round(0).UTC()
	}
	if len(r.Labels) == 0 {
		r.Labels = nil
	}
	if len(r.Request) == 0 {
		r.Request = nil
	}
	r.Attempts = slices.Clone(r.Attempts)
	for i := range r.Attempts {
		r.Attempts[i].Start = r.Attempts[i].Start.Round(0).UTC()
	}
	if len(r.Attempts) == 0 {
		r.Attempts = nil
	}
	if r.Response != nil {
		answer := *r.Response
		if len(answer.Body) == 0 {
			answer.Body = nil
		}
		r.Response = &answer
	}
	return r
}

// stored must be.
func storedCall(t testing.TB, s Calls, r *deferred.Record) deferred.Record {
	t.Helper()
	got, stored, err := s.Submit(t.Context(), r)
	if err != nil || !stored {
		t.Fatalf("Submit %s: stored %v, %v", r.ID, stored, err)
	}
	return plainCall(got)
}

// sending begins an attempt, which must succeed.
func sending(t testing.TB, s Calls, r deferred.Record, repeatable bool, n int) deferred.Record {
	t.Helper()
	if err := s.Begin(t.Context(), r.Seq, r.Epoch, repeatable, at(n)); err != nil {
		t.Fatalf("Begin %s: %v", r.ID, err)
	}
	r.State, r.Repeatable, r.Updated, r.NextAttempt = deferred.StateSending, repeatable, at(n), time.Time{}
	r.Epoch++
	return plainCall(r)
}

// wroteEnd writes what became of a record, and gives it as it stands then.
func wroteEnd(t testing.TB, s Calls, r deferred.Record, attempts ...call.Attempt) deferred.Record {
	t.Helper()
	if err := s.End(t.Context(), &r, attempts); err != nil {
		t.Fatalf("End %s: %v", r.ID, err)
	}
	r.Attempts = append(slices.Clone(r.Attempts), attempts...)
	r.Tried = uint32(len(r.Attempts))
	return plainCall(r)
}

// made is the attempt of that number.
func made(number uint32, n int) call.Attempt {
	return call.Attempt{
		Number: number, Kind: call.KindRetry, Origin: "https://a.example.com:443", Start: at(n), Offset: 3 * time.Minute, Waited: time.Second,
		Queued: 4, Timeout: time.Minute, Duration: 17 * time.Millisecond, TraceID: "0af7651916cd43dd8448eb211c80319c", SpanID: "b7ad6b7169203331",
		Result: call.Result{
			Evidence: call.EvidenceAnswered, Failure: call.FailureProtocol, TimedOut: true, Detail: "a sentence", Status: 503,
			RemoteAddress: "127.0.0.1:443", Protocol: "HTTP/2", Reused: true,
		},
		Decision: call.Decision{Verdict: call.VerdictRetry, Reason: call.ReasonStatusRetryable, Wait: time.Hour},
	}
}

// ends makes a record finished.
func ends(r deferred.Record, state deferred.State, n int) deferred.Record {
	r.State, r.NextAttempt, r.Updated, r.Ended = state, time.Time{}, at(n), at(n)
	switch state {
	case deferred.StateCompleted:
		r.Outcome, r.Effect, r.Reason = call.OutcomeSuccess, call.EffectAnswered, call.ReasonSuccess
	case deferred.StateFailed:
		r.Failure, r.Outcome, r.Effect, r.Reason = deferred.FailurePermanent, call.OutcomeHTTPError, call.EffectAnswered, call.ReasonStatusNotRetryable
	case deferred.StateUnknown:
		r.Outcome, r.Effect, r.Reason = call.OutcomeUnknown, call.EffectUnknown, call.ReasonNotRepeatable
	case deferred.StateCancelled:
		r.Outcome, r.Effect, r.Reason = call.OutcomeCancelled, call.EffectNone, call.ReasonCancelled
	}
	return r
}

// finished is a call that has come to that end.
func finishedCall(t testing.TB, s Calls, id string, state deferred.State) deferred.Record {
	t.Helper()
	r := sending(t, s, storedCall(t, s, submitted(id, 1)), true, 2)
	return wroteEnd(t, s, ends(r, state, 3), made(1, 2))
}

// standsCall wants exactly that record.
func standsCall(t testing.TB, s Calls, want deferred.Record) {
	t.Helper()
	got, err := s.Find(t.Context(), want.Caller, want.ID)
	if err != nil {
		t.Errorf("%s: %v", want.ID, err)
		return
	}
	equal(t, want.ID, plainCall(got), plainCall(want))
}

func goneCall(t testing.TB, s Calls, caller, id string) {
	t.Helper()
	if r, err := s.Find(t.Context(), caller, id); !errors.Is(err, deferred.ErrNotFound) {
		t.Errorf("%s: %+v, %v; want ErrNotFound", id, r, err)
	}
}

func submissionsKept(t *testing.T, s Calls) {
	goneCall(t, s, caller, "id-a")
	full := submitted("a", 1)
	full.Labels, full.Delivery, full.Criticality = map[string]string{"b": "é\n", "a": ""}, deferred.DeliveryAtMostOnce, call.CriticalityCritical
	full.State, full.Failure, full.Epoch, full.Spent, full.Tried = deferred.StateRetrying, deferred.FailureExhausted, 4, 3, 2
	full.MaxRetries, full.Backoff, full.Repeatable, full.PossibleDuplicate = 1<<32-1, 1<<62, true, true
	full.NotBefore, full.Expire, full.Ended, full.Until, full.FirstSend = at(2), at(3), at(4), at(5), at(6)
	full.Outcome, full.Effect, full.Reason, full.Detail = call.OutcomeThrottled, call.EffectUnknown, call.ReasonOriginHeld, "held"
	full.Attempts = []call.Attempt{made(1, 1), made(2, 2)}
	full.Response = &call.Response{
		Status: 503, Headers: []call.Header{{Name: "A", Value: "\xff"}, {Name: "a", Value: ""}}, Trailers: []call.Header{{Name: "T", Value: "v"}},
		Protocol: "HTTP/1.1", Body: []byte("busy"),
	}
	full.Request = make([]byte, 70_000)
	bare := &deferred.Record{ID: "id-b", Caller: caller, OperationID: "b", State: deferred.StatePending, NextAttempt: at(1)}
	for i, r := range []*deferred.Record{full, bare} {
		want := plainCall(*r)
		want.Seq = uint64(i) + 1
		equal(t, "what stands", storedCall(t, s, r), want)
		standsCall(t, s, want)
	}
	goneCall(t, s, "another", "id-a")
	goneCall(t, s, caller, "id-c")
	if r, err := s.Find(t.Context(), "", "id-a"); err != nil || r.Seq != 1 {
		t.Errorf("for any caller: %d, %v", r.Seq, err)
	}
	for _, wrong := range []time.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)} {
		r := submitted("wrong", 1)
		r.Expire = wrong
		if _, stored, err := s.Submit(t.Context(), r); stored || err == nil {
			t.Errorf("a year that cannot be kept: stored %v, %v", stored, err)
		}
		goneCall(t, s, caller, "id-wrong")
	}
}

func sameSubmission(t *testing.T, s Calls) {
	first := storedCall(t, s, submitted("a", 1))
	again := submitted("a", 5)
	again.ID, again.Request, again.Origin = "id-another", []byte("else"), otherOrigin
	same := func(want deferred.Record) {
		t.Helper()
		got, stored, err := s.Submit(t.Context(), again)
		if err != nil || stored {
			t.Errorf("stored %v, %v", stored, err)
		}
		equal(t, "what stands", plainCall(got), want)
		standsCall(t, s, want)
		goneCall(t, s, caller, "id-another")
	}
	same(first)
	first = sending(t, s, first, true, 2)
	same(first)
	first.Response = &call.Response{Status: 404, Body: []byte("no")}
	first = wroteEnd(t, s, ends(first, deferred.StateFailed, 3), made(1, 2))
	same(first)
	// One that ended without effect gives its id back to calls, and stands for submissions.
	free := wroteEnd(t, s, ends(storedCall(t, s, submitted("b", 1)), deferred.StateCancelled, 2))
	again.OperationID = "b"
	same(free)
}

func otherPayload(t *testing.T, s Calls) {
	var want []deferred.Record
	want = append(want, storedCall(t, s, submitted("a", 1)), finishedCall(t, s, "b", deferred.StateCompleted), finishedCall(t, s, "c", deferred.StateFailed))
	for _, r := range want {
		other := submitted(r.OperationID, 9)
		other.ID, other.Fingerprint = "id-other", [32]byte{9}
		if got, stored, err := s.Submit(t.Context(), other); !errors.Is(err, deferred.ErrConflict) || stored {
			t.Errorf("%s: %+v, stored %v, %v; want ErrConflict", r.ID, got, stored, err)
		}
		standsCall(t, s, r)
		goneCall(t, s, caller, "id-other")
	}
	// An id means nothing without its caller.
	other := submitted("a", 9)
	other.ID, other.Caller, other.Fingerprint = "id-theirs", caller+"2", [32]byte{9}
	standsCall(t, s, storedCall(t, s, other))
}

func numbersRise(t *testing.T, s Calls) {
	for n := range uint64(3) {
		if r := storedCall(t, s, submitted(fmt.Sprint(n), 1)); r.Seq != n+1 {
			t.Errorf("number %d, want %d", r.Seq, n+1)
		}
	}
	r, err := s.Cancel(t.Context(), caller, "id-2", at(1), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(t.Context(), &deferred.Which{Filter: deferred.Filter{Caller: caller}, IDs: []string{r.ID}}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if r := storedCall(t, s, submitted("next", 1)); r.Seq != 4 {
		t.Errorf("number %d after a purge, want 4", r.Seq)
	}
}

func attempts() []deferredPromise {
	return []deferredPromise{
		{"an attempt begins once, where the record stands", beginsOnce},
		{"an end is written where the attempt was begun", endsAreWritten},
		{"who was superseded writes nothing", supersededEnds},
		{"the same end twice is as once", endsTwice},
		{"what was unknown is settled once", settlesCalls},
	}
}

func beginsOnce(t *testing.T, s Calls) {
	r := storedCall(t, s, submitted("a", 1))
	superseded := func(seq, epoch uint64) {
		t.Helper()
		if err := s.Begin(t.Context(), seq, epoch, true, at(9)); !errors.Is(err, deferred.ErrSuperseded) {
			t.Errorf("Begin %d at epoch %d: %v", seq, epoch, err)
		}
		standsCall(t, s, r)
	}
	superseded(r.Seq, 1)
	superseded(r.Seq+1, 0)
	r = sending(t, s, r, true, 2)
	standsCall(t, s, r)
	superseded(r.Seq, 0)
	superseded(r.Seq, 1)
	r.State, r.NextAttempt, r.Updated = deferred.StateRetrying, at(4), at(3)
	r = wroteEnd(t, s, r)
	standsCall(t, s, r)
	superseded(r.Seq, 0)
	r = sending(t, s, r, false, 5)
	standsCall(t, s, r)
	r = wroteEnd(t, s, ends(r, deferred.StateCompleted, 6))
	for epoch := range uint64(4) {
		superseded(r.Seq, epoch)
	}
}

func endsAreWritten(t *testing.T, s Calls) {
	other := storedCall(t, s, submitted("other", 1))
	r := sending(t, s, storedCall(t, s, submitted("a", 1)), true, 2)
	r.State, r.Spent, r.NextAttempt, r.Updated, r.FirstSend = deferred.StateRetrying, 1, at(9), at(3), at(2)
	r.Outcome, r.Effect, r.Reason, r.Detail = call.OutcomeRetriesExhausted, call.EffectUnknown, call.ReasonStatusRetryable, "it said 503"
	r.Response = &call.Response{Status: 503, Headers: []call.Header{{Name: "A", Value: "b"}}, Body: []byte("busy")}
	r = wroteEnd(t, s, r, made(1, 2))
	standsCall(t, s, r)
	r = sending(t, s, r, true, 10)
	standsCall(t, s, r)
	// An end without an answer leaves the one that is kept.
	kept := r.Response
	r.Response, r.State, r.Spent, r.NextAttempt, r.PossibleDuplicate = nil, deferred.StateRetrying, 2, at(20), true
	r = wroteEnd(t, s, r, made(2, 10), made(3, 10))
	r.Response = kept
	standsCall(t, s, r)
	r = ends(sending(t, s, r, true, 20), deferred.StateCompleted, 21)
	r.Response, r.Until = &call.Response{Status: 200, Body: make([]byte, 1<<17)}, at(1000)
	r = wroteEnd(t, s, r, made(4, 20))
	standsCall(t, s, r)
	standsCall(t, s, other)
}

func supersededEnds(t *testing.T, s Calls) {
	r := sending(t, s, storedCall(t, s, submitted("a", 1)), true, 2)
	superseded := func(what string, with func(*deferred.Record)) {
		t.Helper()
		n := ends(r, deferred.StateCompleted, 3)
		n.Response = &call.Response{Status: 200}
		with(&n)
		if err := s.End(t.Context(), &n, []call.Attempt{made(7, 1)}); !errors.Is(err, deferred.ErrSuperseded) {
			t.Errorf("%s: %v", what, err)
		}
		standsCall(t, s, r)
	}
	superseded("an earlier epoch", func(n *deferred.Record) { n.Epoch-- })
	superseded("a later epoch", func(n *deferred.Record) { n.Epoch++ })
	superseded("no such call", func(n *deferred.Record) { n.Seq++ })
	r = wroteEnd(t, s, ends(r, deferred.StateFailed, 3), made(1, 2))
	superseded("a finished one", func(*deferred.Record) {})
}

func endsTwice(t *testing.T, s Calls) {
	r := sending(t, s, storedCall(t, s, submitted("a", 1)), true, 2)
	r.State, r.NextAttempt, r.Updated = deferred.StateRetrying, at(9), at(3)
	once := wroteEnd(t, s, r, made(1, 2))
	wroteEnd(t, s, r, made(1, 2))
	standsCall(t, s, once)
}

// direct begins and ends a direct call.
func direct(t testing.TB, s Calls, id string, end func(*operation.Record)) operation.Record {
	t.Helper()
	r := begun(t, s.Ledger, started(key(id), 1))
	if end != nil {
		end(&r)
		wrote(t, s.Ledger, &r)
	}
	return kept(r)
}
