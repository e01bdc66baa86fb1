package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
)

func deferredLists() []deferredPromise {
	return []deferredPromise{
		{"a list has the latest first, and pages hold while others come", deferredPages},
		{"a filter picks what it says", filters},
		{"a list leaves the bodies of answers out", listsWithoutBodies},
		{"counts are kept up to date", countsKept},
		{"changes come in their order, from any position", changesInOrder},
	}
}

// numbered are the numbers of records.
func numbered(all []deferred.Record) []uint64 {
	numbers := []uint64{}
	for _, r := range all {
		numbers = append(numbers, r.Seq)
	}
	return numbers
}

// listedCalls are those that a filter picks.
func listedCalls(t testing.TB, s Calls, f deferred.Filter, before uint64, n int) []uint64 {
	t.Helper()
	all, err := s.List(t.Context(), &f, before, n)
	if err != nil {
		t.Fatal(err)
	}
	return numbered(all)
}

func deferredPages(t *testing.T, s Calls) {
	const many = 13
	for n := range many {
		storedCall(t, s, submitted(fmt.Sprint(n), n))
	}
	var got []uint64
	before := uint64(0)
	for page := 0; ; page++ {
		all := listedCalls(t, s, deferred.Filter{Caller: caller}, before, 4)
		if len(all) == 0 {
			break
		}
		got = append(got, all...)
		before = all[len(all)-1]
		storedCall(t, s, submitted(fmt.Sprint("new", page), 100))
	}
	want := []uint64{}
	for n := range uint64(many) {
		want = append(want, many-n)
	}
	equal(t, "all pages", got, want)
	equal(t, "none", listedCalls(t, s, deferred.Filter{}, 0, 0), []uint64{})
	equal(t, "below the first", listedCalls(t, s, deferred.Filter{}, 1, 9), []uint64{})
	equal(t, "below a great number", len(listedCalls(t, s, deferred.Filter{}, 1<<63, 100)) > many, true)
}

func filters(t *testing.T, s Calls) {
	labels := []map[string]string{nil, {"a": "1"}, {"a": "1", "b": "2"}, {"a": "2", "b": "2"}}
	for n := range 16 {
		r := submitted(fmt.Sprint(n), n)
		r.Labels = labels[n%4]
		if n%3 == 0 {
			r.Origin = otherOrigin
		}
		if n >= 12 {
			r.Caller = "another"
		}
		r = new(storedCall(t, s, r))
		if n%5 == 0 {
			wroteEnd(t, s, ends(*r, deferred.StateFailed, n))
		}
	}
	for what, one := range map[string]struct {
		f    deferred.Filter
		want []uint64
	}{
		"a caller":             {deferred.Filter{Caller: "another"}, []uint64{16, 15, 14, 13}},
		"a state":              {deferred.Filter{Caller: caller, State: deferred.StateFailed}, []uint64{11, 6, 1}},
		"a state of any":       {deferred.Filter{State: deferred.StateFailed}, []uint64{16, 11, 6, 1}},
		"an origin":            {deferred.Filter{Caller: caller, Origin: otherOrigin}, []uint64{10, 7, 4, 1}},
		"an origin of any":     {deferred.Filter{Origin: otherOrigin}, []uint64{16, 13, 10, 7, 4, 1}},
		"a state at an origin": {deferred.Filter{Caller: caller, Origin: otherOrigin, State: deferred.StateFailed}, []uint64{1}},
		"a label":              {deferred.Filter{Caller: caller, Labels: map[string]string{"a": "1"}}, []uint64{11, 10, 7, 6, 3, 2}},
		"two labels":           {deferred.Filter{Caller: caller, Labels: map[string]string{"b": "2", "a": "1"}}, []uint64{11, 7, 3}},
		"a label of any":       {deferred.Filter{Labels: map[string]string{"a": "2"}}, []uint64{16, 12, 8, 4}},
		"a label and a state":  {deferred.Filter{Caller: caller, State: deferred.StateFailed, Labels: map[string]string{"a": "1"}}, []uint64{11, 6}},
		"no such label":        {deferred.Filter{Caller: caller, Labels: map[string]string{"a": ""}}, []uint64{}},
		"no such lane":         {deferred.Filter{Caller: caller, Origin: "https://c.example.com:443"}, []uint64{}},
		"a time":               {deferred.Filter{Caller: caller, CreatedAfter: at(9), CreatedBefore: at(11)}, []uint64{11, 10}},
	} {
		equal(t, what, listedCalls(t, s, one.f, 0, 100), one.want)
		equal(t, what+", the second page", listedCalls(t, s, one.f, append(slices.Clone(one.want), 1)[0], 100), one.want[min(1, len(one.want)):])
		equal(t, what+", one", len(listedCalls(t, s, one.f, 0, 1)), min(1, len(one.want)))
	}
}

