package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
)

func dues() []deferredPromise {
	return []deferredPromise{
		{"what is due comes, and when the next is", dueComes},
		{"lanes take turns, whatever waits in one", lanesTakeTurns},
		{"in a lane the most critical come first, then the oldest", criticalFirst},
		{"lanes and records that are left out are as if they were not", leftOutOfDue},
	}
}

// due asks for n, checks them and the instant of the next, and gives their operation ids.
func due(t testing.TB, s Calls, n, most int, without map[deferred.Lane]bool, busy map[uint64]bool) []string {
	t.Helper()
	all, next, err := s.Due(t.Context(), at(n), most, without, busy)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, r := range all {
		ids = append(ids, r.OperationID)
		want, err := s.Find(t.Context(), r.Caller, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		want.Attempts, want.Response = nil, nil
		equal(t, "a due record", plainCall(r), plainCall(want))
	}
	if !next.IsZero() && !next.After(at(n)) {
		t.Errorf("the next is due at %v, which is not after %v", next, at(n))
	}
	return ids
}

func nextDue(t testing.TB, s Calls, n int, without map[deferred.Lane]bool, want time.Time) {
	t.Helper()
	_, next, err := s.Due(t.Context(), at(n), 100, without, nil)
	if err != nil || !next.Equal(want) {
		t.Errorf("the next after %d is due at %v, want %v (%v)", n, next, want, err)
	}
}

func dueComes(t *testing.T, s Calls) {
	nextDue(t, s, 5, nil, time.Time{})
	for i, n := range []int{5, 3, 8} {
		storedCall(t, s, submitted(fmt.Sprint(i), n))
	}
	far := submitted("far", 20)
	far.Origin = otherOrigin
	storedCall(t, s, far)
	equal(t, "before all", due(t, s, 2, 9, nil, nil), []string{})
	nextDue(t, s, 2, nil, at(3))
	equal(t, "at the instant", due(t, s, 3, 9, nil, nil), []string{"1"})
	nextDue(t, s, 3, nil, at(5))
	nextDue(t, s, 5, nil, at(8))
	nextDue(t, s, 8, nil, at(20))
	nextDue(t, s, 20, nil, time.Time{})
	equal(t, "none is asked for", due(t, s, 9, 0, nil, nil), []string{})
	if _, next, err := s.Due(t.Context(), at(5), 2, nil, nil); err != nil || !next.IsZero() {
		t.Errorf("there may be more now, and the next is at %v, %v", next, err)
	}
	// What is under way or over is not due.
	r, _ := s.Find(t.Context(), caller, "id-1")
	r = sending(t, s, r, true, 4)
	equal(t, "one is sending", due(t, s, 6, 9, nil, nil), []string{"0"})
	r.State, r.NextAttempt = deferred.StateRetrying, at(7)
	r = wroteEnd(t, s, r)
	nextDue(t, s, 6, nil, at(7))
	equal(t, "it retries", len(due(t, s, 7, 9, nil, nil)), 2)
	wroteEnd(t, s, ends(r, deferred.StateFailed, 7))
	if _, err := s.Cancel(t.Context(), caller, "id-0", at(7), time.Time{}); err != nil {
		t.Fatal(err)
	}
	nextDue(t, s, 7, nil, at(8))
	equal(t, "what is left", due(t, s, 8, 9, nil, nil), []string{"2"})
}

// waitingIn submits as many to a lane.
func waitingIn(t testing.TB, s Calls, l deferred.Lane, many, n int) {
	t.Helper()
	for i := range many {
		r := submitted(fmt.Sprintf("%s|%s|%d|%d", l.Caller, l.Origin, n, i), n)
		r.Caller, r.Origin = l.Caller, l.Origin
		storedCall(t, s, r)
	}
}

// perLane counts what is due by lane.
func perLane(t testing.TB, s Calls, n, most int, without map[deferred.Lane]bool, busy map[uint64]bool) map[deferred.Lane]int {
	t.Helper()
	all, _, err := s.Due(t.Context(), at(n), most, without, busy)
	if err != nil {
		t.Fatal(err)
	}
	count := map[deferred.Lane]int{}
	seen := map[uint64]bool{}
	for i, r := range all {
		if seen[r.Seq] || busy[r.Seq] {
			t.Errorf("%d comes twice, or is busy", r.Seq)
		}
		seen[r.Seq] = true
		count[deferred.Lane{Caller: r.Caller, Origin: r.Origin}]++
		if i == 0 && len(all) > most {
			t.Errorf("%d, want %d at most", len(all), most)
		}
	}
	return count
}

func lanesTakeTurns(t *testing.T, s Calls) {
	a, b, c := deferred.Lane{Caller: "x", Origin: "o1"}, deferred.Lane{Caller: "x", Origin: "o2"}, deferred.Lane{Caller: "y", Origin: "o1"}
	waitingIn(t, s, a, 30, 1)
	waitingIn(t, s, b, 2, 2)
	waitingIn(t, s, c, 7, 3)
	waitingIn(t, s, deferred.Lane{Caller: "z", Origin: "o1"}, 3, 50)
	equal(t, "three", perLane(t, s, 5, 3, nil, nil), map[deferred.Lane]int{a: 1, b: 1, c: 1})
	equal(t, "six", perLane(t, s, 5, 6, nil, nil), map[deferred.Lane]int{a: 2, b: 2, c: 2})
	equal(t, "ten", perLane(t, s, 5, 10, nil, nil), map[deferred.Lane]int{a: 4, b: 2, c: 4})
	equal(t, "twenty", perLane(t, s, 5, 20, nil, nil), map[deferred.Lane]int{a: 11, b: 2, c: 7})
	equal(t, "all", perLane(t, s, 5, 1000, nil, nil), map[deferred.Lane]int{a: 30, b: 2, c: 7})
	equal(t, "before the last", perLane(t, s, 2, 4, nil, nil), map[deferred.Lane]int{a: 2, b: 2})
}

func criticalFirst(t *testing.T, s Calls) {
	for i, c := range []call.Criticality{
		call.CriticalitySheddable, call.CriticalityNormal, call.CriticalityUnspecified, call.CriticalityCritical, call.CriticalityNormal, call.CriticalityCritical,
	} {
		r := submitted(fmt.Sprint(i), 1)
		r.Criticality = c
		storedCall(t, s, r)
	}
	later := submitted("later", 2)
	later.Criticality = call.CriticalityCritical
	storedCall(t, s, later)
	want := []string{"3", "5", "later", "1", "2", "4", "0"}
	for n := range len(want) + 1 {
		equal(t, fmt.Sprint("first ", n), due(t, s, 3, n, nil, nil), want[:n])
	}
	equal(t, "an instant before", due(t, s, 1, 9, nil, nil), []string{"3", "5", "1", "2", "4", "0"})
}

func leftOutOfDue(t *testing.T, s Calls) {
	a, b, c := deferred.Lane{Caller: "x", Origin: "o1"}, deferred.Lane{Caller: "x", Origin: "o2"}, deferred.Lane{Caller: "y", Origin: "o1"}
	for i, l := range []deferred.Lane{a, b, c} {
		waitingIn(t, s, l, 3, 1)
		waitingIn(t, s, l, 1, 10+i)
	}
	equal(t, "a lane", perLane(t, s, 5, 100, map[deferred.Lane]bool{a: true}, nil), map[deferred.Lane]int{b: 3, c: 3})
	equal(t, "an origin", perLane(t, s, 5, 100, map[deferred.Lane]bool{{Origin: "o1"}: true}, nil), map[deferred.Lane]int{b: 3})
	equal(t, "what is false is not", perLane(t, s, 5, 3, map[deferred.Lane]bool{{Origin: "o1"}: false}, nil), map[deferred.Lane]int{a: 1, b: 1, c: 1})
	nextDue(t, s, 5, nil, at(10))
	nextDue(t, s, 5, map[deferred.Lane]bool{a: true}, at(11))
	nextDue(t, s, 5, map[deferred.Lane]bool{{Origin: "o1"}: true}, at(11))
	nextDue(t, s, 10, map[deferred.Lane]bool{a: true, b: true}, at(12))
	nextDue(t, s, 0, map[deferred.Lane]bool{a: true, b: true, c: true}, time.Time{})
	busy := map[uint64]bool{}
	all, _, err := s.Due(t.Context(), at(5), 5, nil, nil)
	if err != nil || len(all) != 5 {
		t.Fatal(len(all), err)
	}
	for _, r := range all {
		busy[r.Seq] = true
	}
	rest := perLane(t, s, 5, 100, nil, busy)
	if rest[a]+rest[b]+rest[c] != 4 {
		t.Errorf("beside five busy ones: %v", rest)
	}
}

// NoLaneStarves wants that lanes take turns from one use of Due to the next too, which a store need not do that nobody keeps much in.
func NoLaneStarves(t *testing.T, s Calls) {
	t.Helper()
	const lanes = 12
	for i := range lanes {
		waitingIn(t, s, deferred.Lane{Caller: "x", Origin: fmt.Sprintf("o%02d", i)}, 6, i)
	}
	served := map[string]int{}
	for range 2 * lanes / 3 {
		all, _, err := s.Due(t.Context(), at(100), 3, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			served[r.Origin]++
			sending(t, s, r, true, 100)
		}
	}
	for i := range lanes {
		if n := served[fmt.Sprintf("o%02d", i)]; n != 2 {
			t.Errorf("lane %d was served %d times, want 2: %v", i, n, served)
		}
	}
}
