package operation_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/memory"
)

// world is one broker with its ledger, in a bubble.
type world struct {
	*operation.Operations
	t      *testing.T
	ledger *faulty
	heard  *heard
	start  time.Time
}

// bubble runs a test where time is exact. Nothing may be left when it ends.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &faulty{Ledger: memory.NewLedger(time.Now())})
		defer w.Close(context.WithoutCancel(t.Context()))
		f(w)
	})
}

func newWorld(t *testing.T, l *faulty) *world {
	t.Helper()
	w := &world{t: t, ledger: l, heard: &heard{}, start: time.Now()}
	w.Operations = w.broker("broker@1")
	return w
}

// broker is a start of a broker on the ledger of the world.
func (w *world) broker(owner string) *operation.Operations {
	return operation.New(operation.Config{
		Ledger: w.ledger, Keeper: w.ledger, Owner: owner, Observer: w.heard, Log: slog.New(slog.NewTextHandler(w.heard, nil)),
	})
}

// at fails the test unless that much time has passed since the start.
func (w *world) at(want time.Duration) {
	w.t.Helper()
	if got := time.Since(w.start); got != want {
		w.t.Errorf("it is %v, want %v", got, want)
	}
}

// caller makes a call that has ten seconds.
func (w *world) caller(ask *operation.Ask) (operation.Answer, error) {
	ctx, cancel := context.WithDeadline(context.Background(), ask.Call.Deadline)
	defer cancel()
	return w.Do(ctx, ask)
}

// must is one that the ledger cannot refuse.
func (w *world) must(ask *operation.Ask) operation.Answer {
	w.t.Helper()
	a, err := w.caller(ask)
	if err != nil {
		w.t.Errorf("operation %q: %v", ask.Call.OperationID, err)
	}
	return a
}

// record is what is known of an operation of the caller "ann".
func (w *world) record(id string) operation.Record {
	w.t.Helper()
	r, err := w.Get(context.Background(), operation.Key{Caller: "ann", ID: id})
	if err != nil {
		w.t.Errorf("operation %q: %v", id, err)
	}
	return r
}

// stored is what the ledger has of it.
func (w *world) stored(id string) operation.Record {
	w.t.Helper()
	r, err := w.ledger.Ledger.Operation(context.Background(), operation.Key{Caller: "ann", ID: id})
	if err != nil {
		w.t.Errorf("operation %q: %v", id, err)
	}
	return r
}

// going is a call that somebody else makes.
type going struct {
	answer operation.Answer
	err    error
	took   time.Duration
	done   chan struct{} // closed when it is over
	leave  context.CancelFunc
}

// begin lets somebody make a call.
func (w *world) begin(ask *operation.Ask) *going {
	ctx, cancel := context.WithDeadline(context.Background(), ask.Call.Deadline)
	g := &going{done: make(chan struct{}), leave: cancel}
	go func() {
		defer close(g.done)
		defer cancel()
		began := time.Now()
		g.answer, g.err = w.Do(ctx, ask)
		g.took = time.Since(began)
	}()
	synctest.Wait()
	return g
}

func (g *going) over() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// payment asks for a POST that must not be repeated; the caller has ten seconds, a second of which is margin.
func payment(id string, send *upstream) *operation.Ask {
	target, err := call.ParseTarget("http://pay.example.com/charges?to=42")
	if err != nil {
		panic(err)
	}
	now := time.Now()
	return &operation.Ask{
		Call: &call.Call{
			Method: "POST", Target: target, Body: []byte(`{"ref":"r-7"}`), Headers: []call.Header{{Name: "Content-Type", Value: "application/json"}},
			Caller: "ann", OperationID: id, Arrived: now, Deadline: now.Add(10 * time.Second),
		},
		Policy: "policies/pay@3", MustNotRepeat: true, Work: now.Add(9 * time.Second), Send: send.send,
	}
}

// lookup asks for something that may be repeated.
func lookup(id string, send *upstream) *operation.Ask {
	a := payment(id, send)
	a.Call.Method, a.MustNotRepeat = "PUT", false
	return a
}

// within gives a call that much time, no margin.
func within(a *operation.Ask, d time.Duration) *operation.Ask {
	a.Work = time.Now().Add(d)
	a.Call.Deadline = a.Work
	return a
}

// upstream plays the engine: send n ends as the nth step says, later ones as the last.
type upstream struct {
	takes time.Duration // for an answer
	steps []func(*call.Call) call.Final

	mu    sync.Mutex // protects the fields below
	calls []call.Call
	now   int // that are under way
	most  int // at once
}

