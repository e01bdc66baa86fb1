// Package storetest says what an [admin.Store] promises, as tests that every store passes.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/sallyport/sallyport/admin"
)

// Run tests the stores that open gives: each new and empty, and closed by the end of the test it was opened for.
func Run(t *testing.T, open func(t testing.TB) admin.Store) {
	t.Helper()
	for _, group := range [][]promise{policies(), revisions(), writers(), forced(), records(), contexts()} {
		for _, p := range group {
			t.Run(p.name, func(t *testing.T) { p.test(t, open(t)) })
		}
	}
}

// promise is one thing that a store promises.
type promise struct {
	name string
	test func(t *testing.T, s admin.Store)
}

const name = "policies/payments"

// at is an instant that shows what is lost of it: it has nanoseconds and stands in a zone that is not UTC.
func at(n int) time.Time {
	return time.Date(2026, 3, 29, 1, 59, 59, 999_999_000+n%1000, time.FixedZone("", 5*3600+45*60)).Add(time.Duration(n) * time.Minute)
}

// version is short for where a policy stands.
func version(revision uint64, deleted bool) admin.Version {
	return admin.Version{Revision: revision, Deleted: deleted}
}

// stored is a policy that tells its revision in everything it has.
func stored(name string, v admin.Version) *admin.Stored {
	n := int(v.Revision)
	return &admin.Stored{
		Name: name, Version: v, Document: fmt.Appendf(nil, "%s at %d", name, n), CreateTime: at(0), UpdateTime: at(n),
	}
}

// told is the record of a write of target.
func told(principal, target string) *admin.Record {
	return &admin.Record{Time: at(7), Principal: principal, Action: "UpdatePolicy", Target: target, Reason: "because"}
}

// write must succeed.
func write(t testing.TB, s admin.Store, before admin.Version, next *admin.Stored) {
	t.Helper()
	if err := s.WritePolicy(t.Context(), before, next, told("operator", next.Name)); err != nil {
		t.Fatalf("from %v to %v: %v", before, next.Version, err)
	}
}

// grow writes the revisions from..to of a policy that is not deleted.
func grow(t testing.TB, s admin.Store, name string, from, to uint64) {
	t.Helper()
	for r := from; r <= to; r++ {
		write(t, s, version(r-1, false), stored(name, version(r, false)))
	}
}

// Contents is all that a store has.
type Contents struct {
	Policies  []admin.Stored
	Revisions map[string][]admin.Stored
	Forced    []admin.Forced
	Records   []admin.Record
}

const all = 1 << 20

// read reads everything.
func read(t testing.TB, s admin.Store) Contents {
	t.Helper()
	c, err := Read(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Read reads everything: an error, or all of it.
func Read(ctx context.Context, s admin.Store) (Contents, error) {
	c := Contents{Revisions: map[string][]admin.Stored{}}
	var err error
	if c.Policies, err = s.Policies(ctx); err != nil {
		return c, err
	}
	for i := range c.Policies {
		tidy(&c.Policies[i])
		revisions, err := s.Revisions(ctx, c.Policies[i].Name, 0, all)
		if err != nil {
			return c, err
		}
		for i := range revisions {
			tidy(&revisions[i])
		}
		c.Revisions[c.Policies[i].Name] = revisions
	}
	if c.Forced, err = s.Forced(ctx); err != nil {
		return c, err
	}
	c.Records, err = s.Records(ctx, "", "", 0, all)
	for i := range c.Records {
		if len(c.Records[i].Changes) == 0 {
			c.Records[i].Changes = nil
		}
	}
	return c, err
}

// tidy makes an empty document and none the same: a store need not tell them apart.
func tidy(p *admin.Stored) {
	if len(p.Document) == 0 {
		p.Document = nil
	}
}

// utc is p as a store gives it back.
func utc(p admin.Stored) admin.Stored {
	p.CreateTime, p.UpdateTime = p.CreateTime.Round(0).UTC(), p.UpdateTime.Round(0).UTC()
	tidy(&p)
	return p
}

// equal compares to the last bit: the time zone counts, and what is in a nil slice does not.
func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\n got %s\nwant %s", what, short(got), short(want))
	}
}

func short(v any) []byte {
	const limit = 4000
	text := fmt.Appendf(nil, "%+v", v)
	if len(text) > limit {
		return append(bytes.Clone(text[:limit]), "…"...)
	}
	return text
}

// refused wants an error that is neither of the two that are answers.
func refused(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, admin.ErrChanged) || errors.Is(err, admin.ErrNotFound) {
		t.Errorf("%s: got %v, want an error that is neither ErrChanged nor ErrNotFound", what, err)
	}
}

// unchanged wants the store to be as it was.
func unchanged(t testing.TB, s admin.Store, before Contents) {
	t.Helper()
	equal(t, "the store changed", read(t, s), before)
}
