package deferred

import (
	"context"
	"time"
)

// Cancel ends one. An attempt that is under way is cancelled, and the call is when that has ended; then what is known of its effect is told.
// It is [ErrFinished] for one that was finished, or that its attempt finished otherwise.
func (q *Queue) Cancel(ctx context.Context, caller, id string) (Record, error) {
	stands, err := q.Find(ctx, caller, id)
	if err != nil {
		return Record{}, err
	}
	retention := time.Duration(0)
	if t, err := q.judge(&stands); err == nil {
		retention = t.CancelledRetention
	}
	for aborted := false; ; {
		now := q.now()
		until := time.Time{}
		if retention > 0 {
			until = now.Add(retention)
		}
		r, err := q.cfg.Keeper.Cancel(ctx, caller, id, now, until)
		switch err = q.explain(ctx, "cancel", err); {
		case aborted && err == ErrFinished: //nolint:errorlint // explain gives it as it is
			if r, err := q.Find(ctx, caller, id); err != nil || r.State == StateCancelled {
				return r, err
			}
			return Record{}, ErrFinished
		case err == nil:
			q.written(&r)
			return r, nil
		case err != ErrSending: //nolint:errorlint // as above
			return Record{}, err
		}
		landed := q.places.abort(caller, id)
		aborted = aborted || landed != nil
		if err := q.await(ctx, landed); err != nil {
			return Record{}, err
		}
	}
}

// await waits until a flight has landed. Where there is none, it has just landed, or what an earlier process left is not in order yet.
func (q *Queue) await(ctx context.Context, landed <-chan struct{}) error {
	var again <-chan time.Time
	if landed == nil {
		if isClosed(q.closed) {
			return &StoreError{errClosing}
		}
		timer := time.NewTimer(shortDelay)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-landed:
	case <-again:
	case <-ctx.Done():
		return q.explain(ctx, "cancel", ctx.Err())
	}
	return nil
}
