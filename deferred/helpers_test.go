package deferred_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/store/memory"
)

// upstream is a Dispatcher that does what a test says.
type upstream struct {
	do    func(ctx context.Context, r *deferred.Record, nth int) call.Final
	terms func(r *deferred.Record) (deferred.Terms, error)
	// probe answers the nth status probe of a call; nil: no policy has one.
	probe func(ctx context.Context, r *deferred.Record, nth int, lastByte time.Time) deferred.Found

	mu     sync.Mutex
	sent   map[string][]time.Time // when attempts of a call began
	probed map[string][]time.Time // when it was asked about
	flying map[string]int
	most   int // of one origin at once
	origin map[string]int
	twice  bool // one call was under way twice
}

func newUpstream(do func(ctx context.Context, r *deferred.Record, nth int) call.Final) *upstream {
	return &upstream{do: do, sent: map[string][]time.Time{}, probed: map[string][]time.Time{}, flying: map[string]int{}, origin: map[string]int{}}
}

func (u *upstream) Judge(r *deferred.Record) (deferred.Terms, error) {
	if u.terms != nil {
		return u.terms(r)
	}
	return usual(r), nil
}

// usual terms: POST-like for AT_MOST_ONCE, else repeatable; waits of exactly k seconds.
func usual(r *deferred.Record) deferred.Terms {
	return deferred.Terms{
		Repeatable: r.Delivery != deferred.DeliveryAtMostOnce, MaxAttempts: 4,
		Wait:               func(k uint32, _ bool, _ float64) time.Duration { return time.Duration(k) * time.Second },
		CompletedRetention: time.Hour, CancelledRetention: time.Hour,
	}
}

func (u *upstream) Dispatch(ctx context.Context, r *deferred.Record, _ *deferred.Terms) call.Final {
	u.mu.Lock()
	u.sent[r.ID] = append(u.sent[r.ID], time.Now())
	nth := len(u.sent[r.ID])
	u.flying[r.ID]++
	u.origin[r.Origin]++
	u.twice = u.twice || u.flying[r.ID] > 1
	u.most = max(u.most, u.origin[r.Origin])
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.flying[r.ID]--
		u.origin[r.Origin]--
	}()
	return u.do(ctx, r, nth)
}

var errNoProbe = errors.New("there is no status probe")

func (u *upstream) Inquire(ctx context.Context, r *deferred.Record, lastByte time.Time) (deferred.Found, error) {
	u.mu.Lock()
	u.probed[r.ID] = append(u.probed[r.ID], time.Now())
	nth := len(u.probed[r.ID])
	u.mu.Unlock()
	if u.probe == nil {
		return deferred.Found{}, errNoProbe
	}
	return u.probe(ctx, r, nth, lastByte), nil
}

// asked is when a call was asked about.
func (u *upstream) asked(id string) []time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]time.Time(nil), u.probed[id]...)
}

func (u *upstream) mostAtOnce() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.most
}

func (u *upstream) sentTwice() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.twice
}

func (u *upstream) times(id string) []time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]time.Time(nil), u.sent[id]...)
}

// one is the outcome of a dispatch with one attempt that took d.
func one(d time.Duration, o call.Outcome, reason call.Reason, e call.Effect, ev call.Evidence, status int) call.Final {
	now := time.Now()
	a := call.Attempt{Number: 1, Kind: call.KindPrimary, Start: now.Add(-d), Duration: d, Result: call.Result{Evidence: ev, Status: status}}
	f := call.Final{Outcome: o, Reason: reason, Effect: e, Attempts: []call.Attempt{a}}
	if ev != call.EvidenceNotSent {
		f.Sends, f.FirstSend = 1, now.Add(-d)
	}
	if status != 0 {
		f.Response = &call.Response{Status: status}
	}
	return f
}

func good() call.Final {
	return one(0, call.OutcomeSuccess, call.ReasonSuccess, call.EffectAnswered, call.EvidenceAnswered, 200)
}

func busy() call.Final {
	return one(0, call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, call.EffectUnknown, call.EvidenceAnswered, 503)
}

func lost() call.Final {
	return one(0, call.OutcomeUnknown, call.ReasonNotRepeatable, call.EffectUnknown, call.EvidenceSentNoResponse, 0)
}

func refusal(o call.Outcome, after time.Duration) call.Final {
	return call.Final{Outcome: o, Reason: call.ReasonBreakerOpen, Effect: call.EffectNone, RetryAfter: after}
}

// slow is an upstream that answers after d, unless the attempt is cancelled; letting go takes it a second.
func slow(ctx context.Context, d time.Duration) call.Final {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return good()
	case <-ctx.Done():
		time.Sleep(time.Second)
		return one(0, call.OutcomeCancelled, call.ReasonCancelled, call.EffectUnknown, call.EvidenceSentNoResponse, 0)
	}
}

type keeperStore interface {
	deferred.Store
	deferred.Keeper
}

func queueOn(s keeperStore, d deferred.Dispatcher) *deferred.Queue {
	return deferred.New(deferred.Config{Store: s, Keeper: s, Dispatcher: d, Log: slog.New(slog.DiscardHandler), AtOnce: 8})
}