func endsWith(steps ...func(*call.Call) call.Final) *upstream { return &upstream{steps: steps} }

func (u *upstream) slowly(takes time.Duration) *upstream {
	u.takes = takes
	return u
}

func (u *upstream) sends() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.calls)
}

// send answers by the script, or when the caller is gone or the time is up as the engine does.
func (u *upstream) send(ctx context.Context, c *call.Call) call.Final {
	if ctx.Err() != nil {
		return ended(c, call.OutcomeCancelled, call.EffectNone, call.ReasonCancelled)
	}
	u.mu.Lock()
	step := u.steps[min(len(u.calls), len(u.steps)-1)]
	u.calls = append(u.calls, *c)
	u.now++
	u.most = max(u.most, u.now)
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.now--
	}()
	timer := time.NewTimer(u.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return step(c)
	case <-ctx.Done():
		return cancelled(c)
	}
}

// ended is a final with one attempt.
func ended(c *call.Call, o call.Outcome, e call.Effect, r call.Reason) call.Final {
	now := time.Now()
	f := call.Final{
		Outcome: o, Effect: e, Reason: r, Detail: "as the test says", OperationID: c.OperationID, Elapsed: now.Sub(c.Arrived),
		FirstSend: c.Before.FirstSend, Next: call.NextStepRetry, RetrySafe: true,
	}
	if e != call.EffectNone {
		f.Sends, f.Next, f.RetrySafe = 1, call.NextStepFixRequest, false
		if f.FirstSend.IsZero() {
			f.FirstSend = c.Arrived
		}
		f.Attempts = []call.Attempt{{
			Number: 1, Kind: call.KindPrimary, Origin: c.Target.Origin, Start: c.Arrived, Duration: now.Sub(c.Arrived), Timeout: 5 * time.Second,
			Result:   call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureConnectionLost, RemoteAddress: "192.0.2.1:80", Protocol: "HTTP/1.1"},
			Decision: call.Decision{Verdict: call.VerdictStop, Reason: r},
		}}
	}
	return f
}

func answers(status int) func(*call.Call) call.Final {
	return func(c *call.Call) call.Final {
		f := ended(c, call.OutcomeSuccess, call.EffectAnswered, call.ReasonSuccess)
		f.Next = call.NextStepDone
		if status >= 400 {
			f.Outcome, f.Reason, f.Next = call.OutcomeHTTPError, call.ReasonStatusNotRetryable, call.NextStepFixRequest
		}
		f.Response = &call.Response{
			Status: status, Body: []byte("made"), Protocol: "HTTP/1.1", Headers: []call.Header{{Name: "Location", Value: "/o/41"}},
			Trailers: []call.Header{{Name: "X-Sum", Value: "9"}},
		}
		f.Attempts[0].Result.Evidence, f.Attempts[0].Result.Failure, f.Attempts[0].Result.Status = call.EvidenceAnswered, call.FailureNone, status
		f.Told = call.Told{Outcome: f.Outcome, Reason: f.Reason}
		return f
	}
}

// lost: it was sent, must not be repeated, and nobody knows.
func lost(c *call.Call) call.Final {
	f := ended(c, call.OutcomeUnknown, call.EffectUnknown, call.ReasonNotRepeatable)
	f.Next, f.Told = call.NextStepReconcile, call.Told{Outcome: f.Outcome, Reason: f.Reason}
	return f
}

// cancelled: the same, and the caller is gone.
func cancelled(c *call.Call) call.Final {
	f := lost(c)
	f.Outcome, f.Reason = call.OutcomeCancelled, call.ReasonCancelled
	return f
}

// refused: nothing was sent.
func refused(c *call.Call) call.Final {
	return ended(c, call.OutcomeBreakerOpen, call.EffectNone, call.ReasonBreakerOpen)
}

// exhausted: it may have had an effect, and may be made again.
func exhausted(c *call.Call) call.Final {
	return ended(c, call.OutcomeRetriesExhausted, call.EffectUnknown, call.ReasonAttemptsExhausted)
}

// runsOn: its caller is told that nobody knows after that time, and the attempt ends later as the next one says.
func runsOn(later <-chan call.Final) func(*call.Call) call.Final {
	return func(c *call.Call) call.Final {
		f := lost(c)
		f.Late = later
		return f
	}
}

// heard is what the observer was told, and the log.
type heard struct {
	mu     sync.Mutex // protects the fields below
	asked  []operation.How
	probed []operation.Finding
	failed []string
	log    bytes.Buffer
	led    func() // called when a call leads; nil: nothing
}

