package operation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sallyport/sallyport/call"
)

// How long records live.
const (
	// bodyLife is how long the body of an answer is kept; under an idempotency contract as long as the key is good.
	bodyLife = 10 * time.Minute
	// tombstone is how long it is known what became of an id, at least; never less than its body.
	tombstone = 24 * time.Hour
	// unknownLife is the same for one whose effect nobody knows: a person may have to look.
	unknownLife = 7 * 24 * time.Hour
)

// become makes the record tell of a final.
func (r *Record) become(f *call.Final, a *Ask, probes []Finding, log *slog.Logger) {
	now := time.Now()
	r.UpdateTime = now
	r.Outcome, r.Effect, r.Reason, r.Told, r.FirstSend = f.Outcome, f.Effect, f.Reason, f.Told, f.FirstSend
	r.Status, r.Body, r.BodyBytes = 0, nil, 0
	if f.Response != nil {
		r.Status, r.BodyBytes = f.Response.Status, int64(len(f.Response.Body))
		if r.BodyBytes <= mostBody {
			r.Body = f.Response.Body
		}
	}
	d := detailsOf(f, a.Policy, probes)
	var err error
	if r.Details, err = d.encode(); err != nil {
		log.Error("an operation is kept without its details", "error", err)
	}
	switch {
	case f.Late != nil:
		r.State, r.Told = StateRunning, call.Told{}
	case f.Effect == call.EffectUnknown && r.MustNotRepeat:
		r.State = StateUnknown
	default:
		r.State = StateFinished
	}
	switch {
	case r.Told != (call.Told{}) || r.State == StateRunning:
	case r.State == StateUnknown: // never free, whatever the final says
		r.Told = call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}
	default:
		r.Fingerprint = Fingerprint{}
	}
	r.retain(now, a.KeyTTL)
}

// retain says how long the record lives from now on; one that is under way may turn out as unknown. One of a key tells for a day longer than the key is good that it no longer is.
func (r *Record) retain(now time.Time, keyTTL time.Duration) {
	r.BodyUntil = now.Add(max(bodyLife, keyTTL))
	life := tombstone
	if r.State != StateFinished {
		life = unknownLife
	}
	r.Until = latest(r.BodyUntil, now.Add(life))
	if keyTTL > 0 {
		r.Until = latest(r.Until, r.FirstSend.Add(keyTTL+tombstone))
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// write tries once to write a record.
func (o *Operations) write(r *Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), onceWithin)
	defer cancel()
	return o.cfg.Ledger.Write(ctx, r)
}

// save writes the outcome of an entry, again and again until the ledger takes it, and then gives the id to the ledger.
func (o *Operations) save(e *entry, r *Record) {
	tried := sync.OnceFunc(func() { close(e.tried) })
	defer tried() // the entry is gone by then
	for {
		err := o.write(r)
		if err == nil {
			break
		}
		if errors.Is(err, ErrSuperseded) {
			o.cfg.Log.Warn("an outcome came after its lead was over; it is not kept", "error", err)
			break
		}
		_ = o.failed("write", err)
		o.mark(e, true)
		tried()
		timer := time.NewTimer(saveAgain)
		select {
		case <-timer.C:
		case <-o.closed:
			timer.Stop()
			return // it stays begun, and reads back as unknown
		}
	}
	o.mark(e, false)
	o.leave(e)
}

// mark notes whether the outcome of an entry waits for the ledger.
func (o *Operations) mark(e *entry, unsaved bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.unsaved == unsaved {
		return
	}
	e.unsaved = unsaved
	if unsaved {
		o.unsaved++
	} else {
		o.unsaved--
	}
}

// awaitWritten lets an answer wait until it is written, or that failed: then whoever has seen it will be told the same again. Neither the caller's time
// nor a ledger that fails is waited out, since a ledger that cannot record an answer does not replace it.
func (o *Operations) awaitWritten(ctx context.Context, tried <-chan struct{}) {
	patience := replyWaits
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-tried:
	case <-timer.C:
	case <-ctx.Done():
	}
}
