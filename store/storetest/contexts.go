package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sallyport/sallyport/admin"
)

func contexts() []promise {
	return []promise{
		{"a context that has ended changes nothing and is the error", endedContexts},
		{"a context that ends meanwhile leaves the store as good as before", contextsThatEnd},
	}
}

func endedContexts(t *testing.T, s admin.Store) {
	grow(t, s, name, 1, 2)
	before := read(t, s)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	for _, ctx := range []context.Context{cancelled, late} {
		for what, f := range map[string]func() error{
			"Policies":    func() error { _, err := s.Policies(ctx); return err },
			"Revisions":   func() error { _, err := s.Revisions(ctx, name, 0, 1); return err },
			"Revision":    func() error { _, err := s.Revision(ctx, name, 1); return err },
			"Forced":      func() error { _, err := s.Forced(ctx); return err },
			"Records":     func() error { _, err := s.Records(ctx, "", "", 0, 1); return err },
			"WriteForced": func() error { return s.WriteForced(ctx, origin, force(origin, true), told("operator", origin)) },
			"WritePolicy": func() error {
				return s.WritePolicy(ctx, version(2, false), stored(name, version(3, false)), told("operator", name))
			},
		} {
			if err := f(); !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: %v, want %v", what, err, ctx.Err())
			}
		}
	}
	unchanged(t, s, before)
}

func contextsThatEnd(t *testing.T, s admin.Store) {
	const each = 25
	sideBySide(func(i int) {
		name := fmt.Sprintf("policies/%d", i)
		for n := range each {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				// Something to do that takes a while, each time another.
				for range n % 5 {
					if _, err := s.Records(t.Context(), "", "", 0, n); err != nil {
						t.Error(err)
					}
				}
				cancel()
			}()
			if _, err := add(ctx, s, name, "operator"); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			<-done
		}
	})
	got := read(t, s)
	writes := 0
	for _, r := range got.Revisions {
		writes += len(r)
	}
	if writes != len(got.Records) {
		t.Errorf("%d revisions and %d records", writes, len(got.Records))
	}
	// Nothing is stuck: as many as before, and all succeed.
	sideBySide(func(i int) {
		if _, err := add(t.Context(), s, fmt.Sprintf("policies/%d", i), "operator"); err != nil {
			t.Error(err)
		}
	})
	if n := len(read(t, s).Records); n != writes+together {
		t.Errorf("%d records, want %d", n, writes+together)
	}
}
