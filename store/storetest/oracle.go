package storetest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/admin"
)

// RunAgainst does the same at random to two stores, each new and empty, and wants the same of both. reopen may close and open the
// first; nil for a store that does not outlive it.
func RunAgainst(t *testing.T, open, oracle func(t testing.TB) admin.Store, reopen func(t testing.TB, s admin.Store) admin.Store) {
	t.Helper()
	rapid.Check(t, func(r *rapid.T) {
		d := &drive{t: t, r: r, got: open(t), want: oracle(t)}
		actions := map[string]func(*rapid.T){
			"policy": d.policy, "forced": d.forced, "revisions": d.revisions, "records": d.records, "": d.same,
		}
		if reopen != nil {
			actions["reopen"] = func(*rapid.T) { d.got = reopen(t, d.got) }
		}
		r.Repeat(actions)
	})
}

// drive does everything to both.
type drive struct {
	t         *testing.T
	r         *rapid.T
	got, want admin.Store
}

// Few of each, so that they meet.
func aName(r *rapid.T) string {
	return rapid.SampledFrom([]string{"policies/a", "policies/b", "policies/é"}).Draw(r, "name")
}

func anOrigin(r *rapid.T) string {
	return rapid.SampledFrom([]string{origin, "http://a.example.com:80"}).Draw(r, "origin")
}

func aTime(r *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(r, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(r, "ns"))
}

func aRecord(r *rapid.T, target string) *admin.Record {
	text := rapid.String()
	record := &admin.Record{
		ID: rapid.Int64().Draw(r, "ID"), Time: aTime(r), Principal: rapid.SampledFrom([]string{"p", "q", ""}).Draw(r, "principal"),
		Action: text.Draw(r, "action"), Target: target, Reason: text.Draw(r, "reason"),
		EtagBefore: text.Draw(r, "before"), EtagAfter: text.Draw(r, "after"),
	}
	for range rapid.IntRange(0, 3).Draw(r, "changes") {
		record.Changes = append(record.Changes, admin.Change{Path: text.Draw(r, "p"), Before: text.Draw(r, "b"), After: text.Draw(r, "a")})
	}
	return record
}

func (d *drive) policy(r *rapid.T) {
	next := &admin.Stored{
		Name:       aName(r),
		Version:    version(uint64(rapid.IntRange(0, 4).Draw(r, "revision")), rapid.Bool().Draw(r, "deleted")),
		Document:   rapid.SliceOf(rapid.Byte()).Draw(r, "document"),
		CreateTime: aTime(r), UpdateTime: aTime(r),
	}
	before := version(uint64(rapid.IntRange(0, 4).Draw(r, "before")), rapid.Bool().Draw(r, "was deleted"))
	// Mostly what stands there, or every write would fail.
	if rapid.IntRange(0, 3).Draw(r, "right") > 0 {
		before = d.version(next.Name)
		next.Revision = before.Revision + uint64(rapid.IntRange(0, 1).Draw(r, "more"))
	}
	record := aRecord(r, next.Name)
	d.errors("WritePolicy", d.got.WritePolicy(d.t.Context(), before, next, record), d.want.WritePolicy(d.t.Context(), before, next, record))
}

// version is where the policy stands in the oracle.
func (d *drive) version(name string) admin.Version {
	policies, err := d.want.Policies(d.t.Context())
	if err != nil {
		d.r.Fatal(err)
	}
	for _, p := range policies {
		if p.Name == name {
			return p.Version
		}
	}
	return admin.Version{}
}

func (d *drive) forced(r *rapid.T) {
	o := anOrigin(r)
	var f *admin.Forced
	if rapid.Bool().Draw(r, "set") {
		f = &admin.Forced{
			Origin: o, Open: rapid.Bool().Draw(r, "open"), Principal: rapid.String().Draw(r, "principal"),
			Reason: rapid.String().Draw(r, "reason"), CreateTime: aTime(r),
		}
		if rapid.Bool().Draw(r, "ends") {
			f.ExpireTime = aTime(r)
		}
	}
	record := aRecord(r, o)
	d.errors("WriteForced", d.got.WriteForced(d.t.Context(), o, f, record), d.want.WriteForced(d.t.Context(), o, f, record))
}

func (d *drive) revisions(r *rapid.T) {
	n, before, limit := aName(r), rapid.Uint64().Draw(r, "before"), rapid.IntRange(-1, 4).Draw(r, "n")
	if rapid.Bool().Draw(r, "near") {
		before %= 6
	}
	got, err := d.got.Revisions(d.t.Context(), n, before, limit)
	want, wantErr := d.want.Revisions(d.t.Context(), n, before, limit)
	d.errors("Revisions", err, wantErr)
	for _, l := range [][]admin.Stored{got, want} {
		for i := range l {
			tidy(&l[i])
		}
	}
	d.equal("Revisions", got, want)
	one, err := d.got.Revision(d.t.Context(), n, before)
	wantOne, wantErr := d.want.Revision(d.t.Context(), n, before)
	d.errors("Revision", err, wantErr)
	tidy(&one)
	tidy(&wantOne)
	d.equal("Revision", one, wantOne)
}

func (d *drive) records(r *rapid.T) {
	target := rapid.SampledFrom([]string{"", "policies/a", origin}).Draw(r, "target")
	principal := rapid.SampledFrom([]string{"", "p", "q"}).Draw(r, "principal")
	before, limit := rapid.Int64Range(-1, 30).Draw(r, "before"), rapid.IntRange(-1, 10).Draw(r, "n")
	got, err := d.got.Records(d.t.Context(), target, principal, before, limit)
	want, wantErr := d.want.Records(d.t.Context(), target, principal, before, limit)
	d.errors("Records", err, wantErr)
	d.equal("Records", got, want)
}

// same compares all that is stored, after every step.
func (d *drive) same(*rapid.T) {
	got, err := Read(d.t.Context(), d.got)
	if err != nil {
		d.r.Fatal(err)
	}
	want, err := Read(d.t.Context(), d.want)
	if err != nil {
		d.r.Fatal(err)
	}
	d.equal("the store", got, want)
}

func (d *drive) errors(what string, got, want error) {
	if kind(got) != kind(want) {
		d.r.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func (d *drive) equal(what string, got, want any) {
	// Of slices, none and empty are the same.
	if !reflect.DeepEqual(got, want) && !bothEmpty(got, want) {
		d.r.Fatalf("%s\n got %s\nwant %s", what, short(got), short(want))
	}
}

func bothEmpty(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0
}

// kind is what a caller branches on.
func kind(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, admin.ErrChanged):
		return "changed"
	case errors.Is(err, admin.ErrNotFound):
		return "not found"
	default:
		return "other"
	}
}
