package deferred_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/store/memory"
)

// watcher keeps what a watch tells.
type watcher struct {
	mu      sync.Mutex // protects changes and at
	changes []deferred.Change
	at      []time.Time
	err     error
	done    chan struct{} // closed when the watch has ended
}

func watch(ctx context.Context, q *deferred.Queue, f *deferred.Filter, after uint64, rest time.Duration) *watcher {
	w := &watcher{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for c, err := range q.Watch(ctx, f, after) {
			if err != nil {
				w.err = err
				break
			}
			w.mu.Lock()
			w.changes, w.at = append(w.changes, c), append(w.at, time.Now())
			w.mu.Unlock()
			time.Sleep(rest)
		}
	}()
	return w
}

func (w *watcher) story() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := ""
	for _, c := range w.changes {
		s += fmt.Sprintf("%s:%d ", c.Record.ID, c.Record.State)
	}
	return s
}

func TestWatch(t *testing.T) {
	u := newUpstream(func(_ context.Context, _ *deferred.Record, nth int) call.Final {
		if nth == 1 {
			time.Sleep(3 * time.Second)
			return busy()
		}
		return good()
	})
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "early", "http://a:80", func(r *deferred.Record) { r.NotBefore = time.Now().Add(time.Hour) })
		ctx, cancel := context.WithCancelCause(t.Context())
		all := watch(ctx, q, &deferred.Filter{Caller: "one"}, 0, 0)
		none := watch(ctx, q, &deferred.Filter{Caller: "two"}, 0, 0)
		crawls := watch(ctx, q, &deferred.Filter{}, 0, time.Minute)
		time.Sleep(7500 * time.Millisecond)
		start := time.Now()
		submit(t, q, "a", "http://a:80")
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		all.mu.Lock()
		position := all.changes[len(all.changes)-1].Position
		all.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		// What lasts no time may be told or left out: that it waits for its first attempt, that its second is under way.
		if got := all.story(); !regexp.MustCompile(`^(a:1 )?a:3 a:2 (a:3 )?a:4 $`).MatchString(got) {
			t.Errorf("told %s", got)
		}
		resumed := watch(ctx, q, &deferred.Filter{Caller: "one"}, position, 0)
		synctest.Wait()
		if got := resumed.story(); got != "a:4 " {
			t.Errorf("resumed with %s", got)
		}
		gone := errors.New("gone")
		cancel(gone)
		for _, w := range []*watcher{all, none, crawls, resumed} {
			<-w.done
			if !errors.Is(w.err, gone) {
				t.Errorf("ended with %v", w.err)
			}
		}
		if at := all.at[0].Sub(start); at != 0 {
			t.Errorf("first told after %v", at)
		}
		if last := all.at[len(all.at)-1].Sub(start); last != 4*time.Second && last != 4050*time.Millisecond {
			t.Errorf("last told after %v", last)
		}
		if len(none.changes) != 0 {
			t.Errorf("another caller was told %s", none.story())
		}
		if n := len(crawls.changes); n < 2 || crawls.changes[n-1].Record.State != deferred.StateCompleted {
			t.Errorf("a slow one was told %s", crawls.story())
		}
		closing := watch(t.Context(), q, &deferred.Filter{}, 0, 0)
		synctest.Wait()
		q.Close(t.Context())
		<-closing.done
		if !errors.Is(closing.err, deferred.ErrClosed) {
			t.Errorf("ended with %v", closing.err)
		}
	})
}

func TestWatchTellsEverythingOnceOrMore(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() })
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		submit(t, q, "first", "http://a:80")
		synctest.Wait()
		told := map[string]deferred.State{}
		position, reads := uint64(1), 0
		for len(told) < 300 { // a watcher that comes back after each ten
			if reads++; reads > 200 {
				t.Fatalf("told of %d", len(told))
			}
			if reads == 2 {
				for i := range 299 {
					submit(t, q, fmt.Sprint(i), "http://a:80")
				}
				synctest.Wait()
			}
			n := 0
			for c, err := range q.Watch(t.Context(), &deferred.Filter{}, position) {
				if err != nil {
					t.Fatal(err)
				}
				told[c.Record.ID] = c.Record.State
				if position, n = c.Position, n+1; n >= 130 || reads == 1 {
					break
				}
				if len(told) == 300 {
					break
				}
			}
		}
		for id, s := range told {
			if s != deferred.StateCompleted {
				t.Errorf("%s last told as %d", id, s)
			}
		}
	})
}

// Going on after the last change of a look tells nothing twice, and after one before it the later ones again.
func TestWatchGoesOnAfterThePositionOfTheLastChange(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() })
	bubble(t, u, func(t *testing.T, q *deferred.Queue, _ *memory.Deferred) {
		t.Helper()
		later := func(r *deferred.Record) { r.NotBefore = time.Now().Add(time.Hour) }
		submit(t, q, "first", "http://a:80", later)
		start := watch(t.Context(), q, &deferred.Filter{}, 0, 0)
		synctest.Wait()
		submit(t, q, "a", "http://a:80", later)
		time.Sleep(time.Second)
		synctest.Wait()
		start.mu.Lock()
		from := start.changes[0].Position
		start.mu.Unlock()
		for _, id := range []string{"b", "c", "d"} {
			submit(t, q, id, "http://a:80", later)
		}
		together := watch(t.Context(), q, &deferred.Filter{}, from, 0) // one look finds all three
		synctest.Wait()
		if got := together.story(); got != "b:1 c:1 d:1 " {
			t.Fatalf("told %s", got)
		}
		together.mu.Lock()
		changes := together.changes
		var all []*watcher
		together.mu.Unlock()
		for i, want := range []string{"b:1 c:1 d:1 ", "b:1 c:1 d:1 ", ""} {
			again := watch(t.Context(), q, &deferred.Filter{}, changes[i].Position, 0)
			synctest.Wait()
			if got := again.story(); got != want {
				t.Errorf("after change %d: told %q, want %q", i+1, got, want)
			}
			all = append(all, again)
		}
		q.Close(t.Context())
		for _, w := range all {
			<-w.done
		}
		<-start.done
		<-together.done
	})
}

// Who is told when a retention ends does not depend on a look that comes by chance: the tidier sleeps until the first end that the store knows.
func TestExpiresAtTheEndThatTheStoreKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewDeferred(nil)
		end := time.Now().Add(10*time.Second + 500*time.Millisecond)
		r := &deferred.Record{
			ID: "a", Caller: "one", OperationID: "a", Origin: "http://a:80", State: deferred.StatePending,
			Created: time.Now(), Updated: time.Now(), NotBefore: time.Now().Add(time.Hour), NextAttempt: time.Now().Add(time.Hour), Expire: end,
		}
		if _, _, err := s.Submit(t.Context(), r); err != nil { // by an earlier process: this queue is told nothing of it
			t.Fatal(err)
		}
		q := queueOn(s, newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() }))
		q.Run()
		defer closed(t, q)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		synctest.Wait()
		if got := wantState(t, q, "a", deferred.StateFailed); !got.Ended.Equal(end) {
			t.Errorf("expired at %v, want %v", got.Ended, end)
		}
	})
}
