package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/call/archive"
)

// Operations decides for every call with an operation id whether it is sent, joins, or is told what is known. It is safe for
// concurrent use.
type Operations struct {
	cfg Config

	mu        sync.Mutex // protects the fields below
	entries   map[Key]*entry
	unsaved   int // entries whose outcome the ledger could not take yet
	inquiries int // in the background

	tasks  sync.WaitGroup
	closed chan struct{} // closed by Close
	once   sync.Once
}

// Config is what Operations stand on; all of it is required.
type Config struct {
	Ledger Ledger
	Keeper Keeper
	// Owner names this process: another one never has the same, not even where an older data directory was put back.
	Owner string
	// Observer hears what happens.
	Observer Observer
	// Log hears of a ledger that fails.
	Log *slog.Logger
}

// Observer hears of operations. It must not block.
type Observer interface {
	// Asked: somebody asked under an id, and this is how it was found.
	Asked(ctx context.Context, how How)
	// Probed: the status probe of an operation was made.
	Probed(ctx context.Context, f *Finding)
	// LedgerFailed: the ledger could not be read or written.
	LedgerFailed(what string)
}

// How tells what was found under an id.
type How string

// What was found.
const (
	// Led: nothing, or a free id: the call is sent.
	Led How = "led"
	// Joined: a call that is under way.
	Joined How = "joined"
	// Replayed: what an earlier call left.
	Replayed How = "replayed"
	// Conflicted: another payload.
	Conflicted How = "conflict"
)

// The bounds of what is kept in memory.
const (
	// mostUnsaved is how many outcomes wait for a ledger that cannot be written. Beyond it no operation is begun.
	mostUnsaved = 1000
	// onceWithin bounds one try of the ledger, saveAgain is the pause before another one.
	onceWithin = 5 * time.Second
	saveAgain  = time.Second
	// tooLateWithin bounds the look at what is known for a call that has no time left but its margin.
	tooLateWithin = 100 * time.Millisecond
	// replyWaits is the longest that an answer waits until it is written.
	replyWaits = time.Second
)

// New makes them. Close ends them.
func New(cfg Config) *Operations {
	o := &Operations{cfg: cfg, entries: map[Key]*entry{}, closed: make(chan struct{})}
	o.tasks.Go(o.tend)
	return o
}

