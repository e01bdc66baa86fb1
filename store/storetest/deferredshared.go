package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
)

func deferredShared() []deferredPromise {
	return []deferredPromise{
		{"of many who submit at once exactly one does", oneSubmits},
		{"of many who begin at once exactly one does", oneBegins},
		{"what is given is not kept, and what comes back is the caller's", nothingOfCallsShared},
		{"a context that has ended changes nothing and is the error", endedDeferredContexts},
	}
}

func oneSubmits(t *testing.T, s Calls) {
	for round := range 5 {
		stored := make([]bool, together)
		ids := make([]string, together)
		sideBySide(func(i int) {
			r := submitted(fmt.Sprint(round), 1)
			r.ID = fmt.Sprintf("id-%d-%d", round, i)
			stands, mine, err := s.Submit(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			stored[i], ids[i] = mine, stands.ID
		})
		n := 0
		for i := range stored {
			if stored[i] {
				n++
			}
			if ids[i] != ids[0] {
				t.Errorf("told of %s and %s", ids[i], ids[0])
			}
		}
		if n != 1 {
			t.Errorf("%d submitted", n)
		}
	}
	if all := listedCalls(t, s, deferred.Filter{}, 0, 99); len(all) != 5 {
		t.Errorf("%d calls, want 5", len(all))
	}
}

func oneBegins(t *testing.T, s Calls) {
	r := storedCall(t, s, submitted("a", 1))
	begun := make([]bool, together)
	sideBySide(func(i int) {
		err := s.Begin(t.Context(), r.Seq, 0, true, at(i))
		if begun[i] = err == nil; err != nil && !errors.Is(err, deferred.ErrSuperseded) {
			t.Error(err)
		}
	})
	n := 0
	for _, b := range begun {
		if b {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d have begun", n)
	}
}

func nothingOfCallsShared(t *testing.T, s Calls) {
	spoil := func(r *deferred.Record) {
		clear(r.Request)
		clear(r.Labels)
		clear(r.Attempts)
		if r.Response != nil {
			clear(r.Response.Body)
			clear(r.Response.Headers)
		}
	}
	given := submitted("a", 1)
	given.Labels = map[string]string{"a": "b"}
	given.Attempts, given.Tried = []call.Attempt{made(1, 1)}, 1
	given.Response = &call.Response{Status: 200, Headers: []call.Header{{Name: "A", Value: "b"}}, Body: []byte("body")}
	want := plainCall(*given)
	want.Seq = 1
	want.Request = slices.Clone(given.Request)
	want.Labels = map[string]string{"a": "b"}
	want.Response = &call.Response{Status: 200, Headers: []call.Header{{Name: "A", Value: "b"}}, Body: []byte("body")}
	stands, _, err := s.Submit(t.Context(), given)
	if err != nil {
		t.Fatal(err)
	}
	spoil(given)
	standsCall(t, s, want)
	spoil(&stands)
	standsCall(t, s, want)
	for range 2 {
		found, err := s.Find(t.Context(), caller, want.ID)
		all, _, err2 := s.Due(t.Context(), at(5), 5, nil, nil)
		list, err3 := s.List(t.Context(), &deferred.Filter{}, 0, 5)
		if err := errors.Join(err, err2, err3); err != nil || len(all) != 1 || len(list) != 1 {
			t.Fatal(len(all), len(list), err)
		}
		for _, r := range []*deferred.Record{&found, &all[0], &list[0]} {
			spoil(r)
		}
		standsCall(t, s, want)
	}
}

func endedDeferredContexts(t *testing.T, s Calls) {
	r := sending(t, s, storedCall(t, s, submitted("a", 1)), true, 2)
	failed := finishedCall(t, s, "b", deferred.StateFailed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := ends(r, deferred.StateCompleted, 3)
	for what, f := range map[string]func() error{
		"Submit":  func() error { _, _, err := s.Submit(ctx, submitted("c", 1)); return err },
		"Begin":   func() error { return s.Begin(ctx, r.Seq, r.Epoch, true, at(3)) },
		"End":     func() error { return s.End(ctx, &n, nil) },
		"Due":     func() error { _, _, err := s.Due(ctx, at(3), 1, nil, nil); return err },
		"Find":    func() error { _, err := s.Find(ctx, caller, r.ID); return err },
		"List":    func() error { _, err := s.List(ctx, &deferred.Filter{}, 0, 1); return err },
		"Counts":  func() error { _, err := s.Counts(ctx, caller); return err },
		"Recover": func() error { _, err := s.Recover(ctx, at(3)); return err },
		"Cancel":  func() error { _, err := s.Cancel(ctx, caller, r.ID, at(3), at(3)); return err },
		"Redrive": func() error { _, err := s.Redrive(ctx, named(failed.ID), 1, at(3)); return err },
		"Purge":   func() error { _, err := s.Purge(ctx, named(failed.ID)); return err },
		"Expire":  func() error { _, _, err := s.Expire(ctx, at(3)); return err },
		"Changes": func() error { _, _, err := s.Changes(ctx, &deferred.Filter{}, 0, 1); return err },
	} {
		if err := f(); !errors.Is(err, ctx.Err()) {
			t.Errorf("%s: %v, want %v", what, err, ctx.Err())
		}
	}
	standsCall(t, s, r)
	standsCall(t, s, failed)
	goneCall(t, s, caller, "id-c")
}
