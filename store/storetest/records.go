package storetest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/admin"
)

func records() []promise {
	return []promise{
		{"a record comes back as it was given, with an ID", recordsComeBack},
		{"records are filtered by target and principal", filteredRecords},
		{"records come in pages that stay as they are while some are added", pagesOfRecords},
		{"the bounds of a page of records", boundsOfRecords},
	}
}

// note writes a record, and the breaker of its target.
func note(t testing.TB, s admin.Store, r *admin.Record) {
	t.Helper()
	if err := s.WriteForced(t.Context(), r.Target, nil, r); err != nil {
		t.Fatal(err)
	}
}

func recordsComeBack(t *testing.T, s admin.Store) {
	given := []admin.Record{
		{},
		{ID: 99, Time: at(1), Principal: "p", Action: "CreatePolicy", Target: "policies/a", Reason: "r", EtagBefore: "b", EtagAfter: "a"},
		{Time: at(1), Principal: "\x00 \" ' \\ 😀 \u2028 <&>", Target: "naïve\n", Reason: strings.Repeat("😀", 1<<14), Changes: []admin.Change{
			{Path: "b", Before: "1", After: "2"},
			{Path: "a", After: "\x00<&>\u2028"},
			{Path: "b", Before: "1"},
			{},
		}},
		{Changes: []admin.Change{}},
		{Time: at(0), Principal: "earlier than the one before"},
	}
	for _, r := range given {
		copied := r
		note(t, s, &copied)
		equal(t, "the record that was given", copied, r)
	}
	got := read(t, s).Records
	if len(got) != len(given) {
		t.Fatalf("%d records of %d", len(got), len(given))
	}
	last := int64(0)
	for i, want := range given {
		r := got[len(got)-1-i]
		if r.ID <= last {
			t.Errorf("ID %d after %d", r.ID, last)
		}
		last = r.ID
		want.ID, want.Time = r.ID, want.Time.UTC()
		if len(want.Changes) == 0 {
			want.Changes = nil
		}
		equal(t, "record", r, want)
	}
}

func filteredRecords(t *testing.T, s admin.Store) {
	for i := range 12 {
		r := told(fmt.Sprintf("p%d", i%2), fmt.Sprintf("t%d", i%3))
		r.Reason = fmt.Sprint(i)
		note(t, s, r)
	}
	for _, c := range []struct{ target, principal, want string }{
		{"", "", "11 10 9 8 7 6 5 4 3 2 1 0"},
		{"t1", "", "10 7 4 1"},
		{"", "p1", "11 9 7 5 3 1"},
		{"t1", "p1", "7 1"},
		{"t9", "", ""},
		{"", "p9", ""},
		{"t1", "p9", ""},
		{"T1", "", ""},
		{"t%", "", ""},
		{"p1", "t1", ""},
	} {
		got, err := s.Records(t.Context(), c.target, c.principal, 0, all)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "target "+c.target+", principal "+c.principal, reasons(got), c.want)
	}
}

func reasons(records []admin.Record) string {
	var all []string
	for _, r := range records {
		all = append(all, r.Reason)
	}
	return strings.Join(all, " ")
}

func pagesOfRecords(t *testing.T, s admin.Store) {
	const size = 3
	for i := range 20 {
		r := told("operator", fmt.Sprintf("t%d", i%2))
		r.Reason = fmt.Sprint(i)
		note(t, s, r)
	}
	var got []admin.Record
	for before := int64(0); ; {
		page, err := s.Records(t.Context(), "t1", "operator", before, size)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page...)
		if len(page) < size {
			break
		}
		before = page[size-1].ID
		r := told("operator", "t1")
		r.Reason = "later"
		note(t, s, r)
	}
	equal(t, "records", reasons(got), "19 17 15 13 11 9 7 5 3 1")
}

func boundsOfRecords(t *testing.T, s admin.Store) {
	for i := range 3 {
		r := told("operator", "t")
		r.Reason = fmt.Sprint(i)
		note(t, s, r)
	}
	ids := read(t, s).Records
	for _, c := range []struct {
		before int64
		n      int
		want   string
	}{
		{0, 10, "2 1 0"},
		{0, 1, "2"},
		{0, 0, ""},
		{0, -1, ""},
		{0, math.MinInt, ""},
		{0, math.MaxInt, "2 1 0"},
		{-1, 10, ""},
		{math.MinInt64, 10, ""},
		{ids[0].ID, 10, "1 0"},
		{ids[0].ID, 1, "1"},
		{ids[0].ID + 1, 10, "2 1 0"},
		{ids[2].ID, 10, ""},
		{math.MaxInt64, 10, "2 1 0"},
	} {
		got, err := s.Records(t.Context(), "", "", c.before, c.n)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprintf("before %d, at most %d", c.before, c.n), reasons(got), c.want)
	}
}