func (h *heard) Asked(_ context.Context, how operation.How) {
	h.mu.Lock()
	h.asked = append(h.asked, how)
	led := h.led
	h.mu.Unlock()
	if how == operation.Led && led != nil {
		led()
	}
}

func (h *heard) Probed(_ context.Context, f *operation.Finding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probed = append(h.probed, *f)
}

func (h *heard) LedgerFailed(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = append(h.failed, what)
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(p)
}

func (h *heard) hows() []operation.How {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

func (h *heard) failures() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.failed)
}

// fault is what a ledger does instead of working.
type fault struct {
	takes time.Duration // before anything else; a ctx that ends is heeded, unless deaf
	deaf  bool          // it is done, however long it takes
	err   error
	after bool // the error comes though it was done
}

var errDisk = errors.New("the disk is full")

// faulty is a memory ledger with faults, which cannot be made otherwise.
type faulty struct {
	*memory.Ledger

	mu                                   sync.Mutex // protects the fields below
	begin, write, read, settling, pruned *fault
	begins, writes, prunes               int
	more                                 bool
}

// set changes the faults.
func (l *faulty) set(change func(*faulty)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// counts are the writes and prunes so far.
func (l *faulty) counts() (writes, prunes int) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes, l.prunes
}

func (l *faulty) now(which func(*faulty) (*fault, *int)) fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, count := which(l)
	if count != nil {
		*count++
	}
	if f == nil {
		return fault{}
	}
	return *f
}

// meet does it with its fault.
func (f *fault) meet(ctx context.Context, do func(context.Context) error) error {
	timer := time.NewTimer(f.takes)
	defer timer.Stop()
	if f.deaf {
		<-timer.C
		ctx = context.WithoutCancel(ctx)
	} else if f.takes > 0 {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.err != nil && !f.after {
		return f.err
	}
	if err := do(ctx); err != nil {
		return err
	}
	return f.err
}

func (l *faulty) Begin(ctx context.Context, start *operation.Record) (stands operation.Record, led bool, err error) {
	f := l.now(func(l *faulty) (*fault, *int) { return l.begin, &l.begins })
	err = f.meet(ctx, func(ctx context.Context) (err error) {
		stands, led, err = l.Ledger.Begin(ctx, start)
		return err
	})
	if err != nil {
		return operation.Record{}, false, err
	}
	return stands, led, nil
}

func (l *faulty) Write(ctx context.Context, r *operation.Record) error {
	f := l.now(func(l *faulty) (*fault, *int) { return l.write, &l.writes })
	return f.meet(ctx, func(ctx context.Context) error { return l.Ledger.Write(ctx, r) })
}

func (l *faulty) Operation(ctx context.Context, k operation.Key) (r operation.Record, err error) {
	f := l.now(func(l *faulty) (*fault, *int) { return l.read, nil })
	err = f.meet(ctx, func(ctx context.Context) (err error) {
		r, err = l.Ledger.Operation(ctx, k)
		return err
	})
	return r, err
}

func (l *faulty) Operations(ctx context.Context, caller string, s operation.State, after operation.Cursor, n int) (all []operation.Record, err error) {
	f := l.now(func(l *faulty) (*fault, *int) { return l.read, nil })
	err = f.meet(ctx, func(ctx context.Context) (err error) {
		all, err = l.Ledger.Operations(ctx, caller, s, after, n)
		return err
	})
	return all, err
}

func (l *faulty) Settle(ctx context.Context, owner string, now time.Time) (n int, err error) {
	f := l.now(func(l *faulty) (*fault, *int) { return l.settling, nil })
	err = f.meet(ctx, func(ctx context.Context) (err error) {
		n, err = l.Ledger.Settle(ctx, owner, now)
		return err
	})
	return n, err
}

func (l *faulty) Prune(ctx context.Context, now time.Time, mostBodyBytes int64) (more bool, err error) {
	f := l.now(func(l *faulty) (*fault, *int) { return l.pruned, &l.prunes })
	err = f.meet(ctx, func(ctx context.Context) (err error) {
		more, err = l.Ledger.Prune(ctx, now, mostBodyBytes)
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	return more || l.more, err
}

// unavailable fails the test unless the ledger could not be used and nothing was sent.
func unavailable(t *testing.T, err error, u *upstream, sends int) {
	t.Helper()
	if _, ok := errors.AsType[*operation.UnavailableError](err); !ok || u.sends() != sends {
		t.Errorf("%v after %d sends, want that the ledger cannot be used, and %d", err, u.sends(), sends)
	}
}