// Close waits for what is still to be written, until ctx ends. No call may be made any more.
func (o *Operations) Close(ctx context.Context) {
	o.once.Do(func() { close(o.closed) })
	done := make(chan struct{}) // closed by the goroutine below
	go func() {
		defer close(done)
		o.tasks.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Ask is a call under an operation id.
type Ask struct {
	Call *call.Call
	// Policy is the name and revision that rule it.
	Policy string
	// MustNotRepeat: the policy forbids to send again what may have been sent.
	MustNotRepeat bool
	// KeyField is the field that carries the key to the upstream, KeyTTL how long that remembers it; "" and 0 without a contract.
	KeyField string
	KeyTTL   time.Duration
	// Work is when the answer must stand.
	Work time.Time
	// Send makes the call. It returns in time; an attempt that runs on is in its Late.
	Send func(context.Context, *call.Call) call.Final
	// HandOver has a call go on as a deferred one, where it may; nil: it does not. It is asked when the call has ended so that its id would be
	// free again, while nobody else can have it, and given the epoch of the lead in the ledger. With an id of a deferred call, the operation
	// id is that call's in the ledger by then, and the final is what is told; with "" the final is the end of the call.
	HandOver func(ctx context.Context, epoch uint64, f *call.Final) (final call.Final, id string)
	// Probe finds out an unknown effect; nil: nothing does.
	Probe *Probe
}

// Answer is what became of a call under an id.
type Answer struct {
	call.Final
	// Policy ruled the call that was sent.
	Policy string
	// Replayed: another call was sent, this one was not.
	Replayed bool
	// Deferred is the id of the deferred call that has the operation, with OUTCOME_DEFERRED; "" otherwise.
	Deferred string
}

// UnavailableError says that the ledger cannot be used, and that nothing was sent.
type UnavailableError struct{ Cause error }

// Error tells no more than the cause does.
func (e *UnavailableError) Error() string {
	return "the ledger of operations cannot be used: " + e.Cause.Error()
}

func (e *UnavailableError) Unwrap() error { return e.Cause }

var (
	errSlow      = errors.New("it did not answer in time")
	errUnsaved   = errors.New("too many outcomes wait to be written")
	errUnwritten = errors.New("the outcome of this operation waits to be written")
	errForeign   = errors.New("another broker is making this operation")
)

// entry is an id that is in use in this process.
type entry struct {
	key         Key
	fingerprint Fingerprint
	// begun is closed when it is known who has the id: led, or err, or stands, which somebody left, is set then. Without any of
	// them it is nobody any more.
	begun  chan struct{}
	led    bool
	err    error
	stands *Record
	// answered is closed when answer stands for those who joined, tried when it was written or that failed once. Once it is written
	// the entry is gone.
	answered, tried chan struct{}
	answer          Answer

	// The fields below are protected by Operations.mu.
	cancel  context.CancelCauseFunc // of the call
	record  Record                  // as it is known; its Epoch is 0 before the ledger has answered
	gone    bool                    // the leader's caller is
	joiners int
	unsaved bool // the ledger could not take the outcome yet
}

// Do makes the call, or joins or repeats the one that was made. The only error is an [*UnavailableError].
func (o *Operations) Do(ctx context.Context, a *Ask) (Answer, error) {
	key := Key{a.Call.Caller, a.Call.OperationID}
	fingerprint := FingerprintOf(a.Call, a.KeyField)
	if !time.Now().Before(a.Work) {
		return o.tooLate(ctx, key, fingerprint, a)
	}
	for {
		e, leads, err := o.enter(key, fingerprint)
		if err != nil {
			return Answer{}, err
		}
		if leads {
			return o.lead(ctx, e, a)
		}
		answer, over, err := o.join(ctx, e, a, fingerprint)
		if over || err != nil {
			return answer, err
		}
	}
}

// tooLate answers a call that came with no time left: what is known of its id is told, and else that nothing was sent.
func (o *Operations) tooLate(ctx context.Context, k Key, fingerprint Fingerprint, a *Ask) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, tooLateWithin)
	defer cancel()
	r, err := o.Get(ctx, k)
	switch {
	case err == nil && r.State == StateRunning && r.Fingerprint == fingerprint:
		return unanswered(ctx, a), nil
	case err == nil && r.State == StateRunning:
		return o.conflict(ctx, a), nil
	case err == nil && !r.Free():
		return o.told(ctx, &r, a, fingerprint)
	case err != nil && !errors.Is(err, ErrNotFound):
		return Answer{}, &UnavailableError{err}
	}
	c := *a.Call
	c.Before = r.before()
	return Answer{Final: a.Send(ctx, &c), Policy: a.Policy}, nil
}

// enter finds who uses the id, or takes it.
func (o *Operations) enter(key Key, fingerprint Fingerprint) (e *entry, leads bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.entries[key]; ok {
		return e, false, nil
	}
	if o.unsaved >= mostUnsaved {
		return nil, false, &UnavailableError{errUnsaved}
	}
	e = &entry{
		key: key, fingerprint: fingerprint, cancel: func(error) {},
		begun: make(chan struct{}), answered: make(chan struct{}), tried: make(chan struct{}),
	}
	o.entries[key] = e
	return e, true, nil
}

// leave gives an id back that nothing was done with.
func (o *Operations) leave(e *entry) {
	o.mu.Lock()
	delete(o.entries, e.key)
	o.mu.Unlock()
}

// lead makes the call if the ledger agrees.
func (o *Operations) lead(ctx context.Context, e *entry, a *Ask) (Answer, error) {
	err := o.begin(ctx, e, a)
	switch {
	case err != nil:
		return Answer{}, err
	case !e.led:
		return o.told(ctx, e.stands, a, e.fingerprint)
	}
	o.cfg.Observer.Asked(ctx, Led)
	return o.run(ctx, e, a), nil
}

// told answers from a record that stands.
func (o *Operations) told(ctx context.Context, r *Record, a *Ask, fingerprint Fingerprint) (Answer, error) {
	switch {
	case r.State == StateRunning && r.Deferred == "":
		return Answer{}, &UnavailableError{errForeign}
	case r.Fingerprint != fingerprint:
		return o.conflict(ctx, a), nil
	case r.State == StateRunning:
		return o.handedOver(ctx, r, a), nil
	}
	answer, err := replay(r)
	if err != nil {
		return Answer{}, o.failed("read", err)
	}
	answer.OperationID, answer.Elapsed = a.Call.OperationID, time.Since(a.Call.Arrived)
	o.cfg.Observer.Asked(ctx, Replayed)
	return answer, nil
}

