package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sallyport/sallyport/admin"
)

func writers() []promise {
	return []promise{
		{"of writers from one version exactly one wins", oneWriterWins},
		{"of writers who try again none is lost", noWriterIsLost},
		{"readers see a write whole", readersSeeWholeWrites},
	}
}

const together = 8

// sideBySide runs f together times and waits for all.
func sideBySide(f func(i int)) {
	var wg sync.WaitGroup
	for i := range together {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func oneWriterWins(t *testing.T, s admin.Store) {
	now := admin.Version{}
	for round := range uint64(10) {
		next := version(round+1, false)
		if round%3 == 2 { // a deletion, which keeps the revision
			next = version(now.Revision, true)
		} else if now.Revision > 0 {
			next = version(now.Revision+1, false)
		}
		errs := make([]error, together)
		sideBySide(func(i int) {
			p := stored(name, next)
			p.Document = fmt.Appendf(nil, "writer %d", i)
			record := told(fmt.Sprintf("writer %d", i), name)
			record.Reason = fmt.Sprintf("round %d", round)
			errs[i] = s.WritePolicy(t.Context(), now, p, record)
		})
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Fatalf("round %d: %d and %d won", round, winner, i)
			case !errors.Is(err, admin.ErrChanged):
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		got := read(t, s)
		want := fmt.Sprintf("writer %d", winner)
		if document := string(got.Policies[0].Document); next.Revision != now.Revision && document != want {
			t.Errorf("round %d: %s is stored, %s won", round, document, want)
		}
		if r := got.Records[0]; r.Principal != want || len(got.Records) != int(round)+1 {
			t.Errorf("round %d: %d records, the last of %s, want %s", round, len(got.Records), r.Principal, want)
		}
		equal(t, "version", got.Policies[0].Version, next)
		now = next
	}
}

// add writes the revision after the latest until it is not changed meanwhile, and returns it.
func add(ctx context.Context, s admin.Store, name, principal string) (uint64, error) {
	for {
		policies, err := s.Policies(ctx)
		if err != nil {
			return 0, err
		}
		var now admin.Version
		for _, p := range policies {
			if p.Name == name {
				now = p.Version
			}
		}
		next := stored(name, version(now.Revision+1, false))
		next.Document = []byte(principal)
		if err := s.WritePolicy(ctx, now, next, told(principal, name)); !errors.Is(err, admin.ErrChanged) {
			return next.Revision, err
		}
	}
}

func noWriterIsLost(t *testing.T, s admin.Store) {
	const each = 5
	var (
		mu    sync.Mutex
		wrote = map[uint64]string{}
	)
	sideBySide(func(i int) {
		principal := fmt.Sprintf("writer %d", i)
		for range each {
			revision, err := add(t.Context(), s, name, principal)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if other, ok := wrote[revision]; ok {
				t.Errorf("revision %d is of %s and of %s", revision, other, principal)
			}
			wrote[revision] = principal
			mu.Unlock()
		}
	})
	got := read(t, s)
	if len(got.Revisions[name]) != together*each || len(got.Records) != together*each {
		t.Fatalf("%d revisions and %d records of %d writes", len(got.Revisions[name]), len(got.Records), together*each)
	}
	for i, r := range got.Revisions[name] {
		if string(r.Document) != wrote[r.Revision] || got.Records[i].Principal != wrote[r.Revision] {
			t.Errorf("revision %d holds %s, its record %s, %s wrote it", r.Revision, r.Document, got.Records[i].Principal, wrote[r.Revision])
		}
	}
}

func readersSeeWholeWrites(t *testing.T, s admin.Store) {
	const writes = 30
	grow(t, s, name, 1, 1)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var last uint64
			for {
				over := false
				select {
				case <-done:
					over = true // and one look more, at the end
				default:
				}
				p, err := s.Policies(t.Context())
				if err != nil || len(p) != 1 {
					t.Errorf("%d policies: %v", len(p), err)
					return
				}
				equal(t, "the policy", p[0], utc(*stored(name, version(p[0].Revision, false))))
				if p[0].Revision < last {
					t.Errorf("revision %d after %d", p[0].Revision, last)
				}
				last = p[0].Revision
				// The record was written with it, so it is there by now.
				records, err := s.Records(t.Context(), name, "", 0, all)
				if err != nil || uint64(len(records)) < last {
					t.Errorf("%d records at revision %d: %v", len(records), last, err)
					return
				}
				if over {
					return
				}
			}
		})
	}
	for r := uint64(2); r <= writes; r++ {
		write(t, s, version(r-1, false), stored(name, version(r, false)))
	}
	close(done)
	wg.Wait()
}
