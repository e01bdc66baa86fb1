package memory

import (
	"context"
	"slices"
	"time"

	"github.com/sallyport/sallyport/deferred"
)

// Recover implements [deferred.Keeper].
func (d *Deferred) Recover(ctx context.Context, now time.Time) (int, error) {
	if err := storable(now); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, k := range d.records {
		if k.State != deferred.StateSending {
			continue
		}
		n++
		became, attempt := deferred.Orphaned(&k.Record, plain(now))
		became.Attempts = append(became.Attempts, plainAttempt(attempt))
		k.Record = became
		d.changedLocked(k)
	}
	return n, nil
}

// Cancel implements [deferred.Keeper].
func (d *Deferred) Cancel(ctx context.Context, caller, id string, now, until time.Time) (deferred.Record, error) {
	if err := storable(now, until); err != nil {
		return deferred.Record{}, err
	}
	if err := ctx.Err(); err != nil {
		return deferred.Record{}, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.namedLocked(caller, id)
	switch {
	case k == nil:
		return deferred.Record{}, deferred.ErrNotFound
	case k.State == deferred.StateSending:
		return deferred.Record{}, deferred.ErrSending
	case k.State.Finished():
		return deferred.Record{}, deferred.ErrFinished
	}
	k.Record = k.Cancelled(plain(now), plain(until))
	d.changedLocked(k)
	return cloneDeferred(&k.Record), nil
}

// Redrive implements [deferred.Keeper].
func (d *Deferred) Redrive(ctx context.Context, which *deferred.Which, perSecond float64, now time.Time) (uint64, error) {
	if err := storable(now); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	dead, err := d.whichLocked(which, func(s deferred.State) bool { return s == deferred.StateFailed || s == deferred.StateUnknown })
	if err != nil {
		return 0, err
	}
	for i, k := range dead {
		due := plain(now)
		if perSecond > 0 {
			due = due.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
		}
		k.Record = k.Redriven(plain(now), due)
		d.changedLocked(k)
	}
	return uint64(len(dead)), nil
}

// Purge implements [deferred.Keeper].
func (d *Deferred) Purge(ctx context.Context, which *deferred.Which) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	gone, err := d.whichLocked(which, deferred.State.Finished)
	if err != nil {
		return 0, err
	}
	d.records = slices.DeleteFunc(d.records, func(k *kept) bool { return slices.Contains(gone, k) })
	return uint64(len(gone)), nil
}

// whichLocked are the records that are named or picked and whose state fits, the oldest first.
func (d *Deferred) whichLocked(which *deferred.Which, fits func(deferred.State) bool) ([]*kept, error) {
	var all []*kept
	for _, k := range d.records {
		if which.IDs == nil && fits(k.State) && picks(&which.Filter, &k.Record) {
			all = append(all, k)
		}
	}
	named := map[*kept]bool{}
	for _, id := range which.IDs {
		k := d.namedLocked(which.Filter.Caller, id)
		switch {
		case k == nil:
			return nil, deferred.ErrNotFound
		case !fits(k.State):
			return nil, deferred.ErrState
		case !named[k]:
			named[k] = true
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *kept) int { return int(int64(a.Seq - b.Seq)) }) //nolint:gosec // the sign of a difference
	return all, nil
}

// Expire implements [deferred.Keeper]. Nothing is left over.
func (d *Deferred) Expire(ctx context.Context, now time.Time) (next time.Time, more bool, err error) {
	if err := storable(now); err != nil {
		return time.Time{}, false, err
	}
	if err := ctx.Err(); err != nil {
		return time.Time{}, false, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.records {
		if waits(&k.Record) && !k.Expire.IsZero() && !now.Before(k.Expire) {
			k.Record = k.Expired(plain(now))
			d.changedLocked(k)
		}
	}
	d.records = slices.DeleteFunc(d.records, func(k *kept) bool {
		return k.State.Finished() && !k.Until.IsZero() && !now.Before(k.Until)
	})
	for _, k := range d.records {
		switch {
		case waits(&k.Record):
			next = earlier(next, k.Expire)
		case k.State.Finished():
			next = earlier(next, k.Until)
		}
	}
	return next, false, nil
}

// Changes implements [deferred.Keeper].
func (d *Deferred) Changes(ctx context.Context, f *deferred.Filter, after uint64, n int) ([]deferred.Record, uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err //nolint:wrapcheck // it says all there is
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if after == 0 && n == 0 {
		return nil, d.position, nil
	}
	var since []*kept
	for _, k := range d.records {
		if k.changed > after && picks(f, &k.Record) {
			since = append(since, k)
		}
	}
	slices.SortFunc(since, func(a, b *kept) int { return int(int64(a.changed - b.changed)) }) //nolint:gosec // the sign of a difference
	if len(since) < n {
		changed := make([]deferred.Record, 0, len(since))
		for _, k := range since {
			changed = append(changed, listed(&k.Record))
		}
		return changed, max(after, d.position), nil
	}
	var changed []deferred.Record
	for _, k := range since[:n] {
		changed = append(changed, listed(&k.Record))
		after = k.changed
	}
	return changed, after, nil
}