// replay is what the record tells those who ask again.
func replay(r *Record) (Answer, error) {
	d, err := r.details()
	if err != nil {
		return Answer{}, err
	}
	f := call.Final{
		Outcome: r.Told.Outcome, Effect: r.Effect, Reason: r.Told.Reason, Detail: d.Detail,
		Response: r.response(&d), Attempts: archive.Attempts(d.Attempts), RetrySafe: d.RetrySafe, Next: d.Next, FirstSend: r.FirstSend,
	}
	if f.Outcome == call.OutcomeSuccess {
		f.Next = call.NextStepDone // also where its caller was gone when the answer came
	}
	return Answer{Final: f, Policy: d.Policy, Replayed: true}, nil
}

// handedOver: a deferred call has the id, and is not over.
func (o *Operations) handedOver(ctx context.Context, r *Record, a *Ask) Answer {
	o.cfg.Observer.Asked(ctx, Joined)
	return Answer{Policy: a.Policy, Replayed: true, Deferred: r.Deferred, Final: call.Final{
		Outcome: call.OutcomeDeferred, Effect: call.EffectUnknown, Reason: call.ReasonDeferred,
		Detail:    "a deferred call has this operation id and is not over; it goes on",
		RetrySafe: !a.MustNotRepeat, Next: call.NextStepWait,
		OperationID: a.Call.OperationID, Elapsed: time.Since(a.Call.Arrived),
	}}
}

// conflict: the id was used for another payload.
func (o *Operations) conflict(ctx context.Context, a *Ask) Answer {
	o.cfg.Observer.Asked(ctx, Conflicted)
	return Answer{Policy: a.Policy, Final: call.Final{
		Outcome: call.OutcomeOperationConflict, Effect: call.EffectNone, Reason: call.ReasonOperationConflict,
		Detail:      "this operation id was used before with another method, URL, body or headers; nothing was sent. Use a new id for a new operation",
		RetrySafe:   true,
		Next:        call.NextStepFixRequest,
		OperationID: a.Call.OperationID, Elapsed: time.Since(a.Call.Arrived),
	}}
}

// failed tells of a ledger that does not work.
func (o *Operations) failed(what string, err error) error {
	o.cfg.Observer.LedgerFailed(what)
	o.cfg.Log.Error("the ledger of operations failed", "doing", what, "error", err)
	return &UnavailableError{err}
}

// Get tells what is known of an operation, or [ErrNotFound].
func (o *Operations) Get(ctx context.Context, k Key) (Record, error) {
	if r, ok := o.current(k); ok {
		return r, nil
	}
	r, err := o.read(ctx, k)
	if err != nil || r.State != StateRunning || r.Owner != o.cfg.Owner || o.inUse(k) {
		return r, err
	}
	// It was begun here, and ended meanwhile, or was never sent: the ledger said that it had failed to begin it. The second look tells.
	begun := r.Epoch
	if r, err = o.read(ctx, k); err == nil && r.State == StateRunning && r.Epoch == begun {
		r.unsent()
	}
	return r, err
}

func (o *Operations) read(ctx context.Context, k Key) (Record, error) {
	r, err := o.cfg.Ledger.Operation(ctx, k)
	if err != nil && !errors.Is(err, ErrNotFound) && ctx.Err() == nil {
		return r, o.failed("read", err)
	}
	if err != nil {
		return r, fmt.Errorf("operation: %w", err)
	}
	return r, nil
}

func (o *Operations) inUse(k Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.entries[k] != nil
}

// current is what this process knows better than the ledger.
func (o *Operations) current(k Key) (Record, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, ok := o.entries[k]
	if !ok || e.record.Epoch == 0 {
		return Record{}, false
	}
	return e.record, true
}

// List lists the operations of a caller, see [Reader]. What is under way is told as the ledger has it.
func (o *Operations) List(ctx context.Context, caller string, s State, after Cursor, n int) ([]Record, error) {
	records, err := o.cfg.Ledger.Operations(ctx, caller, s, after, n)
	if err != nil && ctx.Err() == nil {
		return nil, o.failed("read", err)
	}
	if err != nil {
		return nil, fmt.Errorf("operations: %w", err)
	}
	return records, nil
}

// Identity names the ledger, and says since when it surely knows every id.
func (o *Operations) Identity() (name string, since time.Time) {
	name, since = o.cfg.Keeper.Identity()
	return name, latest(since, time.Now().Add(-tombstone))
}
