package storetest

import (
	"errors"
	"testing"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/operation"
)

// handed is the deferred call as which a direct one goes on that leads its id.
func handed(o *operation.Record, n int) *deferred.Record {
	r := submitted(o.ID, n)
	r.Fingerprint, r.Lead = o.Fingerprint, o.Epoch
	r.State, r.Effect, r.FirstSend = deferred.StateRetrying, call.EffectUnknown, at(2)
	r.Attempts, r.Tried = []call.Attempt{made(1, 2)}, 1
	return r
}

// handedOver: the lead that is named gives its id up, and nobody else can.
func handedOver(t *testing.T, s Calls) {
	o := direct(t, s, "a", nil)
	refused := func(why string, r *deferred.Record) {
		t.Helper()
		if _, stored, err := s.Submit(t.Context(), r); stored || !errors.Is(err, deferred.ErrConflict) {
			t.Errorf("%s: stored %v, %v; want ErrConflict", why, stored, err)
		}
		goneCall(t, s, caller, r.ID)
	}
	another := handed(&o, 3)
	another.Lead++
	refused("of another lead", another)
	other := handed(&o, 3)
	other.Fingerprint[0]++
	refused("with another payload", other)
	stands(t, s.Ledger, o)

	r := handed(&o, 3)
	got := storedCall(t, s, r)
	if want := *r; got.Lead != 0 || got.Effect != want.Effect || !got.FirstSend.Equal(want.FirstSend) || len(got.Attempts) != 1 || got.Tried != 1 {
		t.Errorf("it is %+v, given was %+v", got, want)
	}
	standsCall(t, s, got) // and so the lead is not kept
	now, err := s.Ledger.Operation(t.Context(), key("a"))
	if err != nil || now.State != operation.StateRunning || now.Deferred != got.ID || now.Epoch <= o.Epoch || !now.CreateTime.Equal(o.CreateTime) {
		t.Errorf("%+v, %v", now, err)
	}
	late := o
	late.State = operation.StateFinished
	if err := s.Ledger.Write(t.Context(), &late); !errors.Is(err, operation.ErrSuperseded) {
		t.Errorf("a write of the lead that gave its id up: %v", err)
	}
	twice := handed(&o, 4)
	twice.ID = "id-twice"
	refused("a second time", twice)
	if n, err := s.Ledger.Settle(t.Context(), "the next broker", at(5)); n != 0 || err != nil {
		t.Errorf("settled %d, %v", n, err)
	}
}

// nothingToHandOver: a lead that has ended, or never was, hands nothing over.
func nothingToHandOver(t *testing.T, s Calls) {
	finished := direct(t, s, "finished", func(r *operation.Record) { *r = *answered(*r, 2) })
	unknown := direct(t, s, "unknown", func(r *operation.Record) { r.State = operation.StateUnknown })
	never := operation.Record{Key: key("never"), Epoch: 1}
	for _, o := range []operation.Record{finished, unknown, never} {
		r := handed(&o, 3)
		r.Lead = max(r.Lead, 1)
		if _, stored, err := s.Submit(t.Context(), r); stored || !errors.Is(err, deferred.ErrConflict) {
			t.Errorf("%s: stored %v, %v; want ErrConflict", o.ID, stored, err)
		}
		goneCall(t, s, caller, r.ID)
	}
	stands(t, s.Ledger, finished)
	gone(t, s.Ledger, never.Key)
}
