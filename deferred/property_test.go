package deferred_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/store/memory"
)

// life is one start of a broker: it ends at a step of the store or of an attempt, and nothing of it has any effect after that.
type life struct {
	*faulty
	mu    sync.Mutex
	steps int // left; negative: for ever
	after bool
	dead  bool
	died  chan struct{} // closed when it has died
}

var errDead = fmt.Errorf("the broker is dead: %w", errBroken)

// step is one more thing done; false: it comes after the end.
func (l *life) step() (error, bool) { //nolint:revive // what it did, and whether it lives
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDead, false
	}
	if l.steps == 0 {
		l.dead = true
		close(l.died)
		if l.after {
			return errAfter, true // the last thing it did
		}
		return errDead, false
	}
	l.steps--
	return nil, true
}

// plan is what an upstream does with the attempts of a call, by their number; then it succeeds.
type plan struct {
	once    bool
	retries uint32
	attempt []int
	expire  time.Duration
	cancel  time.Duration
}

func plans(t *rapid.T) []plan {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) plan {
		return plan{
			once:    rapid.Bool().Draw(t, "once"),
			retries: rapid.Uint32Range(1, 6).Draw(t, "retries"),
			attempt: rapid.SliceOfN(rapid.IntRange(0, 8), 0, 6).Draw(t, "attempts"),
			expire:  time.Duration(rapid.IntRange(0, 3).Draw(t, "expire")) * 7 * time.Second,
			cancel:  time.Duration(rapid.IntRange(0, 9).Draw(t, "cancel")) * 900 * time.Millisecond,
		}
	}), 1, 8).Draw(t, "plans")
}

// world is the upstream, which sees everything that is sent, over all lives.
type world struct {
	plans []plan
	mu    sync.Mutex
	nth   map[string]int
	left  map[string]int // sends that may have left
	wrong []string
}

func (w *world) complainf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// attempt is one of a call in a life.
func (w *world) attempt(ctx context.Context, l *life, r *deferred.Record) call.Final {
	if _, alive := l.step(); !alive {
		return lost() // it died between its intent and its first byte: nobody hears this
	}
	if stands, err := l.Deferred.Find(context.Background(), "", r.ID); err != nil || stands.State != deferred.StateSending || stands.Epoch != r.Epoch+1 {
		w.complainf("an attempt of %s without its intent, or after its end: %v %+v", r.ID, err, stands)
	}
	w.mu.Lock()
	nth, i := w.nth[r.ID], 0
	w.nth[r.ID]++
	_, _ = fmt.Sscan(r.ID, &i)
	what := 99
	if p := w.plans[i]; nth < len(p.attempt) {
		what = p.attempt[nth]
	}
	switch what {
	case 2, 3, 5:
	default:
		w.left[r.ID]++
	}
	w.mu.Unlock()
	final := func() call.Final {
		switch what {
		case 0:
			if r.Delivery == deferred.DeliveryAtMostOnce {
				return one(0, call.OutcomeHTTPError, call.ReasonNotRepeatable, call.EffectUnknown, call.EvidenceAnswered, 503)
			}
			return busy()
		case 1:
			return lost()
		case 2:
			return one(0, call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, call.EffectNone, call.EvidenceNotSent, 0)
		case 3:
			return refusal(call.OutcomeBreakerOpen, 3*time.Second)
		case 4:
			return one(0, call.OutcomeHTTPError, call.ReasonStatusNotRetryable, call.EffectAnswered, call.EvidenceAnswered, 400)
		case 5:
			return refusal(call.OutcomeThrottled, 2*time.Second)
		case 6:
			panic("a bug")
		case 7:
			return slow(ctx, 4*time.Second)
		}
		return good()
	}()
	if _, alive := l.step(); !alive {
		return lost()
	}
	return final
}

// TestCrashesLoseAndDoubleNothing kills a broker at a step, starts another on the same store, and again, and looks at what the upstream saw.
func TestCrashesLoseAndDoubleNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{plans: plans(rt), nth: map[string]int{}, left: map[string]int{}}
		deaths := rapid.SliceOfN(rapid.IntRange(0, 25), 0, 4).Draw(rt, "deaths")
		after := rapid.Bool().Draw(rt, "after")
		synctest.Test(t, func(t *testing.T) { w.run(t, deaths, after) })
		for _, what := range w.wrong {
			rt.Fatal(what)
		}
	})
}

func (w *world) run(t *testing.T, deaths []int, after bool) {
	t.Helper()
	kept := memory.NewDeferred(nil)
	accepted := map[string]bool{}
	crashes := 0
	for n := 0; n <= len(deaths); n++ {
		l := &life{steps: -1, after: after, died: make(chan struct{})}
		if n < len(deaths) {
			l.steps = deaths[n]
		}
		l.faulty = &faulty{Deferred: kept, uses: map[string]int{}, fault: func(string) error {
			err, _ := l.step()
			return err
		}}
		u := newUpstream(func(ctx context.Context, r *deferred.Record, _ int) call.Final { return w.attempt(ctx, l, r) })
		q := queueOn(l, u)
		q.Run()
		var callers sync.WaitGroup
		for i := range w.plans {
			callers.Go(func() { w.submit(t, q, l, i, accepted) })
		}
		callers.Wait()
		timer := time.NewTimer(10 * time.Minute)
		select {
		case <-l.died:
			crashes++
		case <-timer.C:
		}
		timer.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		q.Close(ctx)
		if u.sentTwice() {
			w.complainf("two attempts of one call at once")
		}
	}
	for i, p := range w.plans {
		id := fmt.Sprint(i)
		r, err := kept.Find(t.Context(), "", id)
		switch {
		case err != nil:
			if accepted[id] {
				w.complainf("%s was accepted and is lost", id)
			}
		case !r.State.Finished():
			w.complainf("%s is not finished: %+v", id, r)
		case r.Spent > 1+p.retries:
			w.complainf("%s spent %d of %d", id, r.Spent, 1+p.retries)
		case p.once && w.left[id] > 1:
			w.complainf("%s must not be repeated, and was sent %d times", id, w.left[id])
		case w.left[id] > 1 && !r.PossibleDuplicate:
			w.complainf("%s was sent %d times, and does not say so: %+v", id, w.left[id], r)
		case r.PossibleDuplicate && w.left[id] < 2 && crashes == 0:
			w.complainf("%s was sent %d times, and is said to be sent twice", id, w.left[id])
		}
		for k, a := range r.Attempts {
			if a.Number != uint32(k+1) || (a.Kind == call.KindPrimary) != (k == 0) {
				w.complainf("%s: attempt %d has the number %d and the kind %d", id, k+1, a.Number, a.Kind)
			}
		}
	}
}

// submit submits one until it is accepted or its broker has died, and cancels it where that is planned.
func (w *world) submit(t *testing.T, q *deferred.Queue, l *life, i int, accepted map[string]bool) {
	t.Helper()
	p, id := w.plans[i], fmt.Sprint(i)
	r := &deferred.Record{ID: id, Caller: fmt.Sprint("caller", i%2), OperationID: id, Origin: fmt.Sprint("http://", i%3, ":80"), MaxRetries: p.retries}
	if p.once {
		r.Delivery = deferred.DeliveryAtMostOnce
	}
	if p.expire > 0 {
		r.Expire = time.Now().Add(p.expire)
	}
	_, _, err := q.Submit(t.Context(), r)
	if err != nil {
		return
	}
	w.mu.Lock()
	accepted[id] = true
	w.mu.Unlock()
	if p.cancel == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), p.cancel)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-l.died:
		return
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, _ = q.Cancel(ctx, "", id)
}
