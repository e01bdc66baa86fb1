package memory

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

// Ledger keeps operations until they are pruned.
type Ledger struct {
	name  string
	since time.Time

	mu      sync.Mutex // protects the field below
	records map[operation.Key]*operation.Record
}

var (
	_ operation.Ledger = (*Ledger)(nil)
	_ operation.Keeper = (*Ledger)(nil)
)

// NewLedger returns an empty ledger that knows since then.
func NewLedger(since time.Time) *Ledger {
	return &Ledger{name: "memory:" + rand.Text(), since: plain(since), records: map[operation.Key]*operation.Record{}}
}

// Identity implements [operation.Keeper].
func (l *Ledger) Identity() (name string, since time.Time) { return l.name, l.since }

// Begin implements [operation.Ledger].
func (l *Ledger) Begin(ctx context.Context, start *operation.Record) (operation.Record, bool, error) {
	if err := storableRecord(start); err != nil {
		return operation.Record{}, false, err
	}
	if err := ctx.Err(); err != nil {
		return operation.Record{}, false, err //nolint:wrapcheck // it says all there is
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.records[start.Key]
	if old != nil && !old.Free() {
		return cloneRecord(old), false, nil
	}
	lead := cloneRecord(start)
	lead.State, lead.Epoch, lead.UpdateTime = operation.StateRunning, 1, lead.CreateTime
	if old != nil {
		lead.Epoch = old.Epoch + 1
		lead.CreateTime, lead.FirstSend, lead.Effect = old.CreateTime, old.FirstSend, old.Effect
	}
	l.records[start.Key] = &lead
	return cloneRecord(&lead), true, nil
}

// Write implements [operation.Ledger].
func (l *Ledger) Write(ctx context.Context, r *operation.Record) error {
	if err := storableRecord(r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // it says all there is
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.records[r.Key]
	if old == nil || old.Epoch != r.Epoch {
		return operation.ErrSuperseded
	}
	next := cloneRecord(r)
	next.CreateTime = old.CreateTime
	l.records[r.Key] = &next
	return nil
}

// Operation implements [operation.Reader].
func (l *Ledger) Operation(ctx context.Context, k operation.Key) (operation.Record, error) {
	if err := ctx.Err(); err != nil {
		return operation.Record{}, err //nolint:wrapcheck // it says all there is
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[k]; r != nil {
		return cloneRecord(r), nil
	}
	return operation.Record{}, operation.ErrNotFound
}

// Operations implements [operation.Reader].
func (l *Ledger) Operations(ctx context.Context, caller string, s operation.State, after operation.Cursor, n int) ([]operation.Record, error) {
	if err := storable(after.CreateTime); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // it says all there is
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var page []operation.Record
	for _, r := range l.sortedLocked(latestFirst) {
		if len(page) >= n {
			break
		}
		at := &operation.Record{Key: operation.Key{ID: after.ID}, CreateTime: after.CreateTime}
		if r.Caller == caller && (s == operation.StateUnspecified || r.State == s) &&
			(after == operation.Cursor{} || latestFirst(at, r) < 0) {
			page = append(page, cloneRecord(r))
		}
	}
	return page, nil
}

// latestFirst orders a list.
func latestFirst(a, b *operation.Record) int {
	if c := b.CreateTime.Compare(a.CreateTime); c != 0 {
		return c
	}
	return strings.Compare(b.ID, a.ID)
}

// oldestFirst orders what is pruned.
func oldestFirst(a, b *operation.Record) int {
	if c := a.UpdateTime.Compare(b.UpdateTime); c != 0 {
		return c
	}
	if c := strings.Compare(a.Caller, b.Caller); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// Settle implements [operation.Keeper].
func (l *Ledger) Settle(ctx context.Context, owner string, now time.Time) (int, error) {
	if err := storable(now); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // it says all there is
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	settled := 0
	for _, r := range l.records {
		if r.State != operation.StateRunning || r.Owner == owner || r.Deferred != "" {
			continue
		}
		settled++
		r.UpdateTime = plain(now)
		if !r.MustNotRepeat {
			r.State, r.Effect, r.Fingerprint = operation.StateFinished, call.EffectUnknown, operation.Fingerprint{}
			continue
		}
		r.State = operation.StateUnknown
		r.Told = call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}
		if r.Outcome == call.OutcomeUnspecified {
			r.Outcome, r.Effect, r.Reason = call.OutcomeUnknown, call.EffectUnknown, call.ReasonNotRepeatable
		}
	}
	return settled, nil
}

// Prune implements [operation.Keeper]. Nothing is left over.
func (l *Ledger) Prune(ctx context.Context, now time.Time, mostBodyBytes int64) (bool, error) {
	if err := storable(now); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err //nolint:wrapcheck // it says all there is
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	bodies := int64(0)
	for k, r := range l.records {
		if r.State != operation.StateRunning && !now.Before(r.Until) {
			delete(l.records, k)
			continue
		}
		if r.State != operation.StateRunning && !now.Before(r.BodyUntil) {
			r.Body = nil
			if r.State == operation.StateFinished {
				r.Details = nil
			}
		}
		bodies += int64(len(r.Body))
	}
	for _, r := range l.sortedLocked(oldestFirst) {
		if bodies <= mostBodyBytes {
			break
		}
		if r.State != operation.StateRunning {
			bodies -= int64(len(r.Body))
			r.Body = nil
		}
	}
	return false, nil
}

func (l *Ledger) sortedLocked(order func(a, b *operation.Record) int) []*operation.Record {
	var all []*operation.Record
	for _, r := range l.records {
		all = append(all, r)
	}
	slices.SortFunc(all, order)
	return all
}

func cloneRecord(r *operation.Record) operation.Record {
	c := *r
	c.Request, c.Details, c.Body = bytes.Clone(r.Request), bytes.Clone(r.Details), bytes.Clone(r.Body)
	for _, t := range []*time.Time{&c.FirstSend, &c.CreateTime, &c.UpdateTime, &c.BodyUntil, &c.Until} {
		*t = plain(*t)
	}
	return c
}

func storableRecord(r *operation.Record) error {
	return storable(r.FirstSend, r.CreateTime, r.UpdateTime, r.BodyUntil, r.Until)
}