// bubble runs a test with a queue on a store in memory, which is closed at its end.
func bubble(t *testing.T, u *upstream, f func(t *testing.T, q *deferred.Queue, s *memory.Deferred)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewDeferred(nil)
		q := queueOn(s, u)
		q.Run()
		defer closed(t, q)
		f(t, q, s)
		if u.sentTwice() {
			t.Error("two attempts of one call at once")
		}
	})
}

// closed closes a queue at the end of a test, also of one that has failed.
func closed(t *testing.T, q *deferred.Queue) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if t.Failed() {
		cancel()
	}
	q.Close(ctx)
	cancel()
}

// submit keeps a call of that id to that origin, as changed by those functions.
func submit(t *testing.T, q *deferred.Queue, id, origin string, change ...func(*deferred.Record)) {
	t.Helper()
	r := &deferred.Record{ID: id, Caller: "one", OperationID: id, Origin: origin}
	for _, c := range change {
		c(r)
	}
	if _, stored, err := q.Submit(t.Context(), r); err != nil || !stored {
		t.Fatalf("submit: %v %v", stored, err)
	}
}

func find(t *testing.T, q *deferred.Queue, id string) deferred.Record {
	t.Helper()
	r, err := q.Find(t.Context(), "", id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantState(t *testing.T, q *deferred.Queue, id string, s deferred.State) deferred.Record {
	t.Helper()
	r := find(t, q, id)
	if r.State != s {
		t.Fatalf("%s: state %d, want %d: %+v", id, r.State, s, r)
	}
	return r
}

func onceOnly(r *deferred.Record) { r.Delivery = deferred.DeliveryAtMostOnce }

// offsets are instants since start, for messages and comparisons.
func offsets(start time.Time, times []time.Time) string {
	var all []time.Duration
	for _, at := range times {
		all = append(all, at.Sub(start))
	}
	return fmt.Sprint(all)
}

var errBroken = errors.New("the disk is gone")

// faulty is a store whose uses fail as a test says: nil lets one through, errBroken fails it, errAfter fails it once it is done, errHangs
// lets it hang until its time is up.
type faulty struct {
	*memory.Deferred
	mu    sync.Mutex
	fault func(op string) error
	uses  map[string]int
}

var (
	errAfter = errors.New("done, and nobody was told")
	errHangs = errors.New("hangs")
)

func newFaulty(fault func(op string) error) *faulty {
	return &faulty{Deferred: memory.NewDeferred(nil), fault: fault, uses: map[string]int{}}
}

func (s *faulty) use(ctx context.Context, op string, f func() error) error {
	s.mu.Lock()
	s.uses[op]++
	var err error
	if s.fault != nil {
		err = s.fault(op)
	}
	s.mu.Unlock()
	switch {
	case err == nil:
		return f()
	case errors.Is(err, errAfter):
		if err := f(); err != nil {
			return err
		}
	case errors.Is(err, errHangs):
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// mend lets everything through from now on.
func (s *faulty) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = nil
}

func (s *faulty) count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uses[op]
}

func (s *faulty) Submit(ctx context.Context, r *deferred.Record) (stands deferred.Record, stored bool, err error) {
	err = s.use(ctx, "submit", func() (err error) { stands, stored, err = s.Deferred.Submit(ctx, r); return err })
	return stands, stored && err == nil, err
}

func (s *faulty) Begin(ctx context.Context, seq, epoch uint64, repeatable bool, now time.Time) error {
	return s.use(ctx, "begin", func() error { return s.Deferred.Begin(ctx, seq, epoch, repeatable, now) })
}

func (s *faulty) End(ctx context.Context, r *deferred.Record, attempts []call.Attempt) error {
	return s.use(ctx, "end", func() error { return s.Deferred.End(ctx, r, attempts) })
}

func (s *faulty) Settle(ctx context.Context, r *deferred.Record) error {
	return s.use(ctx, "settle", func() error { return s.Deferred.Settle(ctx, r) })
}

func (s *faulty) List(ctx context.Context, f *deferred.Filter, before uint64, n int) (all []deferred.Record, err error) {
	err = s.use(ctx, "list", func() (err error) { all, err = s.Deferred.List(ctx, f, before, n); return err })
	return all, err
}

func (s *faulty) Due(ctx context.Context, now time.Time, n int, without map[deferred.Lane]bool, busy map[uint64]bool) (due []deferred.Record, next time.Time, err error) {
	err = s.use(ctx, "due", func() (err error) { due, next, err = s.Deferred.Due(ctx, now, n, without, busy); return err })
	return due, next, err
}

func (s *faulty) Find(ctx context.Context, caller, id string) (r deferred.Record, err error) {
	err = s.use(ctx, "find", func() (err error) { r, err = s.Deferred.Find(ctx, caller, id); return err })
	return r, err
}

func (s *faulty) Recover(ctx context.Context, now time.Time) (n int, err error) {
	err = s.use(ctx, "recover", func() (err error) { n, err = s.Deferred.Recover(ctx, now); return err })
	return n, err
}

func (s *faulty) Cancel(ctx context.Context, caller, id string, now, until time.Time) (r deferred.Record, err error) {
	err = s.use(ctx, "cancel", func() (err error) { r, err = s.Deferred.Cancel(ctx, caller, id, now, until); return err })
	return r, err
}

func (s *faulty) Expire(ctx context.Context, now time.Time) (next time.Time, more bool, err error) {
	err = s.use(ctx, "expire", func() (err error) { next, more, err = s.Deferred.Expire(ctx, now); return err })
	return next, more, err
}
