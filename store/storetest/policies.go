package storetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/admin"
)

func policies() []promise {
	return []promise{
		{"an empty store has nothing", emptyStore},
		{"a policy is created, updated, deleted and created again", lifeOfAPolicy},
		{"a deleted policy is rolled back", rollbackOfADeletedPolicy},
		{"a write from any other version is ErrChanged", writesFromOtherVersions},
		{"a version that cannot follow is refused", versionsThatCannotFollow},
		{"a write of the same revision changes Deleted alone", sameRevision},
		{"policies are listed by name", policiesByName},
		{"documents come back to the byte", documents},
		{"times come back to the nanosecond", times},
		{"a time that cannot be kept is refused", impossibleTimes},
		{"nothing is shared with the caller", nothingShared},
	}
}

func emptyStore(t *testing.T, s admin.Store) {
	if got := read(t, s); len(got.Policies)+len(got.Forced)+len(got.Records) != 0 {
		t.Errorf("got %+v", got)
	}
	if got, err := s.Revisions(t.Context(), name, 0, 10); len(got) != 0 || err != nil {
		t.Errorf("revisions of nothing: %v, %v", got, err)
	}
	if _, err := s.Revision(t.Context(), name, 1); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("a revision of nothing: %v, want ErrNotFound", err)
	}
}

func lifeOfAPolicy(t *testing.T, s admin.Store) {
	deleted := stored(name, version(2, true))
	again := stored(name, version(3, false))
	again.CreateTime = at(3)
	for _, step := range []struct {
		before admin.Version
		next   *admin.Stored
	}{
		{admin.Version{}, stored(name, version(1, false))},
		{version(1, false), stored(name, version(2, false))},
		{version(2, false), deleted},
		{version(2, true), again},
	} {
		write(t, s, step.before, step.next)
		got := read(t, s)
		equal(t, "the policy", got.Policies, []admin.Stored{utc(*step.next)})
	}
	first, second := utc(*stored(name, version(1, false))), utc(*stored(name, version(2, false)))
	got := read(t, s)
	equal(t, "revisions", got.Revisions[name], []admin.Stored{utc(*again), second, first})
	if len(got.Records) != 4 {
		t.Errorf("%d records of 4 writes", len(got.Records))
	}
}

func rollbackOfADeletedPolicy(t *testing.T, s admin.Store) {
	grow(t, s, name, 1, 3)
	write(t, s, version(3, false), stored(name, version(3, true)))
	old, err := s.Revision(t.Context(), name, 1)
	if err != nil {
		t.Fatal(err)
	}
	next := stored(name, version(4, false))
	next.Document = old.Document
	write(t, s, version(3, true), next)
	got := read(t, s)
	equal(t, "the policy", got.Policies, []admin.Stored{utc(*next)})
	if len(got.Revisions[name]) != 4 {
		t.Errorf("%d revisions, want 4", len(got.Revisions[name]))
	}
}

func writesFromOtherVersions(t *testing.T, s admin.Store) {
	const gone = "policies/gone"
	grow(t, s, name, 1, 3)
	grow(t, s, gone, 1, 3)
	write(t, s, version(3, false), stored(gone, version(3, true)))
	before := read(t, s)
	for target, now := range map[string]admin.Version{
		name: version(3, false), gone: version(3, true), "policies/never": {},
	} {
		for revision := range uint64(6) {
			for _, deleted := range []bool{false, true} {
				from := version(revision, deleted)
				if from == now {
					continue
				}
				for _, next := range []admin.Version{
					version(revision, true), version(revision, false), version(revision+1, false), version(revision+1, true),
				} {
					if !next.Follows(from) {
						continue
					}
					err := s.WritePolicy(t.Context(), from, stored(target, next), told("operator", target))
					if !errors.Is(err, admin.ErrChanged) {
						t.Errorf("%s at %v written from %v to %v: %v, want ErrChanged", target, now, from, next, err)
					}
				}
			}
		}
	}
	unchanged(t, s, before)
}

func versionsThatCannotFollow(t *testing.T, s admin.Store) {
	grow(t, s, name, 1, 3)
	before := read(t, s)
	for target, now := range map[string]admin.Version{name: version(3, false), "policies/never": {}} {
		for _, next := range []uint64{now.Revision + 2, now.Revision - 1, 0, 1 << 63, 1<<64 - 1} {
			err := s.WritePolicy(t.Context(), now, stored(target, version(next, false)), told("operator", target))
			refused(t, target, err)
		}
	}
	unchanged(t, s, before)
}

func sameRevision(t *testing.T, s admin.Store) {
	grow(t, s, name, 1, 2)
	want := utc(*stored(name, version(2, false)))
	for _, deleted := range []bool{true, true, false} { // what is deleted already too: the write stands, and is recorded
		next := &admin.Stored{Name: name, Version: version(2, deleted), Document: []byte("other"), CreateTime: at(50), UpdateTime: at(51)}
		write(t, s, want.Version, next)
		want.Deleted = deleted
		got := read(t, s)
		equal(t, "the policy", got.Policies, []admin.Stored{want})
		for _, r := range got.Revisions[name] {
			if r.Deleted {
				t.Errorf("revision %d is deleted", r.Revision)
			}
		}
	}
	if got := read(t, s); len(got.Revisions[name]) != 2 || len(got.Records) != 5 {
		t.Errorf("%d revisions and %d records, want 2 and 5", len(got.Revisions[name]), len(got.Records))
	}
	// What is written and deleted at once is a revision like any other.
	write(t, s, version(2, false), stored(name, version(3, true)))
	got := read(t, s)
	equal(t, "the policy", got.Policies, []admin.Stored{utc(*stored(name, version(3, true)))})
	equal(t, "its revision", got.Revisions[name][0], utc(*stored(name, version(3, false))))
}

