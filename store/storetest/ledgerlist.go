package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sallyport/sallyport/operation"
)

func lists() []ledgerPromise {
	return []ledgerPromise{
		{"a list has the latest first, and the greatest id of one instant", listsInOrder},
		{"a list of one state has no other", listsOfStates},
		{"a cursor stays where it is while others come", cursorsStay},
	}
}

// ids lists as many.
func ids(t testing.TB, l Ledger, s operation.State, after operation.Cursor, n int) []string {
	t.Helper()
	list, err := l.Operations(t.Context(), caller, s, after, n)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, r := range list {
		if r.Caller != caller {
			t.Errorf("%s is of %s", r.ID, r.Caller)
		}
		stands(t, l, r)
		all = append(all, r.ID)
	}
	return all
}

func listsInOrder(t *testing.T, l Ledger) {
	for _, k := range []operation.Key{{Caller: "", ID: "x"}, {Caller: caller + "2", ID: "x"}, {Caller: caller[:5], ID: "x"}} {
		begun(t, l, started(k, 2))
	}
	for _, one := range []struct {
		id string
		n  int
	}{{"b", 1}, {"a", 3}, {"B", 2}, {"c", 2}, {"ca", 2}, {"c~", 2}, {"z", 0}} {
		begun(t, l, started(key(one.id), one.n))
	}
	want := []string{"a", "c~", "ca", "c", "B", "b", "z"}
	// Leading again does not move it: it was created then.
	lead, err := l.Operation(t.Context(), key("z"))
	if err != nil {
		t.Fatal(err)
	}
	wrote(t, l, freed(lead, 4))
	begun(t, l, started(key("z"), 9))
	for n := -1; n < len(want)+2; n++ {
		equal(t, fmt.Sprint("first ", n), ids(t, l, 0, operation.Cursor{}, n), want[:min(max(n, 0), len(want))])
	}
	for i, id := range want {
		r, err := l.Operation(t.Context(), key(id))
		if err != nil {
			t.Fatal(err)
		}
		after := operation.Cursor{CreateTime: r.CreateTime, ID: id}
		equal(t, "after "+id, ids(t, l, 0, after, all), want[i+1:])
		equal(t, "two after "+id, ids(t, l, 0, after, 2), want[i+1:min(i+3, len(want))])
	}
	// A cursor need not name a record, and its zone does not matter.
	equal(t, "after nothing", ids(t, l, 0, operation.Cursor{CreateTime: at(2), ID: "c0"}, all), want[3:])
	equal(t, "before the ids", ids(t, l, 0, operation.Cursor{CreateTime: at(2)}, all), want[5:])
	equal(t, "at the end of time", ids(t, l, 0, operation.Cursor{ID: "x"}, all), []string{})
}

func listsOfStates(t *testing.T, l Ledger) {
	of := map[operation.State][]string{0: {}, 1: {}, 2: {}, 3: {}}
	for n := range 12 {
		id := fmt.Sprintf("%02d", n)
		lead := begun(t, l, started(key(id), n))
		state := operation.State(n%3) + 1
		if lead.State = state; state != operation.StateRunning {
			wrote(t, l, &lead)
		}
		of[state], of[0] = append(of[state], id), append(of[0], id)
	}
	for s, want := range of {
		slices.Reverse(want)
		equal(t, fmt.Sprint("state ", s), ids(t, l, s, operation.Cursor{}, all), want)
		equal(t, fmt.Sprint("state ", s, " behind one"), ids(t, l, s, operation.Cursor{CreateTime: at(6), ID: "06"}, all),
			slices.DeleteFunc(slices.Clone(want), func(id string) bool { return id >= "06" }))
	}
	equal(t, "no state", ids(t, l, 7, operation.Cursor{}, all), []string{})
}

func cursorsStay(t *testing.T, l Ledger) {
	const records = 23
	for n := range records {
		begun(t, l, started(key(fmt.Sprintf("%02d", n)), n/3)) // three of an instant
	}
	var (
		got   []string
		after operation.Cursor
	)
	for page := 0; ; page++ {
		list, err := l.Operations(t.Context(), caller, 0, after, 4)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		for _, r := range list {
			got = append(got, r.ID)
		}
		last := list[len(list)-1]
		after = operation.Cursor{CreateTime: last.CreateTime, ID: last.ID}
		begun(t, l, started(key(fmt.Sprint("new ", page)), 100+page))
	}
	if len(got) != records || !slices.IsSortedFunc(got, func(a, b string) int { return -compare(a, b) }) || got[records-1] != "00" {
		t.Errorf("%d records: %v", len(got), got)
	}
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}
