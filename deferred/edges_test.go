package deferred_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/store/memory"
)

// TestEveryEdge walks the states drawn in the package comment: what each step makes of a record in each state, or by what it is refused.
func TestEveryEdge(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	const (
		pending   = deferred.StatePending
		retrying  = deferred.StateRetrying
		sending   = deferred.StateSending
		completed = deferred.StateCompleted
		failed    = deferred.StateFailed
		unknown   = deferred.StateUnknown
		cancelled = deferred.StateCancelled
		gone      = deferred.StateUnspecified
	)
	end := func(s deferred.State) func(d *memory.Deferred, r *deferred.Record) error {
		return func(d *memory.Deferred, r *deferred.Record) error {
			r.State = s
			return d.End(t.Context(), r, []call.Attempt{{Number: 1}})
		}
	}
	begin := func(repeatable bool) func(d *memory.Deferred, r *deferred.Record) error {
		return func(d *memory.Deferred, r *deferred.Record) error {
			return d.Begin(t.Context(), r.Seq, r.Epoch, repeatable, noon)
		}
	}
	// at brings a new record into a state.
	at := func(s deferred.State) (*memory.Deferred, *deferred.Record) {
		d := memory.NewDeferred(nil)
		r, _, err := d.Submit(t.Context(), &deferred.Record{ID: "a", Caller: "one", OperationID: "a", State: pending, Created: noon, NextAttempt: noon, Expire: noon.Add(time.Hour)})
		if s != pending && err == nil {
			err = begin(true)(d, &r)
			r.Epoch++
		}
		if s != pending && s != sending && err == nil {
			err = end(s)(d, &r)
		}
		if err == nil {
			r, err = d.Find(t.Context(), "one", "a")
		}
		if err != nil || r.State != s {
			t.Fatalf("state %d: %v", r.State, err)
		}
		return d, &r
	}
	steps := map[string]func(d *memory.Deferred, r *deferred.Record) error{
		"begin": begin(true),
		"begin at another epoch": func(d *memory.Deferred, r *deferred.Record) error {
			return d.Begin(t.Context(), r.Seq, r.Epoch+1, true, noon)
		},
		"end": end(completed),
		"end at another epoch": func(d *memory.Deferred, r *deferred.Record) error {
			r.Epoch++
			return end(completed)(d, r)
		},
		"wait": end(retrying),
		"crash": func(d *memory.Deferred, _ *deferred.Record) error {
			_, err := d.Recover(t.Context(), noon)
			return err
		},
		"expire": func(d *memory.Deferred, _ *deferred.Record) error {
			_, _, err := d.Expire(t.Context(), noon.Add(time.Hour))
			return err
		},
		"not yet expire": func(d *memory.Deferred, _ *deferred.Record) error {
			_, _, err := d.Expire(t.Context(), noon.Add(time.Hour-1))
			return err
		},
		"cancel": func(d *memory.Deferred, _ *deferred.Record) error {
			_, err := d.Cancel(t.Context(), "one", "a", noon, time.Time{})
			return err
		},
		"redrive": func(d *memory.Deferred, _ *deferred.Record) error {
			_, err := d.Redrive(t.Context(), &deferred.Which{IDs: []string{"a"}}, 1, noon)
			return err
		},
		"redrive by filter": func(d *memory.Deferred, _ *deferred.Record) error {
			_, err := d.Redrive(t.Context(), &deferred.Which{Filter: deferred.Filter{Caller: "one"}}, 1, noon)
			return err
		},
		"purge": func(d *memory.Deferred, _ *deferred.Record) error {
			_, err := d.Purge(t.Context(), &deferred.Which{IDs: []string{"a"}})
			return err
		},
		"purge by filter": func(d *memory.Deferred, _ *deferred.Record) error {
			_, err := d.Purge(t.Context(), &deferred.Which{})
			return err
		},
	}
	type edge struct {
		to  deferred.State
		err error
	}
	no := func(s deferred.State, err error) edge { return edge{s, err} }
	yes := func(s deferred.State) edge { return edge{s, nil} }
	states := []deferred.State{pending, retrying, sending, completed, failed, unknown, cancelled}
	stale := deferred.ErrSuperseded
	for step, edges := range map[string][]edge{
		//                          PENDING                        RETRYING                       SENDING                            COMPLETED                           FAILED                           UNKNOWN                           CANCELLED
		"begin":                  {yes(sending), yes(sending), no(sending, stale), no(completed, stale), no(failed, stale), no(unknown, stale), no(cancelled, stale)},
		"begin at another epoch": {no(pending, stale), no(retrying, stale), no(sending, stale), no(completed, stale), no(failed, stale), no(unknown, stale), no(cancelled, stale)},
		"end":                    {yes(completed), yes(completed), yes(completed), no(completed, stale), no(failed, stale), no(unknown, stale), no(cancelled, stale)},
		"end at another epoch":   {no(pending, stale), no(retrying, stale), no(sending, stale), no(completed, stale), no(failed, stale), no(unknown, stale), no(cancelled, stale)},
		"wait":                   {yes(retrying), yes(retrying), yes(retrying), no(completed, stale), no(failed, stale), no(unknown, stale), no(cancelled, stale)},
		"crash":                  {yes(pending), yes(retrying), yes(retrying), yes(completed), yes(failed), yes(unknown), yes(cancelled)},
		"expire":                 {yes(failed), yes(failed), yes(sending), yes(completed), yes(failed), yes(unknown), yes(cancelled)},
		"not yet expire":         {yes(pending), yes(retrying), yes(sending), yes(completed), yes(failed), yes(unknown), yes(cancelled)},
		"cancel":                 {yes(cancelled), yes(cancelled), no(sending, deferred.ErrSending), no(completed, deferred.ErrFinished), no(failed, deferred.ErrFinished), no(unknown, deferred.ErrFinished), no(cancelled, deferred.ErrFinished)},
		"redrive":                {no(pending, deferred.ErrState), no(retrying, deferred.ErrState), no(sending, deferred.ErrState), no(completed, deferred.ErrState), yes(retrying), yes(retrying), no(cancelled, deferred.ErrState)},
		"redrive by filter":      {yes(pending), yes(retrying), yes(sending), yes(completed), yes(retrying), yes(retrying), yes(cancelled)},
		"purge":                  {no(pending, deferred.ErrState), no(retrying, deferred.ErrState), no(sending, deferred.ErrState), yes(gone), yes(gone), yes(gone), yes(gone)},
		"purge by filter":        {yes(pending), yes(retrying), yes(sending), yes(gone), yes(gone), yes(gone), yes(gone)},
	} {
		for i, e := range edges {
			t.Run(fmt.Sprintf("%s from %d", step, states[i]), func(t *testing.T) {
				d, r := at(states[i])
				if err := steps[step](d, r); !errors.Is(err, e.err) {
					t.Fatalf("%v, want %v", err, e.err)
				}
				now, err := d.Find(t.Context(), "one", "a")
				if e.to == gone {
					if !errors.Is(err, deferred.ErrNotFound) {
						t.Fatalf("still there: %v", err)
					}
					return
				}
				if now.State != e.to {
					t.Fatalf("state %d, want %d", now.State, e.to)
				}
				waits := e.to == pending || e.to == retrying
				if due, _, _ := d.Due(t.Context(), noon.Add(time.Minute), 9, nil, nil); (len(due) == 1) != waits && step != "wait" {
					t.Fatalf("due: %d", len(due))
				}
			})
		}
	}
	t.Run("a crash in what must not be repeated", func(t *testing.T) {
		d, r := at(pending)
		if err := begin(false)(d, r); err != nil {
			t.Fatal(err)
		}
		if n, err := d.Recover(t.Context(), noon); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if r, err := d.Find(t.Context(), "one", "a"); r.State != unknown || len(r.Attempts) != 1 || err != nil {
			t.Fatalf("%v %+v", err, r)
		}
	})
}