func listsWithoutBodies(t *testing.T, s Calls) {
	r := sending(t, s, storedCall(t, s, submitted("a", 1)), true, 2)
	r = ends(r, deferred.StateCompleted, 3)
	r.Response = &call.Response{Status: 200, Headers: []call.Header{{Name: "A", Value: "b"}}, Body: []byte("body")}
	r = wroteEnd(t, s, r, made(1, 2))
	r.Response.Body, r.Response.BodyOmitted = nil, true
	all, err := s.List(t.Context(), &deferred.Filter{Caller: caller}, 0, 9)
	if err != nil || len(all) != 1 {
		t.Fatal(len(all), err)
	}
	equal(t, "a list", plainCall(all[0]), plainCall(r))
	if all, _, err = s.Changes(t.Context(), &deferred.Filter{Caller: caller}, 0, 9); err != nil || len(all) != 1 {
		t.Fatal(len(all), err)
	}
	equal(t, "changes", plainCall(all[0]), plainCall(r))
}

// countsAre wants exactly these.
func countsAre(t testing.TB, s Calls, who string, want map[deferred.State]uint64) {
	t.Helper()
	got, err := s.Counts(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "counts of "+who, got, want)
}

func countsKept(t *testing.T, s Calls) {
	countsAre(t, s, caller, map[deferred.State]uint64{})
	a, b := storedCall(t, s, submitted("a", 1)), storedCall(t, s, submitted("b", 1))
	other := submitted("c", 1)
	other.Caller = "another"
	storedCall(t, s, other)
	countsAre(t, s, caller, map[deferred.State]uint64{deferred.StatePending: 2})
	a = sending(t, s, a, true, 2)
	if err := s.Begin(t.Context(), a.Seq, 0, true, at(2)); err == nil {
		t.Error("begun twice")
	}
	countsAre(t, s, caller, map[deferred.State]uint64{deferred.StatePending: 1, deferred.StateSending: 1})
	wroteEnd(t, s, ends(a, deferred.StateFailed, 3))
	if _, err := s.Cancel(t.Context(), caller, b.ID, at(3), at(9)); err != nil {
		t.Fatal(err)
	}
	countsAre(t, s, caller, map[deferred.State]uint64{deferred.StateFailed: 1, deferred.StateCancelled: 1})
	countsAre(t, s, "", map[deferred.State]uint64{deferred.StateFailed: 1, deferred.StateCancelled: 1, deferred.StatePending: 1})
	expired(t, s, 9)
	countsAre(t, s, caller, map[deferred.State]uint64{deferred.StateFailed: 1})
	if n, err := s.Purge(t.Context(), &deferred.Which{Filter: deferred.Filter{Caller: caller}}); err != nil || n != 1 {
		t.Error(n, err)
	}
	countsAre(t, s, caller, map[deferred.State]uint64{})
}

func changesInOrder(t *testing.T, s Calls) {
	f := &deferred.Filter{Caller: caller}
	changes := func(f *deferred.Filter, after uint64, n int, want ...uint64) uint64 {
		t.Helper()
		all, position, err := s.Changes(t.Context(), f, after, n)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprint("changes after ", after), numbered(all), append([]uint64{}, want...))
		return position
	}
	begin := changes(f, 0, 0)
	a, b, c := storedCall(t, s, submitted("a", 1)), storedCall(t, s, submitted("b", 1)), storedCall(t, s, submitted("c", 1))
	other := submitted("d", 1)
	other.Caller = "another"
	storedCall(t, s, other)
	all := changes(f, begin, 9, a.Seq, b.Seq, c.Seq)
	one := changes(f, begin, 1, a.Seq)
	two := changes(f, one, 1, b.Seq)
	changes(f, two, 9, c.Seq)
	equal(t, "the present position", changes(f, 0, 0), all)
	equal(t, "nothing since", changes(f, all, 9), all)
	a = sending(t, s, a, true, 2)
	changes(f, two, 9, c.Seq, a.Seq)
	changes(f, all, 9, a.Seq)
	if err := s.Begin(t.Context(), a.Seq, 0, true, at(2)); err == nil {
		t.Error("begun twice")
	}
	now := changes(f, all, 9, a.Seq)
	// Of others something changes: the position goes on, and nothing is told.
	sending(t, s, deferred.Record{Seq: 4, ID: "id-d"}, true, 2)
	if later := changes(f, now, 9); later <= now {
		t.Errorf("position %d after %d, though others changed", later, now)
	}
	// Positions hold when what changed last is gone.
	wroteEnd(t, s, ends(a, deferred.StateFailed, 3))
	last := changes(f, 0, 0)
	if _, err := s.Purge(t.Context(), &deferred.Which{Filter: deferred.Filter{Caller: caller}}); err != nil {
		t.Fatal(err)
	}
	if position := changes(f, last, 9); position < last {
		t.Errorf("position %d, before it was %d", position, last)
	}
	changes(&deferred.Filter{Caller: caller, State: deferred.StatePending}, begin, 9, b.Seq, c.Seq)
	changes(&deferred.Filter{Caller: caller, State: deferred.StateFailed}, begin, 9)
	sending(t, s, b, true, 5)
	changes(f, last, 9, b.Seq)
}
