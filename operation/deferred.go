package operation

import (
	"time"

	"github.com/sallyport/sallyport/call"
)

// EndDeferred makes the record of an id that a deferred call has tell of its end, as it would of that of a direct call: f.Told is what a
// repeat is told, its zero value frees the id. keptUntil is when the deferred call goes, zero: not before it is purged. It never goes before
// that, and a repeat of the submission finds it.
func (r *Record) EndDeferred(f *call.Final, keptUntil, now time.Time) error {
	d := detailsOf(f, "", nil)
	encoded, err := d.encode()
	if err != nil {
		return err
	}
	r.State, r.UpdateTime, r.Details = StateFinished, now, encoded
	r.Outcome, r.Effect, r.Reason, r.Told, r.FirstSend = f.Outcome, f.Effect, f.Reason, f.Told, f.FirstSend
	r.Status, r.Body, r.BodyBytes = 0, nil, 0
	if a := f.Response; a != nil {
		r.Status, r.BodyBytes = a.Status, int64(len(a.Body))
		if r.BodyBytes <= mostBody {
			r.Body = a.Body
		}
	}
	switch {
	case f.Told.Outcome == call.OutcomeUnknown:
		r.State, r.MustNotRepeat = StateUnknown, true
	case f.Told == (call.Told{}):
		r.Fingerprint = Fingerprint{}
	}
	r.retain(now, 0)
	if keptUntil.IsZero() {
		keptUntil = Forever()
	}
	r.Until = latest(r.Until, keptUntil)
	return nil
}

// ForgetDeferred makes the record one whose deferred call is gone: from then on it lives as long as that of a direct call.
func (r *Record) ForgetDeferred() {
	until := r.Until
	r.Deferred = ""
	bodyUntil := r.BodyUntil
	r.retain(r.UpdateTime, 0)
	r.BodyUntil = bodyUntil
	if until.Before(r.Until) {
		r.Until = until
	}
}

// Forever is the Until of a record that does not go by itself.
func Forever() time.Time { return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }
