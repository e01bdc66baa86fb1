package admin_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/breaker"
)

// memory is a store that may fail.
type memory struct {
	mu      sync.Mutex // protects the fields below
	forced  map[string]admin.Forced
	records []admin.Record
	err     error
	late    bool          // a write that fails was done all the same
	slow    time.Duration // of a write
}

func (m *memory) Forced(context.Context) ([]admin.Forced, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil && !m.late {
		return nil, m.err
	}
	return slices.Collect(maps.Values(m.forced)), nil
}

func (m *memory) WriteForced(ctx context.Context, origin string, f *admin.Forced, r *admin.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slow > 0 {
		select {
		case <-time.NewTimer(m.slow).C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if m.err != nil && !m.late {
		return m.err
	}
	if m.forced == nil {
		m.forced = make(map[string]admin.Forced)
	}
	if f == nil {
		delete(m.forced, origin)
	} else {
		m.forced[origin] = *f
	}
	m.records = append(m.records, *r)
	return m.err
}

// said is one word to the breakers.
type said struct {
	at     time.Duration
	origin string
	mode   breaker.Mode // 0: reset
}

// origins hears what is said.
type origins struct {
	begin time.Time
	mu    sync.Mutex // protects the fields below
	all   []said
}

func (o *origins) Force(origin string, mode breaker.Mode, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, said{now.Sub(o.begin), origin, mode})
}

func (o *origins) Reset(origin string, now time.Time) bool {
	o.Force(origin, 0, now)
	return origin != gone
}

func (o *origins) heard() []said {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

const (
	api  = "https://api.example.com:443"
	web  = "https://web.example.com:443"
	gone = "https://gone.example.com:443"
)

func load(t *testing.T, store admin.BreakerStore) (*admin.Breakers, *origins) {
	t.Helper()
	o := &origins{begin: time.Now()}
	b, err := admin.LoadBreakers(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // it looks for ends, and rests
	return b, o
}

func set(t *testing.T, b *admin.Breakers, order admin.Order) {
	t.Helper()
	if err := b.Set(t.Context(), &order); err != nil {
		t.Fatal(err)
	}
}

func TestSetIsStoredAuditedAndInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		b, o := load(t, store)
		defer b.Close()
		begin := time.Now()
		end := begin.Add(time.Hour)
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedOpen, Principal: "ada", Reason: "fire", ExpireTime: end})
		want := admin.Forced{Origin: api, Open: true, Principal: "ada", Reason: "fire", CreateTime: begin.UTC().Round(0), ExpireTime: end.UTC().Round(0)}
		if got := b.Forced(api); got == nil || *got != want || !slices.Equal(b.List(), []admin.Forced{want}) || store.forced[api] != want {
			t.Errorf("in force %+v, stored %+v", got, store.forced)
		}
		time.Sleep(time.Minute)
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedClosed, Principal: "bob", Reason: "out"})
		time.Sleep(time.Minute)
		set(t, b, admin.Order{Origin: api, Mode: breaker.Auto, Principal: "ada"})
		if b.Forced(api) != nil || len(store.forced) != 0 {
			t.Errorf("still in force: %+v", store.forced)
		}
		if want := []said{{0, api, breaker.ForcedOpen}, {time.Minute, api, breaker.ForcedClosed}, {2 * time.Minute, api, breaker.Auto}}; !slices.Equal(o.heard(), want) {
			t.Errorf("said %v", o.heard())
		}
		at := func(d time.Duration) time.Time { return begin.Add(d).UTC().Round(0) }
		records := []admin.Record{
			{Time: at(0), Principal: "ada", Action: "SetBreaker", Target: api, Reason: "fire", Changes: []admin.Change{
				{Path: "mode", Before: "auto", After: "forced open"},
				{Path: "reason", After: "fire"},
				{Path: "expire_time", After: end.UTC().Format(time.RFC3339Nano)},
			}},
			{Time: at(time.Minute), Principal: "bob", Action: "SetBreaker", Target: api, Reason: "out", Changes: []admin.Change{
				{Path: "mode", Before: "forced open", After: "forced closed"},
				{Path: "reason", Before: "fire", After: "out"},
				{Path: "expire_time", Before: end.UTC().Format(time.RFC3339Nano)},
			}},
			{Time: at(2 * time.Minute), Principal: "ada", Action: "SetBreaker", Target: api, Changes: []admin.Change{
				{Path: "mode", Before: "forced closed", After: "auto"}, {Path: "reason", Before: "out"},
			}},
		}
		if !reflect.DeepEqual(store.records, records) {
			t.Errorf("records\n%+v\nwant\n%+v", store.records, records)
		}
	})
}

func TestForceEndsToTheInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		b, o := load(t, store)
		defer b.Close()
		begin := time.Now()
		for i, origin := range []string{web, api} { // the second ends first
			set(t, b, admin.Order{Origin: origin, Mode: breaker.ForcedOpen, ExpireTime: begin.Add(time.Duration(3-i)*time.Hour + 5)})
		}
		time.Sleep(2*time.Hour + 4)
		if b.Forced(api) == nil || len(o.heard()) != 2 {
			t.Error("ended too early")
		}
		time.Sleep(time.Nanosecond)
		if b.Forced(api) != nil || len(b.List()) != 1 {
			t.Error("not ended")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []said{{2*time.Hour + 5, api, breaker.Auto}, {3*time.Hour + 5, web, breaker.Auto}}
		if got := o.heard()[2:]; !slices.Equal(got, want) {
			t.Errorf("said %v, want %v", got, want)
		}
		if len(store.records) != 2 {
			t.Errorf("%d records: an end is nobody's deed", len(store.records))
		}
	})
}

// A force that is replaced ends with the new one's end.
func TestEndMayBeMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, o := load(t, &memory{})
		defer b.Close()
		begin := time.Now()
		order := admin.Order{Origin: api, Mode: breaker.ForcedOpen, ExpireTime: begin.Add(time.Hour)}
		set(t, b, order)
		order.ExpireTime = begin.Add(3 * time.Hour)
		set(t, b, order)
		time.Sleep(2 * time.Hour)
		if b.Forced(api) == nil {
			t.Error("ended with the first end")
		}
		order.ExpireTime = begin.Add(2*time.Hour + 1)
		set(t, b, order)
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if last := o.heard()[3:]; !slices.Equal(last, []said{{2*time.Hour + 1, api, breaker.Auto}}) {
			t.Errorf("%v", last)
		}
	})
}

func TestRestartFindsWhatIsNotOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		b, _ := load(t, store)
		begin := time.Now()
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedOpen, Reason: "fire", ExpireTime: begin.Add(2 * time.Hour)})
		set(t, b, admin.Order{Origin: web, Mode: breaker.ForcedClosed, Reason: "steady"})
		set(t, b, admin.Order{Origin: gone, Mode: breaker.ForcedOpen, ExpireTime: begin.Add(time.Hour)})
		was := b.Forced(api)
		b.Close()
		time.Sleep(time.Hour)
		b, o := load(t, store)
		defer b.Close()
		heard := o.heard()
		slices.SortFunc(heard, func(a, b said) int { return int(a.mode - b.mode) })
		if want := []said{{0, api, breaker.ForcedOpen}, {0, web, breaker.ForcedClosed}}; !slices.Equal(heard, want) {
			t.Errorf("said %v", heard)
		}
		if got := b.Forced(api); got == nil || *got != *was || b.Forced(gone) != nil || len(b.List()) != 2 {
			t.Errorf("%+v, was %+v", got, was)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if last := o.heard()[2:]; !slices.Equal(last, []said{{time.Hour, api, breaker.Auto}}) {
			t.Errorf("the end after a restart: %v", last)
		}
	})
}

var errDisk = errors.New("the disk is full")

func TestStoreThatFailsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		b, o := load(t, store)
		defer b.Close()
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedOpen, Reason: "fire"})
		store.err = errDisk
		for _, order := range []admin.Order{{Origin: api, Mode: breaker.Auto}, {Origin: api, Mode: breaker.ForcedClosed}, {Origin: web, Mode: breaker.ForcedOpen}} {
			if err := b.Set(t.Context(), &order); !errors.Is(err, errDisk) {
				t.Errorf("%v: %v", order, err)
			}
		}
		if _, err := b.Reset(t.Context(), api, "ada", ""); !errors.Is(err, errDisk) {
			t.Errorf("reset: %v", err)
		}
		if all := b.List(); len(all) != 1 || !all[0].Open || all[0].Reason != "fire" || len(o.heard()) != 1 {
			t.Errorf("%+v, said %v", all, o.heard())
		}
		if _, err := admin.LoadBreakers(t.Context(), store, o); !errors.Is(err, errDisk) {
			t.Errorf("at start: %v", err)
		}
	})
}

