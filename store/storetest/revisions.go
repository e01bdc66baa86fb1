package storetest

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/sallyport/sallyport/admin"
)

func revisions() []promise {
	return []promise{
		{"revisions come in pages that stay as they are while some are added", pagesOfRevisions},
		{"the bounds of a page of revisions", boundsOfRevisions},
		{"one revision", oneRevision},
	}
}

func pagesOfRevisions(t *testing.T, s admin.Store) {
	const first, size = 10, 3
	grow(t, s, name, 1, first)
	grow(t, s, "policies/other", 1, 4)
	var got []uint64
	next := uint64(first + 1)
	for before := uint64(0); ; {
		page, err := s.Revisions(t.Context(), name, before, size)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page {
			equal(t, "revision", p, utc(*stored(name, version(p.Revision, false))))
			got = append(got, p.Revision)
		}
		if len(page) < size {
			break
		}
		before = page[size-1].Revision
		grow(t, s, name, next, next)
		next++
	}
	equal(t, "revisions", got, []uint64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1})
}

func boundsOfRevisions(t *testing.T, s admin.Store) {
	grow(t, s, name, 1, 3)
	for _, c := range []struct {
		before uint64
		n      int
		want   string
	}{
		{0, 10, "[3 2 1]"},
		{0, 1, "[3]"},
		{0, 0, "[]"},
		{0, -1, "[]"},
		{0, math.MinInt, "[]"},
		{0, math.MaxInt, "[3 2 1]"},
		{1, 10, "[]"},
		{2, 10, "[1]"},
		{3, 1, "[2]"},
		{4, 10, "[3 2 1]"},
		{math.MaxInt64, 10, "[3 2 1]"},
		{math.MaxInt64 + 1, 10, "[3 2 1]"},
		{math.MaxUint64, 10, "[3 2 1]"},
	} {
		page, err := s.Revisions(t.Context(), name, c.before, c.n)
		if err != nil {
			t.Fatal(err)
		}
		got := []uint64{}
		for _, p := range page {
			got = append(got, p.Revision)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("before %d, at most %d: got %v, want %s", c.before, c.n, got, c.want)
		}
	}
}

func oneRevision(t *testing.T, s admin.Store) {
	grow(t, s, name, 1, 3)
	write(t, s, version(3, false), stored(name, version(3, true)))
	for revision := uint64(1); revision <= 3; revision++ {
		got, err := s.Revision(t.Context(), name, revision)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "revision", got, utc(*stored(name, version(revision, false))))
	}
	for _, c := range []struct {
		name     string
		revision uint64
	}{{name, 0}, {name, 4}, {name, math.MaxInt64}, {name, math.MaxInt64 + 2}, {name, math.MaxUint64}, {"policies/other", 1}} {
		if _, err := s.Revision(t.Context(), c.name, c.revision); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("revision %d of %s: %v, want ErrNotFound", c.revision, c.name, err)
		}
	}
}
