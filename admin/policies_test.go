package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/policy"
	stored "github.com/sallyport/sallyport/store/memory"
)

// wrote is what the documents of these tests say.
type wrote struct {
	Path     string `json:"path"`
	Attempts uint32 `json:"attempts"`
}

func (s wrote) draft() admin.Draft {
	document := fmt.Appendf(nil, `{"path": %q, "attempts": %d}`, s.Path, s.Attempts)
	r := policy.Rule{Match: policy.Match{PathPrefix: s.Path}}
	r.Retry.MaxAttempts = new(s.Attempts)
	return admin.Draft{Rule: r, Document: document}
}

func parse(document []byte) (policy.Rule, error) {
	var s wrote
	if err := json.Unmarshal(document, &s); err != nil {
		return policy.Rule{}, err
	}
	return s.draft().Rule, nil
}

// desk is policies with what was put in force.
type desk struct {
	*admin.Policies
	store admin.Store

	mu     sync.Mutex // protects the field below
	tables []*policy.Table
}

// opened opens the policies of a store.
func opened(t testing.TB, store admin.Store, file ...policy.Rule) *desk {
	t.Helper()
	p, table, err := admin.OpenPolicies(t.Context(), admin.PoliciesConfig{Store: store, Parse: parse, Generations: new(atomic.Uint64)}, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{Policies: p, store: store, tables: []*policy.Table{table}}
	p.Enforce(func(table *policy.Table, _ []policy.Rule) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.tables = append(d.tables, table)
	})
	return d
}

func as(action, name string) *admin.Write {
	return &admin.Write{Name: name, Principal: "olivia", Action: action, Reason: "for a test"}
}

func (d *desk) create(t testing.TB, name string, s wrote) admin.Policy {
	t.Helper()
	p, err := d.Create(t.Context(), as("CreatePolicy", name), s.draft())
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return p
}

// set updates a policy.
func (d *desk) set(ctx context.Context, w *admin.Write, s wrote) (admin.Policy, error) {
	return d.Update(ctx, w, func(*admin.Policy) (admin.Draft, error) { return s.draft(), nil })
}

// ids are the policies in force, with revisions.
func (d *desk) ids() []string {
	all, _ := d.All()
	var ids []string
	for i := range all {
		ids = append(ids, all[i].Rule.ID())
	}
	return ids
}

func (d *desk) records(t testing.TB) []admin.Record {
	t.Helper()
	all, err := d.store.Records(t.Context(), "", "", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func fileRule(name string, attempts uint32) policy.Rule {
	r := policy.Rule{Name: name, Revision: 1, File: true}
	r.Retry.MaxAttempts = new(attempts)
	return r
}

func TestLifeOfAPolicy(t *testing.T) {
	d := opened(t, stored.New())
	const name = "policies/a"
	first := d.create(t, name, wrote{"/a", 1})
	if first.Rule.Revision != 1 || first.Rule.Name != name || first.CreateTime.IsZero() || first.CreateTime != first.UpdateTime || first.ReadOnly() {
		t.Errorf("created %+v", first)
	}
	w := as("UpdatePolicy", name)
	w.Etag = first.Etag
	second, err := d.set(t.Context(), w, wrote{"/a", 2})
	if err != nil || second.Rule.Revision != 2 || second.Etag == first.Etag || second.CreateTime != first.CreateTime || second.UpdateTime.Before(first.UpdateTime) {
		t.Errorf("updated %+v, %v", second, err)
	}
	gone, err := d.Delete(t.Context(), as("DeletePolicy", name))
	if err != nil || gone.Etag != second.Etag {
		t.Errorf("deleted %+v, %v", gone, err)
	}
	if _, err := d.Get(name); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("after it: %v", err)
	}
	again := d.create(t, name, wrote{"/b", 5})
	if again.Rule.Revision != 3 || !again.CreateTime.After(first.CreateTime) {
		t.Errorf("created again %+v", again)
	}
	back, err := d.Rollback(t.Context(), as("RollbackPolicy", name), 1)
	if err != nil || back.Rule.Revision != 4 || *back.Rule.Retry.MaxAttempts != 1 || back.Rule.Match.PathPrefix != "/a" {
		t.Errorf("rolled back %+v, %v", back, err)
	}
	revisions, err := d.Revisions(t.Context(), name, 0, 10)
	if err != nil || len(revisions) != 4 {
		t.Fatalf("%d revisions, %v", len(revisions), err)
	}
	for i, p := range revisions {
		if p.Rule.Revision != uint64(4-i) {
			t.Errorf("revision %d at place %d", p.Rule.Revision, i)
		}
	}
	if _, etags := revisions[0].Etag, revisions[3].Etag; etags != first.Etag {
		t.Errorf("the etag of revision 1 is %s, was %s", etags, first.Etag)
	}
	var told []string
	for _, r := range d.records(t) {
		if r.Principal != "olivia" || r.Target != name || r.Reason != "for a test" || r.Time.IsZero() {
			t.Errorf("record %+v", r)
		}
		text := fmt.Sprintf("%s before=%t after=%t", r.Action, r.EtagBefore != "", r.EtagAfter != "")
		for _, c := range r.Changes {
			text += fmt.Sprintf(" %s %s→%s", c.Path, c.Before, c.After)
		}
		told = append(told, text)
	}
	if want := []string{
		"RollbackPolicy before=true after=true match.path_prefix /b→/a retry.max_attempts 5→1",
		"CreatePolicy before=false after=true match.path_prefix →/b retry.max_attempts →5",
		"DeletePolicy before=true after=false match.path_prefix /a→ retry.max_attempts 2→",
		"UpdatePolicy before=true after=true retry.max_attempts 1→2",
		"CreatePolicy before=false after=true match.path_prefix →/a retry.max_attempts →1",
	}; !slices.Equal(told, want) {
		t.Errorf("the audit tells\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	if again := opened(t, d.store); !slices.Equal(again.ids(), d.ids()) {
		t.Errorf("opened again it has %v, want %v", again.ids(), d.ids())
	}
}

// Whatever is refused changes nothing: no table, no revision, no record.
func TestRefusedWritesChangeNothing(t *testing.T) {
	store := stored.New()
	opened(t, store).create(t, "policies/a", wrote{"/a", 1})
	d := opened(t, store, fileRule("policies/file", 2))
	current, _ := d.Get("policies/a")
	stale := as("UpdatePolicy", "policies/a")
	stale.Etag = "stale"
	check := as("UpdatePolicy", "policies/a")
	check.ValidateOnly = true
	unused := errors.New("unused")
	for _, row := range []struct {
		name string
		do   func(context.Context) error
		want error
	}{
		{"create what is there", func(ctx context.Context) error {
			_, err := d.Create(ctx, as("CreatePolicy", "policies/a"), wrote{"/x", 1}.draft())
			return err
		}, admin.ErrExists},
		{"create what a file has", func(ctx context.Context) error {
			_, err := d.Create(ctx, as("CreatePolicy", "policies/file"), wrote{"/x", 1}.draft())
			return err
		}, admin.ErrExists},
		{"update what is not there", func(ctx context.Context) error {
			_, err := d.set(ctx, as("UpdatePolicy", "policies/none"), wrote{"/x", 1})
			return err
		}, admin.ErrNotFound},
		{"update what a file has", func(ctx context.Context) error {
			_, err := d.set(ctx, as("UpdatePolicy", "policies/file"), wrote{"/x", 1})
			return err
		}, admin.ErrReadOnly},
		{"update what is built in", func(ctx context.Context) error {
			_, err := d.set(ctx, as("UpdatePolicy", policy.DefaultName), wrote{"", 1})
			return err
		}, admin.ErrReadOnly},
		{"update with an old etag", func(ctx context.Context) error { _, err := d.set(ctx, stale, wrote{"/x", 1}); return err }, admin.ErrEtag},
		{"an update that cannot be worked out", func(ctx context.Context) error {
			_, err := d.Update(ctx, as("UpdatePolicy", "policies/a"), func(*admin.Policy) (admin.Draft, error) { return admin.Draft{}, unused })
			return err
		}, unused},
		{"delete with an old etag", func(ctx context.Context) error { _, err := d.Delete(ctx, stale); return err }, admin.ErrEtag},
		{"delete what is not there", func(ctx context.Context) error {
			_, err := d.Delete(ctx, as("DeletePolicy", "policies/none"))
			return err
		}, admin.ErrNotFound},
		{"delete what is built in", func(ctx context.Context) error {
			_, err := d.Delete(ctx, as("DeletePolicy", policy.DefaultName))
			return err
		}, admin.ErrReadOnly},
		{"roll back to no revision", func(ctx context.Context) error {
			_, err := d.Rollback(ctx, as("RollbackPolicy", "policies/a"), 9)
			return err
		}, admin.ErrNotFound},
		{"roll back what a file has", func(ctx context.Context) error {
			_, err := d.Rollback(ctx, as("RollbackPolicy", "policies/file"), 1)
			return err
		}, admin.ErrReadOnly},
		{"roll back with an old etag", func(ctx context.Context) error { _, err := d.Rollback(ctx, stale, 1); return err }, admin.ErrEtag},
		{"only a check", func(ctx context.Context) error {
			p, err := d.set(ctx, check, wrote{"/y", 4})
			if err == nil && (p.Rule.Revision != 2 || *p.Rule.Retry.MaxAttempts != 4) {
				t.Errorf("it would be %+v", p)
			}
			return err
		}, nil},
		{"no change", func(ctx context.Context) error {
			p, err := d.set(ctx, as("UpdatePolicy", "policies/a"), wrote{"/a", 1})
			if err == nil && p.Etag != current.Etag {
				t.Errorf("it is %+v", p)
			}
			return err
		}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			tables := len(d.tables)
			if err := row.do(t.Context()); !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
			if len(d.tables) != tables || len(d.records(t)) != 1 {
				t.Errorf("%d new tables, %d records", len(d.tables)-tables, len(d.records(t)))
			}
			if got, err := d.Get("policies/a"); err != nil || got.Etag != current.Etag {
				t.Errorf("policies/a is %+v, %v", got, err)
			}
		})
	}
}

func TestProblemsAreThoseOfThePolicyWritten(t *testing.T) {
	d := opened(t, stored.New(), fileRule("policies/file", 2))
	for _, check := range []bool{true, false} {
		w := as("CreatePolicy", "policies/a")
		w.ValidateOnly = check
		_, err := d.Create(t.Context(), w, wrote{"no path", 1}.draft())
		invalid, ok := errors.AsType[*policy.InvalidError](err)
		if !ok || len(invalid.Problems) != 1 || invalid.Problems[0].Rule != 0 || invalid.Problems[0].Path != "match.path_prefix" {
			t.Errorf("%v", err)
		}
	}
}

// A policy of a file hides one of the same name in the store, which is there again when the file no longer has it.
func TestFilesHideWhatIsStored(t *testing.T) {
	store := stored.New()
	opened(t, store).create(t, "policies/a", wrote{"/a", 1})
	d := opened(t, store, fileRule("policies/a", 2))
	if p, err := d.Get("policies/a"); err != nil || !p.ReadOnly() || *p.Rule.Retry.MaxAttempts != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if err := d.Replace(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if p, err := d.Get("policies/a"); err != nil || p.ReadOnly() || *p.Rule.Retry.MaxAttempts != 1 {
		t.Errorf("without the file %+v, %v", p, err)
	}
	if got := len(d.tables); got != 2 {
		t.Errorf("%d tables", got)
	}
	bad := fileRule("policies/b", 1)
	bad.Match.PathPrefix = "x"
	if err := d.Replace(t.Context(), []policy.Rule{bad}, nil); err == nil || !strings.Contains(err.Error(), "policies/b@1: match.path_prefix") {
		t.Errorf("a broken file: %v", err)
	}
	if got := d.ids(); !slices.Equal(got, []string{"policies/a@1", "policies/default@0"}) {
		t.Errorf("after it %v", got)
	}
}

// failing is a store of which writes fail, before or after they are done: faults that a real one cannot be told to have.
type failing struct {
	admin.Store
	before, after, read error
}

func (f *failing) Policies(ctx context.Context) ([]admin.Stored, error) {
	if f.read != nil {
		return nil, f.read
	}
	return f.Store.Policies(ctx)
}

func (f *failing) WritePolicy(ctx context.Context, before admin.Version, next *admin.Stored, r *admin.Record) error {
	if f.before != nil {
		return f.before
	}
	if err := f.Store.WritePolicy(ctx, before, next, r); err != nil {
		return err
	}
	return f.after
}

func TestStoreThatFails(t *testing.T) {
	store := &failing{Store: stored.New()}
	d := opened(t, store)
	d.create(t, "policies/a", wrote{"/a", 1})
	broken := errors.New("disk full")
	lost := func(err error) bool {
		failed, ok := errors.AsType[*admin.StoreError](err)
		return ok && errors.Is(failed, broken)
	}

	store.before = broken
	if _, err := d.set(t.Context(), as("UpdatePolicy", "policies/a"), wrote{"/a", 2}); !lost(err) {
		t.Errorf("%v", err)
	}
	store.before, store.after, store.read = nil, broken, broken
	if _, err := d.set(t.Context(), as("UpdatePolicy", "policies/a"), wrote{"/a", 3}); !lost(err) {
		t.Errorf("%v", err)
	}
	if p, _ := d.Get("policies/a"); *p.Rule.Retry.MaxAttempts != 1 || len(d.tables) != 2 {
		t.Errorf("in force is %+v, %d tables", p, len(d.tables))
	}
	store.after, store.read = nil, nil
	// The store has taken what nobody was told of: it holds before the next write does.
	d.create(t, "policies/b", wrote{"/b", 1})
	if got := d.ids(); !slices.Equal(got, []string{"policies/a@2", "policies/b@1", "policies/default@0"}) {
		t.Errorf("in force is %v", got)
	}
	if p, _ := d.Get("policies/a"); *p.Rule.Retry.MaxAttempts != 3 {
		t.Errorf("policies/a is %+v", p)
	}
}

// A write that the store has done and says it has not is found there, put in force at once, and answered.
func TestPolicyThatWasWrittenAfterAll(t *testing.T) {
	store := &failing{Store: stored.New()}
	d := opened(t, store)
	store.after = errors.New("no answer in time")
	d.create(t, "policies/a", wrote{"/a", 1})
	p, err := d.set(t.Context(), as("UpdatePolicy", "policies/a"), wrote{"/a", 2})
	if err != nil || p.Rule.Revision != 2 || !slices.Equal(d.ids(), []string{"policies/a@2", "policies/default@0"}) {
		t.Errorf("updated to %+v, %v; in force is %v", p, err, d.ids())
	}
	if _, err := d.Delete(t.Context(), as("DeletePolicy", "policies/a")); err != nil || !slices.Equal(d.ids(), []string{"policies/default@0"}) {
		t.Errorf("deleted: %v; in force is %v", err, d.ids())
	}
	if got := len(d.records(t)); got != 3 || len(d.tables) != 4 {
		t.Errorf("%d records, %d tables", got, len(d.tables))
	}
}

// Somebody else writes to the same store: what was decided on the old state is refused, and the next try sees the new one.
func TestAnotherWriterOfTheStore(t *testing.T) {
	store := stored.New()
	one, two := opened(t, store), opened(t, store)
	one.create(t, "policies/a", wrote{"/a", 1})
	if _, err := two.Create(t.Context(), as("CreatePolicy", "policies/a"), wrote{"/a", 2}.draft()); !errors.Is(err, admin.ErrEtag) {
		t.Errorf("%v", err)
	}
	if _, err := two.Create(t.Context(), as("CreatePolicy", "policies/a"), wrote{"/a", 2}.draft()); !errors.Is(err, admin.ErrExists) {
		t.Errorf("the second time: %v", err)
	}
}

// Whoever waits for a write of somebody else can give up.
func TestWaitingForAWriteEnds(t *testing.T) {
	d := opened(t, stored.New())
	inside, proceed, done := make(chan struct{}), make(chan struct{}), make(chan error)
	d.create(t, "policies/a", wrote{"/a", 1})
	go func() {
		_, err := d.Update(t.Context(), as("UpdatePolicy", "policies/a"), func(*admin.Policy) (admin.Draft, error) {
			close(inside)
			<-proceed
			return wrote{"/a", 2}.draft(), nil
		})
		done <- err
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.set(ctx, as("UpdatePolicy", "policies/a"), wrote{"/a", 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := d.Get("policies/a"); err != nil { // reading waits for nobody
		t.Error(err)
	}
	close(proceed)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Of writers that read the same etag exactly one wins; tables follow each other in the order of the writes.
func TestConcurrentWritersWithEtags(t *testing.T) {
	d := opened(t, stored.New())
	d.create(t, "policies/a", wrote{"/a", 1})
	const writers, each = 8, 25
	var won atomic.Uint64
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() {
			for i := range each {
				p, err := d.Get("policies/a")
				if err != nil {
					t.Error(err)
					return
				}
				w := as("UpdatePolicy", "policies/a")
				w.Etag = p.Etag
				next, err := d.set(t.Context(), w, wrote{"/a", uint32(2 + n*each + i)})
				switch {
				case err == nil && next.Rule.Revision == p.Rule.Revision+1:
					won.Add(1)
				case !errors.Is(err, admin.ErrEtag):
					t.Errorf("%+v, %v", next, err)
				}
			}
		})
	}
	all.Wait()
	if p, _ := d.Get("policies/a"); p.Rule.Revision != won.Load()+1 || len(d.tables) != int(won.Load())+2 {
		t.Errorf("revision %d, %d tables, %d won", p.Rule.Revision, len(d.tables), won.Load())
	}
	for i := 1; i < len(d.tables); i++ {
		if d.tables[i].Generation() <= d.tables[i-1].Generation() {
			t.Errorf("generation %d after %d", d.tables[i].Generation(), d.tables[i-1].Generation())
		}
	}
}