// names are such that a store which compares otherwise than by bytes, or builds its SQL, shows it.
func names() []string {
	return []string{
		"policies/a", "policies/A", "policies/á", "policies/a\u0301", "policies/%", "policies/_", "policies/'; --", `policies/"`,
		"policies/?1", "policies/\x00", "policies/\x00b", "policies/a/b", "policies/a b", "policies/я", "policies/😀", "policies/ｚ", "policies/",
		"policies/" + strings.Repeat("n", 4000), "",
	}
}

func policiesByName(t *testing.T, s admin.Store) {
	var want []admin.Stored
	for _, n := range names() {
		grow(t, s, n, 1, 2)
		want = append(want, utc(*stored(n, version(2, false))))
	}
	slices.SortFunc(want, func(a, b admin.Stored) int { return strings.Compare(a.Name, b.Name) })
	got := read(t, s)
	equal(t, "policies", got.Policies, want)
	for _, n := range names() {
		if len(got.Revisions[n]) != 2 {
			t.Errorf("%q has %d revisions, want 2", n, len(got.Revisions[n]))
		}
		records, err := s.Records(t.Context(), n, "", 0, all)
		if want := 2; n != "" && len(records) != want || err != nil {
			t.Errorf("%q has %d records, want %d (%v)", n, len(records), want, err)
		}
	}
}

func documents(t *testing.T, s admin.Store) {
	large := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(large) // never fails
	for i, document := range [][]byte{
		nil, {}, {0}, []byte("\x00\xff\xfe"), []byte("naïve 😀\r\n"), []byte("x'00'"), large, make([]byte, 1<<16),
	} {
		next := stored(name, version(uint64(i)+1, false))
		next.Document = document
		write(t, s, version(uint64(i), false), next)
		got, err := s.Revision(t.Context(), name, next.Revision)
		if err != nil || !bytes.Equal(got.Document, document) {
			t.Errorf("document %d: %d bytes came back of %d (%v)", i, len(got.Document), len(document), err)
		}
		if p := read(t, s).Policies[0]; !bytes.Equal(p.Document, document) {
			t.Errorf("document %d in the list: %d bytes of %d", i, len(p.Document), len(document))
		}
	}
}

func times(t *testing.T, s admin.Store) {
	for i, instant := range []time.Time{
		at(1),
		{},
		time.Unix(0, 0), time.Unix(-1, 999_999_999), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(1677, 1, 1, 0, 0, 0, 1, time.UTC),
		time.Date(2263, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 120_000_000, time.Local), //nolint:gosmopolitan // so that it must come back in UTC
		time.Now(), // with a reading of the monotonic clock
	} {
		next := stored(name, version(uint64(i)+1, false))
		next.CreateTime, next.UpdateTime = instant, instant.Add(1)
		if instant.UTC().Year() == 9999 {
			next.UpdateTime = instant
		}
		record := told("operator", name)
		record.Time = instant
		if err := s.WritePolicy(t.Context(), version(uint64(i), false), next, record); err != nil {
			t.Fatalf("%v: %v", instant, err)
		}
		got := read(t, s)
		equal(t, "the policy", got.Policies, []admin.Stored{utc(*next)})
		equal(t, "the record", got.Records[0].Time, instant.Round(0).UTC())
	}
}

func impossibleTimes(t *testing.T, s admin.Store) {
	grow(t, s, name, 1, 1)
	before := read(t, s)
	for _, instant := range []time.Time{
		time.Date(-1, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)),
	} {
		created, updated := stored(name, version(2, false)), stored(name, version(2, false))
		created.CreateTime, updated.UpdateTime = instant, instant
		recorded := told("operator", name)
		recorded.Time = instant
		refused(t, "created", s.WritePolicy(t.Context(), version(1, false), created, told("operator", name)))
		refused(t, "updated", s.WritePolicy(t.Context(), version(1, false), updated, told("operator", name)))
		refused(t, "recorded", s.WritePolicy(t.Context(), version(1, false), stored(name, version(2, false)), recorded))
		f := force(origin, true)
		f.ExpireTime = instant
		refused(t, "expires", s.WriteForced(t.Context(), origin, f, told("operator", origin)))
		refused(t, "recorded", s.WriteForced(t.Context(), origin, nil, recorded))
	}
	unchanged(t, s, before)
}

func nothingShared(t *testing.T, s admin.Store) {
	next := stored(name, version(1, false))
	record := told("operator", name)
	record.Changes = []admin.Change{{Path: "a", Before: "b", After: "c"}}
	f := force(origin, true)
	if err := s.WritePolicy(t.Context(), admin.Version{}, next, record); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteForced(t.Context(), origin, f, told("operator", origin)); err != nil {
		t.Fatal(err)
	}
	before := read(t, s)
	spoil := func(p admin.Stored) { clear(p.Document) }
	spoil(*next)
	clear(record.Changes)
	*next, *record, *f = admin.Stored{}, admin.Record{}, admin.Forced{}
	unchanged(t, s, before)
	given := read(t, s)
	spoil(given.Policies[0])
	spoil(given.Revisions[name][0])
	clear(given.Records[1].Changes)
	clear(given.Forced)
	one, err := s.Revision(t.Context(), name, 1)
	if err != nil {
		t.Fatal(err)
	}
	spoil(one)
	// What was read first is judged too: it must not have changed with what was read later.
	if string(before.Policies[0].Document) != name+" at 1" {
		t.Errorf("the document is now %q", before.Policies[0].Document)
	}
	unchanged(t, s, before)
}
