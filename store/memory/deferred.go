package memory

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
)

// Deferred keeps deferred calls.
type Deferred struct {
	taken func(caller, id string) bool

	mu       sync.Mutex // protects the fields below
	records  []*kept    // in the order of Seq; nothing is evicted but what is purged
	seq      uint64     // the last that was given
	position uint64     // of the last change
}

type kept struct {
	deferred.Record
	changed uint64 // the position of its last change
}

var (
	_ deferred.Store  = (*Deferred)(nil)
	_ deferred.Keeper = (*Deferred)(nil)
)

// NewDeferred returns an empty store. taken, which may be nil, says of an operation id that a direct call of that caller stands for it; it is
// asked in the same step in which the id is given to a deferred call, and must not use the store. It is not asked of a direct call that goes on as
// a deferred one, of which no ledger is told.
func NewDeferred(taken func(caller, id string) bool) *Deferred { return &Deferred{taken: taken} }

// Submit implements [deferred.Store].
func (d *Deferred) Submit(ctx context.Context, r *deferred.Record) (deferred.Record, bool, error) {
	if err := storableDeferred(r); err != nil {
		return deferred.Record{}, false, err
	}
	if err := ctx.Err(); err != nil {
		return deferred.Record{}, false, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.records {
		if k.Caller == r.Caller && k.OperationID == r.OperationID {
			if k.Fingerprint != r.Fingerprint {
				return deferred.Record{}, false, deferred.ErrConflict
			}
			return cloneDeferred(&k.Record), false, nil
		}
	}
	if d.taken != nil && r.Lead == 0 && d.taken(r.Caller, r.OperationID) {
		return deferred.Record{}, false, deferred.ErrConflict
	}
	k := &kept{Record: cloneDeferred(r)}
	k.Lead = 0
	d.seq++
	k.Seq = d.seq
	d.records = append(d.records, k)
	d.changedLocked(k)
	return cloneDeferred(&k.Record), true, nil
}

// Begin implements [deferred.Store].
func (d *Deferred) Begin(ctx context.Context, seq, epoch uint64, repeatable bool, now time.Time) error {
	if err := storable(now); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.atLocked(seq)
	if k == nil || k.Epoch != epoch || !waits(&k.Record) {
		return deferred.ErrSuperseded
	}
	k.State, k.Epoch, k.Repeatable, k.Updated, k.NextAttempt = deferred.StateSending, epoch+1, repeatable, plain(now), time.Time{}
	d.changedLocked(k)
	return nil
}

// End implements [deferred.Store].
func (d *Deferred) End(ctx context.Context, r *deferred.Record, attempts []call.Attempt) error {
	if err := storableDeferred(r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.atLocked(r.Seq)
	if k == nil || k.Epoch != r.Epoch || k.State.Finished() {
		return deferred.ErrSuperseded
	}
	next := cloneDeferred(r)
	next.Attempts = k.Attempts
	for i := range attempts {
		if attempts[i].Number > uint32(len(next.Attempts)) { //nolint:gosec // a log in memory
			next.Attempts = append(next.Attempts, plainAttempt(attempts[i]))
		}
	}
	next.Tried = uint32(len(next.Attempts)) //nolint:gosec // as above
	if next.Response == nil {
		next.Response = k.Response
	}
	k.Record = next
	d.changedLocked(k)
	return nil
}

// Settle implements [deferred.Store].
func (d *Deferred) Settle(ctx context.Context, r *deferred.Record) error {
	if err := storableDeferred(r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.atLocked(r.Seq)
	if k == nil || k.Epoch != r.Epoch || k.State != deferred.StateUnknown {
		return deferred.ErrSuperseded
	}
	next := cloneDeferred(r)
	next.Attempts = k.Attempts
	if next.Response == nil {
		next.Response = k.Response
	}
	k.Record = next
	d.changedLocked(k)
	return nil
}

// Due implements [deferred.Finder].
func (d *Deferred) Due(ctx context.Context, now time.Time, n int, without map[deferred.Lane]bool, busy map[uint64]bool) (due []deferred.Record, next time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return nil, time.Time{}, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	lanes := map[deferred.Lane][]*kept{}
	for _, k := range d.records {
		lane := deferred.Lane{Caller: k.Caller, Origin: k.Origin}
		switch {
		case !waits(&k.Record), busy[k.Seq], without[lane], without[deferred.Lane{Origin: k.Origin}]:
		case now.Before(k.NextAttempt):
			next = earlier(next, k.NextAttempt)
		default:
			lanes[lane] = append(lanes[lane], k)
		}
	}
	order := slices.SortedFunc(maps.Keys(lanes), func(a, b deferred.Lane) int {
		if c := strings.Compare(a.Origin, b.Origin); c != 0 {
			return c
		}
		return strings.Compare(a.Caller, b.Caller)
	})
	for _, waiting := range lanes {
		slices.SortStableFunc(waiting, func(a, b *kept) int { return int(rank(a.Criticality)) - int(rank(b.Criticality)) })
	}
	for round := 0; len(due) < n; round++ {
		before := len(due)
		for _, lane := range order {
			if round < len(lanes[lane]) && len(due) < n {
				r := cloneDeferred(&lanes[lane][round].Record)
				r.Attempts, r.Response = nil, nil
				due = append(due, r)
			}
		}
		if len(due) == before {
			break
		}
	}
	if len(due) == n {
		next = time.Time{}
	}
	return due, next, nil
}

// rank of a criticality; an unspecified one is normal.
func rank(c call.Criticality) call.Criticality {
	if c == call.CriticalityUnspecified {
		return call.CriticalityNormal
	}
	return c
}

// Find implements [deferred.Finder].
func (d *Deferred) Find(ctx context.Context, caller, id string) (deferred.Record, error) {
	if err := ctx.Err(); err != nil {
		return deferred.Record{}, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.namedLocked(caller, id); k != nil {
		return cloneDeferred(&k.Record), nil
	}
	return deferred.Record{}, deferred.ErrNotFound
}

// List implements [deferred.Finder].
func (d *Deferred) List(ctx context.Context, f *deferred.Filter, before uint64, n int) ([]deferred.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var page []deferred.Record
	for _, k := range slices.Backward(d.records) {
		if len(page) >= n {
			break
		}
		if (before == 0 || k.Seq < before) && picks(f, &k.Record) {
			page = append(page, listed(&k.Record))
		}
	}
	return page, nil
}

// Counts implements [deferred.Finder].
func (d *Deferred) Counts(ctx context.Context, caller string) (map[deferred.State]uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := map[deferred.State]uint64{}
	for _, k := range d.records {
		if caller == "" || k.Caller == caller {
			counts[k.State]++
		}
	}
	return counts, nil
}

func (d *Deferred) changedLocked(k *kept) {
	d.position++
	k.changed = d.position
}

// atLocked gives the record of that Seq; nil: there is none.
func (d *Deferred) atLocked(seq uint64) *kept {
	if i, ok := slices.BinarySearchFunc(d.records, seq, func(k *kept, seq uint64) int { return int(int64(k.Seq - seq)) }); ok { //nolint:gosec // the sign of a difference
		return d.records[i]
	}
	return nil
}

func (d *Deferred) namedLocked(caller, id string) *kept {
	for _, k := range d.records {
		if k.ID == id && (caller == "" || k.Caller == caller) {
			return k
		}
	}
	return nil
}

func waits(r *deferred.Record) bool {
	return r.State == deferred.StatePending || r.State == deferred.StateRetrying
}

// picks reports whether a filter picks a record.
func picks(f *deferred.Filter, r *deferred.Record) bool {
	if f == nil {
		return true
	}
	for name, value := range f.Labels {
		if has, ok := r.Labels[name]; !ok || has != value {
			return false
		}
	}
	return (f.Caller == "" || f.Caller == r.Caller) && (f.State == deferred.StateUnspecified || f.State == r.State) &&
		(f.Origin == "" || f.Origin == r.Origin) && !r.Created.Before(f.CreatedAfter) &&
		(f.CreatedBefore.IsZero() || r.Created.Before(f.CreatedBefore))
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// listed is a record as a list shows it: without the body of its answer.
func listed(r *deferred.Record) deferred.Record {
	c := cloneDeferred(r)
	if c.Response != nil && len(c.Response.Body) > 0 {
		c.Response.Body, c.Response.BodyOmitted = nil, true
	}
	return c
}

func cloneDeferred(r *deferred.Record) deferred.Record {
	c := *r
	c.Labels, c.Request = maps.Clone(r.Labels), bytes.Clone(r.Request)
	c.Attempts = nil
	for i := range r.Attempts {
		c.Attempts = append(c.Attempts, plainAttempt(r.Attempts[i]))
	}
	if r.Response != nil {
		answer := *r.Response
		answer.Headers, answer.Body, answer.Trailers = slices.Clone(answer.Headers), bytes.Clone(answer.Body), slices.Clone(answer.Trailers)
		c.Response = &answer
	}
	for _, t := range []*time.Time{&c.NextAttempt, &c.NotBefore, &c.Expire, &c.Created, &c.Updated, &c.Ended, &c.Until, &c.FirstSend} {
		*t = plain(*t)
	}
	return c
}

// plainAttempt is an attempt as it is kept: its answer stands elsewhere, and what only its sender needs is gone.
func plainAttempt(a call.Attempt) call.Attempt {
	a.Start, a.Deadline, a.Departure, a.Remaining, a.Clipped = plain(a.Start), time.Time{}, nil, 0, false
	a.TraceParent, a.Result.Response, a.Result.Note, a.Result.Opening, a.Result.Terminal = "", nil, "", nil, false
	return a
}

func storableDeferred(r *deferred.Record) error {
	return storable(r.NextAttempt, r.NotBefore, r.Expire, r.Created, r.Updated, r.Ended, r.Until, r.FirstSend)
}
