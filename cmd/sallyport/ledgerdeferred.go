package main

import (
	"context"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/store/sqlite"
)

// deferredFile are the deferred calls in the file of the ledger, which is opened when it can be.
type deferredFile struct{ ledger *ledgerFile }

// within uses them.
func within[T any](ctx context.Context, f deferredFile, use func(sqlite.Deferred) (T, error)) (T, error) {
	ledger, err := f.ledger.get(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return use(ledger.Deferred())
}

// within2 is within for what gives two things.
func within2[T, U any](ctx context.Context, f deferredFile, use func(sqlite.Deferred) (T, U, error)) (t T, u U, err error) {
	ledger, err := f.ledger.get(ctx)
	if err != nil {
		return t, u, err
	}
	return use(ledger.Deferred())
}

func (f deferredFile) Submit(ctx context.Context, r *deferred.Record) (stands deferred.Record, stored bool, err error) {
	return within2(ctx, f, func(d sqlite.Deferred) (deferred.Record, bool, error) { return d.Submit(ctx, r) })
}

func (f deferredFile) Begin(ctx context.Context, seq, epoch uint64, repeatable bool, now time.Time) error {
	_, err := within(ctx, f, func(d sqlite.Deferred) (struct{}, error) {
		return struct{}{}, d.Begin(ctx, seq, epoch, repeatable, now)
	})
	return err
}

func (f deferredFile) End(ctx context.Context, r *deferred.Record, attempts []call.Attempt) error {
	_, err := within(ctx, f, func(d sqlite.Deferred) (struct{}, error) { return struct{}{}, d.End(ctx, r, attempts) })
	return err
}

func (f deferredFile) Settle(ctx context.Context, r *deferred.Record) error {
	_, err := within(ctx, f, func(d sqlite.Deferred) (struct{}, error) { return struct{}{}, d.Settle(ctx, r) })
	return err
}

func (f deferredFile) Due(ctx context.Context, now time.Time, n int, without map[deferred.Lane]bool, busy map[uint64]bool) ([]deferred.Record, time.Time, error) {
	return within2(ctx, f, func(d sqlite.Deferred) ([]deferred.Record, time.Time, error) {
		return d.Due(ctx, now, n, without, busy)
	})
}

func (f deferredFile) Find(ctx context.Context, caller, id string) (deferred.Record, error) {
	return within(ctx, f, func(d sqlite.Deferred) (deferred.Record, error) { return d.Find(ctx, caller, id) })
}

func (f deferredFile) List(ctx context.Context, filter *deferred.Filter, before uint64, n int) ([]deferred.Record, error) {
	return within(ctx, f, func(d sqlite.Deferred) ([]deferred.Record, error) { return d.List(ctx, filter, before, n) })
}

func (f deferredFile) Counts(ctx context.Context, caller string) (map[deferred.State]uint64, error) {
	return within(ctx, f, func(d sqlite.Deferred) (map[deferred.State]uint64, error) { return d.Counts(ctx, caller) })
}

func (f deferredFile) Recover(ctx context.Context, now time.Time) (int, error) {
	return within(ctx, f, func(d sqlite.Deferred) (int, error) { return d.Recover(ctx, now) })
}

func (f deferredFile) Cancel(ctx context.Context, caller, id string, now, until time.Time) (deferred.Record, error) {
	return within(ctx, f, func(d sqlite.Deferred) (deferred.Record, error) { return d.Cancel(ctx, caller, id, now, until) })
}

func (f deferredFile) Redrive(ctx context.Context, which *deferred.Which, perSecond float64, now time.Time) (uint64, error) {
	return within(ctx, f, func(d sqlite.Deferred) (uint64, error) { return d.Redrive(ctx, which, perSecond, now) })
}

func (f deferredFile) Purge(ctx context.Context, which *deferred.Which) (uint64, error) {
	return within(ctx, f, func(d sqlite.Deferred) (uint64, error) { return d.Purge(ctx, which) })
}

func (f deferredFile) Expire(ctx context.Context, now time.Time) (time.Time, bool, error) {
	return within2(ctx, f, func(d sqlite.Deferred) (time.Time, bool, error) { return d.Expire(ctx, now) })
}

func (f deferredFile) Changes(ctx context.Context, filter *deferred.Filter, after uint64, n int) ([]deferred.Record, uint64, error) {
	return within2(ctx, f, func(d sqlite.Deferred) ([]deferred.Record, uint64, error) { return d.Changes(ctx, filter, after, n) })
}
