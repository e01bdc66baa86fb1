package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

func keeping() []ledgerPromise {
	return []ledgerPromise{
		{"what another owner led is settled", settles},
		{"what has outlived its time goes, at that instant", prunesByTime},
		{"nothing goes while it runs", runningStays},
		{"of bodies that are too much the oldest go", prunesBodies},
		{"a piece at a time is pruned, and all in the end", prunesInPieces},
		{"who it is and since when does not change", identities},
	}
}

func settles(t *testing.T, l Ledger) {
	now := at(50)
	unknown := call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}
	var want []operation.Record

	lost := begun(t, l, started(key("must not be repeated"), 1))
	lost.UpdateTime, lost.State, lost.Told = now, operation.StateUnknown, unknown
	lost.Outcome, lost.Effect, lost.Reason = call.OutcomeUnknown, call.EffectUnknown, call.ReasonNotRepeatable
	want = append(want, lost)

	gone := begun(t, l, started(key("its caller had gone"), 1))
	gone.Outcome, gone.Effect, gone.Reason, gone.FirstSend = call.OutcomeCancelled, call.EffectUnknown, call.ReasonCancelled, at(2)
	gone.Details = []byte("attempts")
	wrote(t, l, &gone)
	gone.UpdateTime, gone.State, gone.Told = now, operation.StateUnknown, unknown
	want = append(want, gone)

	start := started(key("may be repeated"), 1)
	start.MustNotRepeat = false
	again := begun(t, l, start)
	again.UpdateTime, again.State, again.Effect, again.Fingerprint = now, operation.StateFinished, call.EffectUnknown, operation.Fingerprint{}
	want = append(want, again)

	mine := started(key("of this owner"), 1)
	mine.Owner = "broker 2"
	want = append(want, begun(t, l, mine))
	waits := started(key("of a deferred call"), 1)
	waits.Deferred = "id"
	want = append(want, begun(t, l, waits))
	finished := begun(t, l, started(key("finished"), 1))
	want = append(want, wrote(t, l, answered(finished, 2)))
	unsure := begun(t, l, started(key("unknown"), 1))
	unsure.State = operation.StateUnknown
	want = append(want, wrote(t, l, &unsure))

	for round, n := range []int{3, 0} {
		got, err := l.Settle(t.Context(), "broker 2", now.Add(time.Duration(round)))
		if err != nil || got != n {
			t.Errorf("round %d: settled %d, %v; want %d", round, got, err, n)
		}
		for _, r := range want {
			stands(t, l, r)
		}
	}
	// What is free is led again, what is unknown is not.
	if r := begun(t, l, started(again.Key, 60)); r.Epoch != 2 || r.Effect != call.EffectUnknown {
		t.Errorf("led again: %+v", r)
	}
	if _, led, err := l.Begin(t.Context(), started(lost.Key, 60)); led || err != nil {
		t.Errorf("an unknown one is led: %v, %v", led, err)
	}
}

// pruned prunes until nothing is left over.
func pruned(t testing.TB, l Ledger, now time.Time, most int64) int {
	t.Helper()
	for pieces := 1; ; pieces++ {
		more, err := l.Prune(t.Context(), now, most)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return pieces
		}
	}
}

const manyBytes = 1 << 40

func prunesByTime(t *testing.T, l Ledger) {
	finished := wrote(t, l, answered(begun(t, l, started(key("finished"), 1)), 0))
	free := wrote(t, l, freed(begun(t, l, started(key("free"), 1)), 0))
	unknown := *answered(begun(t, l, started(key("unknown"), 1)), 0)
	unknown.State = operation.StateUnknown
	unknown = wrote(t, l, &unknown)
	other := started(operation.Key{Caller: "other", ID: "finished"}, 1)
	later := wrote(t, l, answered(begun(t, l, other), 1))
	bodiless := *answered(begun(t, l, started(key("without a body"), 1)), 0)
	bodiless.Body, bodiless.Details = nil, nil
	bodiless = wrote(t, l, &bodiless)
	everything := []*operation.Record{&finished, &free, &unknown, &later, &bodiless}
	same := func() {
		t.Helper()
		for _, r := range everything {
			stands(t, l, *r)
		}
	}
	bodyUntil, until := finished.BodyUntil, finished.Until
	pruned(t, l, bodyUntil.Add(-1), manyBytes)
	same()
	pruned(t, l, bodyUntil, manyBytes)
	finished.Body, finished.Details, free.Body, free.Details, unknown.Body = nil, nil, nil, nil, nil
	same()
	pruned(t, l, until.Add(-1), manyBytes)
	later.Body, later.Details = nil, nil
	same()
	pruned(t, l, until, manyBytes)
	for _, r := range []operation.Record{finished, free, unknown, bodiless} {
		gone(t, l, r.Key)
	}
	stands(t, l, later)
	// A forgotten id begins anew.
	if r := begun(t, l, started(finished.Key, 5000)); r.Epoch != 1 || !r.CreateTime.Equal(at(5000)) || !r.FirstSend.IsZero() {
		t.Errorf("forgotten and led: %+v", r)
	}
	pruned(t, l, later.Until, manyBytes)
	gone(t, l, later.Key)
}