// A write may be done although it failed; the store is asked.
func TestWriteThatWasDoneAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{err: errDisk, late: true}
		b, o := load(t, store)
		defer b.Close()
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedOpen})
		if b.Forced(api) == nil || len(o.heard()) != 1 {
			t.Error("stored, and not in force")
		}
		set(t, b, admin.Order{Origin: api, Mode: breaker.Auto})
		if b.Forced(api) != nil || len(o.heard()) != 2 {
			t.Error("let go in the store, and still in force")
		}
		if known, err := b.Reset(t.Context(), api, "bob", ""); known || !errors.Is(err, errDisk) {
			t.Errorf("a reset that nobody can be sure of: %t, %v", known, err)
		}
	})
}

// An operator who goes away in the midst of a write leaves no doubt whether it was done; one who waits for a turn does nothing.
func TestOperatorWhoGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{slow: time.Second}
		b, _ := load(t, store)
		defer b.Close()
		ctx, cancel := context.WithCancel(t.Context())
		written, waited := make(chan error, 1), make(chan error, 1)
		go func() { written <- b.Set(ctx, &admin.Order{Origin: api, Mode: breaker.ForcedOpen}) }()
		synctest.Wait()
		go func() { waited <- b.Set(ctx, &admin.Order{Origin: web, Mode: breaker.ForcedOpen}) }()
		synctest.Wait()
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("who waited: %v", err)
		}
		if err := <-written; err != nil || b.Forced(api) == nil || b.Forced(web) != nil {
			t.Errorf("%v, in force %+v", err, b.List())
		}
	})
}

func TestResetIsAuditedAndKeepsTheForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		b, o := load(t, store)
		defer b.Close()
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedOpen, Reason: "fire"})
		stood := store.forced[api]
		if known, err := b.Reset(t.Context(), api, "bob", "mended"); !known || err != nil {
			t.Errorf("%t, %v", known, err)
		}
		if known, err := b.Reset(t.Context(), gone, "bob", ""); known || err != nil {
			t.Errorf("one that is not known: %t, %v", known, err)
		}
		want := admin.Record{Time: time.Now().UTC().Round(0), Principal: "bob", Action: "ResetOrigin", Target: api, Reason: "mended"}
		if store.forced[api] != stood || !reflect.DeepEqual(store.records[1], want) {
			t.Errorf("stored %+v, record %+v", store.forced[api], store.records[1])
		}
		if got := o.heard()[1:]; !slices.Equal(got, []said{{0, api, 0}, {0, gone, 0}}) {
			t.Errorf("said %v", got)
		}
	})
}

func TestForcedOriginsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{forced: make(map[string]admin.Forced)}
		for i := range 10_000 {
			name := "https://host" + strconv.Itoa(i) + ".example.com:443"
			store.forced[name] = admin.Forced{Origin: name}
		}
		b, _ := load(t, store)
		defer b.Close()
		if err := b.Set(t.Context(), &admin.Order{Origin: api, Mode: breaker.ForcedOpen}); !errors.Is(err, admin.ErrManyForced) {
			t.Error(err)
		}
		set(t, b, admin.Order{Origin: "https://host7.example.com:443", Mode: breaker.ForcedOpen}) // in place of what it was
		set(t, b, admin.Order{Origin: "https://host7.example.com:443", Mode: breaker.Auto})
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedOpen})
	})
}

// A store that is slow delays no end, and no stop.
func TestForceEndsWhileSomebodyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		b, o := load(t, store)
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedOpen, ExpireTime: time.Now().Add(time.Second)})
		store.slow = 5 * time.Second
		done := make(chan error, 1)
		go func() { done <- b.Set(t.Context(), &admin.Order{Origin: web, Mode: breaker.ForcedOpen}) }()
		time.Sleep(2 * time.Second)
		begin := time.Now()
		b.Close()
		if took := time.Since(begin); took != 0 || !slices.Equal(o.heard()[1:], []said{{time.Second, api, breaker.Auto}}) {
			t.Errorf("closed after %s, said %v", took, o.heard())
		}
		if err := <-done; err != nil || b.Forced(web) == nil {
			t.Error(err)
		}
	})
}

// An end that comes while the same origin is written anew does not undo what is written.
func TestEndDuringTheWriteOfItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		b, o := load(t, store)
		defer b.Close()
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedOpen, ExpireTime: time.Now().Add(time.Second)})
		store.slow = 5 * time.Second
		set(t, b, admin.Order{Origin: api, Mode: breaker.ForcedClosed})
		if want := []said{{time.Second, api, breaker.Auto}, {5 * time.Second, api, breaker.ForcedClosed}}; !slices.Equal(o.heard()[1:], want) || b.Forced(api) == nil {
			t.Errorf("said %v", o.heard())
		}
	})
}
