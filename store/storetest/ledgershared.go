package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/operation"
)

func ledgersShared() []ledgerPromise {
	return []ledgerPromise{
		{"of many who begin at once exactly one leads", oneLeads},
		{"who leads in turn has epochs of his own", epochsCount},
		{"a context that has ended changes nothing and is the error", endedLedgerContexts},
		{"a context that ends meanwhile leaves the ledger as good as before", ledgerContextsThatEnd},
	}
}

func oneLeads(t *testing.T, l Ledger) {
	const many = 64
	for round := range 5 {
		var (
			mu     sync.Mutex
			leader string
			told   []operation.Record
			wg     sync.WaitGroup
		)
		for i := range many {
			wg.Go(func() {
				start := started(key(fmt.Sprint(round)), i)
				start.Owner = fmt.Sprint("broker ", i)
				r, led, err := l.Begin(t.Context(), start)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case led && leader != "":
					t.Errorf("%s and %s lead", leader, start.Owner)
				case led:
					leader = start.Owner
				}
				told = append(told, r)
			})
		}
		wg.Wait()
		for _, r := range told {
			if r.Owner != leader || r.Epoch != 1 {
				t.Errorf("led by %s, told of %s at epoch %d", leader, r.Owner, r.Epoch)
			}
		}
	}
}

func epochsCount(t *testing.T, l Ledger) {
	const each = 12
	var (
		mu     sync.Mutex
		epochs = map[uint64]int{}
	)
	sideBySide(func(i int) {
		for led := 0; led < each; {
			start := started(key("a"), i)
			start.Owner = fmt.Sprint(i)
			r, mine, err := l.Begin(t.Context(), start)
			if err != nil {
				t.Error(err)
				return
			}
			if !mine {
				// Who does not lead cannot write: at any epoch but the one that stands, and that is free or not his.
				r.Epoch--
				if err := l.Write(t.Context(), &r); !errors.Is(err, operation.ErrSuperseded) {
					t.Errorf("a lead that is over: %v", err)
				}
				continue
			}
			led++
			mu.Lock()
			epochs[r.Epoch]++
			mu.Unlock()
			if err := l.Write(t.Context(), freed(r, i)); err != nil {
				t.Errorf("who leads at epoch %d: %v", r.Epoch, err)
			}
		}
	})
	for e := range uint64(together * each) {
		if epochs[e+1] != 1 {
			t.Errorf("epoch %d was led %d times", e+1, epochs[e+1])
		}
	}
}

func endedLedgerContexts(t *testing.T, l Ledger) {
	lead := begun(t, l, started(key("a"), 1))
	before := readLedger(t, l)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	for _, ctx := range []context.Context{cancelled, late} {
		for what, f := range map[string]func() error{
			"Begin":      func() error { _, _, err := l.Begin(ctx, started(key("b"), 1)); return err },
			"Write":      func() error { return l.Write(ctx, answered(lead, 2)) },
			"Operation":  func() error { _, err := l.Operation(ctx, key("a")); return err },
			"Operations": func() error { _, err := l.Operations(ctx, caller, 0, operation.Cursor{}, 1); return err },
			"Settle":     func() error { _, err := l.Settle(ctx, "nobody", at(1)); return err },
			"Prune":      func() error { _, err := l.Prune(ctx, at(1<<20), 0); return err },
		} {
			if err := f(); !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: %v, want %v", what, err, ctx.Err())
			}
		}
	}
	equal(t, "the ledger", readLedger(t, l), before)
}

func ledgerContextsThatEnd(t *testing.T, l Ledger) {
	const each = 25
	sideBySide(func(i int) {
		for n := range each {
			k := key(fmt.Sprintf("%d of %d", n, i))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				// Something to do that takes a while, each time another.
				for range n % 4 {
					if _, err := l.Operation(t.Context(), k); err != nil && !errors.Is(err, operation.ErrNotFound) {
						t.Error(err)
					}
				}
				cancel()
			}()
			_, led, err := l.Begin(ctx, started(k, n))
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			<-done
			// Whatever became of it, somebody leads by now.
			r, again, err := l.Begin(t.Context(), started(k, n))
			if err != nil || led && again || r.Epoch != 1 {
				t.Errorf("led %v, then %v at epoch %d: %v", led, again, r.Epoch, err)
			}
		}
	})
	if n := len(readLedger(t, l)); n != together*each {
		t.Errorf("%d records, want %d", n, together*each)
	}
}