func runningStays(t *testing.T, l Ledger) {
	running := *answered(begun(t, l, started(key("a"), 1)), 0)
	running.State = operation.StateRunning
	running = wrote(t, l, &running)
	pruned(t, l, at(1<<20), 0)
	stands(t, l, running)
	running.State = operation.StateUnknown
	wrote(t, l, &running)
	pruned(t, l, at(0), 0)
	running.Body = nil
	stands(t, l, running)
}

func prunesBodies(t *testing.T, l Ledger) {
	var records []operation.Record
	// The order of their ids, of creation and of the ends of their lives is another than that of their ages.
	for i, age := range []int{3, 1, 4, 1, 5, 0} {
		r := *answered(begun(t, l, started(key(fmt.Sprint(9-i)), i)), age)
		r.Body, r.BodyUntil = make([]byte, 100), at(2000-age)
		if i == 5 {
			r.State = operation.StateRunning // the oldest, and counts
		}
		records = append(records, wrote(t, l, &r))
	}
	drop := func(most int64, i ...int) {
		t.Helper()
		pruned(t, l, at(6), most)
		for _, i := range i {
			records[i].Body = nil
		}
		for _, r := range records {
			stands(t, l, r)
		}
	}
	drop(600)
	drop(599, 3) // the lesser id of two of one age
	drop(500)
	drop(301, 1, 0)
	// A body that comes in place of another counts once, and one that was dropped does not.
	records[2].Body = make([]byte, 150)
	records[2] = wrote(t, l, &records[2])
	drop(350)
	drop(349, 2)
	drop(100, 4)
	drop(0)
	drop(-1)
	// A body that went with its record counts no more, so another may stay.
	short := answered(begun(t, l, started(key("short"), 1)), 1)
	short.Until, short.Body = at(3), make([]byte, 100)
	wrote(t, l, short)
	records[0].Body = make([]byte, 100)
	wrote(t, l, &records[0])
	drop(200)
	gone(t, l, short.Key)
}

func prunesInPieces(t *testing.T, l Ledger) {
	const records = 1304
	sideBySide(func(i int) {
		var wg sync.WaitGroup
		for n := i; n < records; n += together {
			wg.Go(func() {
				r, led, err := l.Begin(t.Context(), started(key(fmt.Sprint(n)), 1))
				if err != nil || !led {
					t.Error(led, err)
				}
				next := answered(r, 0)
				if n%2 == 0 {
					next.Until = next.BodyUntil
				}
				if err := l.Write(t.Context(), next); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
	now := at(10)
	more, err := l.Prune(t.Context(), now, manyBytes)
	if n := len(readLedger(t, l)); err != nil || n == records || more && n == records/2 {
		t.Errorf("%d of %d are left after a piece; more is left: %v (%v)", n, records, more, err)
	}
	pieces := 1 + pruned(t, l, now, manyBytes)
	left := readLedger(t, l)
	if len(left) != records/2 {
		t.Errorf("%d of %d records are left after %d pieces", len(left), records, pieces)
	}
	for _, r := range left {
		if r.Body != nil || r.Details != nil {
			t.Errorf("%s has a body", r.ID)
		}
	}
}

func identities(t *testing.T, l Ledger) {
	name, since := l.Identity()
	if name == "" || since.IsZero() || since.Location() != time.UTC || since.After(time.Now()) {
		t.Errorf("%q since %v", name, since)
	}
	begun(t, l, started(key("a"), 1))
	if n, s := l.Identity(); n != name || s != since {
		t.Errorf("%s since %v, before it was %s since %v", n, s, name, since)
	}
}
