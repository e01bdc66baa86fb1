package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

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
		r = ref(storedCall(t, s, r))
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

func ref[T any](v T) *T { return &v }

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
	r.Outcome, r.Reason = call.OutcomeCancelled, call.ReasonCancelled
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

func deferredShared() []deferredPromise {
	return []deferredPromise{
		{"of many who submit at once exactly one does", oneSubmits},
		{"of many who begin at once exactly one does", oneBegins},
		{"what is given is not kept, and what comes back is the caller's", nothingOfCallsShared},
		{"a context that has ended changes nothing and is the error", endedDeferredContexts},
	}
}

func oneSubmits(t *testing.T, s Calls) {
	for round := range 5 {
		stored := make([]bool, together)
		ids := make([]string, together)
		sideBySide(func(i int) {
			r := submitted(fmt.Sprint(round), 1)
			r.ID = fmt.Sprintf("id-%d-%d", round, i)
			stands, mine, err := s.Submit(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			stored[i], ids[i] = mine, stands.ID
		})
		n := 0
		for i := range stored {
			if stored[i] {
				n++
			}
			if ids[i] != ids[0] {
				t.Errorf("told of %s and %s", ids[i], ids[0])
			}
		}
		if n != 1 {
			t.Errorf("%d submitted", n)
		}
	}
	if all := listedCalls(t, s, deferred.Filter{}, 0, 99); len(all) != 5 {
		t.Errorf("%d calls, want 5", len(all))
	}
}

func oneBegins(t *testing.T, s Calls) {
	r := storedCall(t, s, submitted("a", 1))
	begun := make([]bool, together)
	sideBySide(func(i int) {
		err := s.Begin(t.Context(), r.Seq, 0, true, at(i))
		if begun[i] = err == nil; err != nil && !errors.Is(err, deferred.ErrSuperseded) {
			t.Error(err)
		}
	})
	n := 0
	for _, b := range begun {
		if b {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d have begun", n)
	}
}

func nothingOfCallsShared(t *testing.T, s Calls) {
	spoil := func(r *deferred.Record) {
		clear(r.Request)
		clear(r.Labels)
		clear(r.Attempts)
		if r.Response != nil {
			clear(r.Response.Body)
			clear(r.Response.Headers)
		}
	}
	given := submitted("a", 1)
	given.Labels = map[string]string{"a": "b"}
	given.Attempts, given.Tried = []call.Attempt{made(1, 1)}, 1
	given.Response = &call.Response{Status: 200, Headers: []call.Header{{Name: "A", Value: "b"}}, Body: []byte("body")}
	want := plainCall(*given)
	want.Seq = 1
	want.Request = slices.Clone(given.Request)
	want.Labels = map[string]string{"a": "b"}
	want.Response = &call.Response{Status: 200, Headers: []call.Header{{Name: "A", Value: "b"}}, Body: []byte("body")}
	stands, _, err := s.Submit(t.Context(), given)
	if err != nil {
		t.Fatal(err)
	}
	spoil(given)
	standsCall(t, s, want)
	spoil(&stands)
	standsCall(t, s, want)
	for range 2 {
		found, err := s.Find(t.Context(), caller, want.ID)
		all, _, err2 := s.Due(t.Context(), at(5), 5, nil, nil)
		list, err3 := s.List(t.Context(), &deferred.Filter{}, 0, 5)
		if err := errors.Join(err, err2, err3); err != nil || len(all) != 1 || len(list) != 1 {
			t.Fatal(len(all), len(list), err)
		}
		for _, r := range []*deferred.Record{&found, &all[0], &list[0]} {
			spoil(r)
		}
		standsCall(t, s, want)
	}
}

func endedDeferredContexts(t *testing.T, s Calls) {
	r := sending(t, s, storedCall(t, s, submitted("a", 1)), true, 2)
	failed := finishedCall(t, s, "b", deferred.StateFailed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := ends(r, deferred.StateCompleted, 3)
	for what, f := range map[string]func() error{
		"Submit":  func() error { _, _, err := s.Submit(ctx, submitted("c", 1)); return err },
		"Begin":   func() error { return s.Begin(ctx, r.Seq, r.Epoch, true, at(3)) },
		"End":     func() error { return s.End(ctx, &n, nil) },
		"Due":     func() error { _, _, err := s.Due(ctx, at(3), 1, nil, nil); return err },
		"Find":    func() error { _, err := s.Find(ctx, caller, r.ID); return err },
		"List":    func() error { _, err := s.List(ctx, &deferred.Filter{}, 0, 1); return err },
		"Counts":  func() error { _, err := s.Counts(ctx, caller); return err },
		"Recover": func() error { _, err := s.Recover(ctx, at(3)); return err },
		"Cancel":  func() error { _, err := s.Cancel(ctx, caller, r.ID, at(3), at(3)); return err },
		"Redrive": func() error { _, err := s.Redrive(ctx, named(failed.ID), 1, at(3)); return err },
		"Purge":   func() error { _, err := s.Purge(ctx, named(failed.ID)); return err },
		"Expire":  func() error { _, _, err := s.Expire(ctx, at(3)); return err },
		"Changes": func() error { _, _, err := s.Changes(ctx, &deferred.Filter{}, 0, 1); return err },
	} {
		if err := f(); !errors.Is(err, ctx.Err()) {
			t.Errorf("%s: %v, want %v", what, err, ctx.Err())
		}
	}
	standsCall(t, s, r)
	standsCall(t, s, failed)
	goneCall(t, s, caller, "id-c")
}
