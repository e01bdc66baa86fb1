package operation

import (
	"context"
	"errors"
	"time"

	"github.com/sallyport/sallyport/call"
)

// begin asks the ledger for the lead. It returns in the time of the call, whatever the ledger does; a lead that is granted after that
// is given back.
func (o *Operations) begin(ctx context.Context, e *entry, a *Ask) error {
	start, err := startOf(e, a, o.cfg.Owner)
	if err != nil {
		o.leave(e)
		close(e.begun)
		return err
	}
	o.tasks.Go(func() {
		defer close(e.begun)
		stands, led, err := o.claim(context.WithoutCancel(ctx), &start)
		switch {
		case err != nil:
			e.err = o.failed("begin", err)
		case !led:
			e.stands = &stands
		case o.took(e, &stands):
			e.led = true
			return
		default:
			o.giveUp(&stands) //nolint:contextcheck // its caller has gone
		}
		o.leave(e)
	})
	w := waiter{ctx, time.NewTimer(time.Until(a.Work))}
	defer w.timer.Stop()
	if !w.until(e.begun) && o.giveUpWaiting(e) {
		if ctx.Err() != nil && time.Now().Before(a.Work) {
			return &UnavailableError{context.Cause(ctx)}
		}
		return &UnavailableError{errSlow}
	}
	<-e.begun
	return e.err
}

func startOf(e *entry, a *Ask, owner string) (Record, error) {
	q := Request{Method: a.Call.Method, URL: a.Call.Target.Scheme + "://" + a.Call.Target.Authority + a.Call.Target.RequestTarget}
	if a.Probe != nil {
		q.Probe = a.Probe.URL
	}
	request, err := q.encode()
	if err != nil {
		return Record{}, err
	}
	r := Record{
		Key: e.key, Owner: owner, Fingerprint: e.fingerprint, State: StateRunning, MustNotRepeat: a.MustNotRepeat,
		Effect: call.EffectNone, Request: request,
	}
	r.CreateTime = time.Now()
	r.UpdateTime, r.FirstSend = r.CreateTime, r.CreateTime
	r.retain(r.CreateTime, a.KeyTTL) // as long as if it ended in the worst way: that is how it stands when the broker ends
	r.BodyUntil, r.FirstSend = time.Time{}, time.Time{}
	return r, nil
}

// claim begins an operation in the ledger. One that this very process began and never sent, since the ledger answered too late or not
// at all, is taken over.
func (o *Operations) claim(ctx context.Context, start *Record) (Record, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, onceWithin)
	defer cancel()
	for {
		stands, led, err := o.cfg.Ledger.Begin(ctx, start)
		if err != nil || led || stands.State != StateRunning || stands.Owner != o.cfg.Owner {
			return stands, led, err
		}
		stands.unsent()
		if err := o.cfg.Ledger.Write(ctx, &stands); err != nil && !errors.Is(err, ErrSuperseded) {
			return stands, false, err
		}
	}
}

// unsent makes the record of a lead that ended before anything was sent.
func (r *Record) unsent() {
	r.Fingerprint, r.State, r.UpdateTime = Fingerprint{}, StateFinished, time.Now()
}

// giveUp gives a lead back that nobody waits for any more. Nothing was sent. If it fails, claim mends it.
func (o *Operations) giveUp(r *Record) {
	r.unsent()
	if err := o.write(r); err != nil {
		_ = o.failed("write", err)
	}
}

// giveUpWaiting reports whether the ledger has not answered yet; then its answer will be given back.
func (o *Operations) giveUpWaiting(e *entry) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.record.Epoch != 0 {
		return false
	}
	e.gone = true
	return true
}

// took puts what the ledger granted in force, unless its caller has given up.
func (o *Operations) took(e *entry, stands *Record) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.gone {
		return false
	}
	e.record = *stands
	return true
}

// lead is one call that is made under an id.
type lead struct {
	*Operations
	entry  *entry
	ask    *Ask
	call   call.Call
	record Record // as the ledger has it now
	probes []Finding
}

// run makes the call and sees to it that what became of it is written. An attempt that runs on is waited for elsewhere.
func (o *Operations) run(ctx context.Context, e *entry, a *Ask) Answer {
	l := &lead{Operations: o, entry: e, ask: a, call: *a.Call, record: e.record} // which nobody else changes
	l.call.MayRunOn = true
	l.call.Before = l.record.before()
	// The caller's going away ends the call only if nobody else waits for it.
	sending, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(errOver)
	o.sends(e, cancel)
	stay := context.AfterFunc(ctx, func() { o.leaderLeft(e, context.Cause(ctx)) })
	defer stay()
	if ctx.Err() != nil { // not left to the other goroutine: nothing is sent for one who is gone (semantics.md §2.1)
		o.leaderLeft(e, context.Cause(ctx))
	}
	returned := false
	defer func() { //nolint:contextcheck // the outcome is written, whoever has gone
		if !returned { // a panic: what was sent is not known
			l.finish(l.lost())
		}
	}()
	final := a.Send(sending, &l.call)
	if final.Late == nil && l.inDoubt(&final) {
		final = l.inquire(sending, &final)
		final.Elapsed = time.Since(a.Call.Arrived)
	}
	id := ""
	if l.mayGoOn(&final) {
		final, id = a.HandOver(context.WithoutCancel(ctx), l.record.Epoch, &final)
	}
	returned = true
	if id != "" {
		return l.goesOn(&final, id)
	}
	o.awaitWritten(ctx, l.landed(&final)) //nolint:contextcheck // as above
	final.Late = nil
	return Answer{Final: final, Policy: a.Policy}
}

var errOver = errors.New("the call is over")

// sends makes the call one that can be cancelled.
func (o *Operations) sends(e *entry, cancel context.CancelCauseFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e.cancel = cancel
}

// leaderLeft ends the call whose caller is gone, unless others wait for it.
func (o *Operations) leaderLeft(e *entry, cause error) {
	o.mu.Lock()
	e.gone = true
	waiting, cancel := e.joiners > 0, e.cancel
	o.mu.Unlock()
	if !waiting {
		cancel(cause)
	}
}

// lost is the final of a call that panicked.
func (l *lead) lost() *call.Final {
	f := &call.Final{
		Outcome: call.OutcomeUnknown, Effect: call.EffectUnknown, Reason: call.ReasonNotRepeatable,
		Detail:    "the broker failed during this call; whether it had an effect is not known",
		RetrySafe: !l.ask.MustNotRepeat, Next: call.NextStepRetry,
		OperationID: l.call.OperationID, FirstSend: l.call.Arrived, Elapsed: time.Since(l.call.Arrived),
	}
	if l.ask.MustNotRepeat {
		f.Told, f.Next = call.Told{Outcome: f.Outcome, Reason: f.Reason}, call.NextStepReconcile
	}
	return f
}

// landed has what became of the call written. What it returns is closed once that was tried.
func (l *lead) landed(f *call.Final) <-chan struct{} {
	if f.Late == nil {
		l.finish(f)
		return l.entry.tried
	}
	l.publish(f)
	outlived, tried := *f, make(chan struct{}) // closed by the goroutine below
	l.tasks.Go(func() {
		if err := l.write(&l.record); err != nil {
			_ = l.failed("write", err) // a crash from here on reads back as unknown in any case
		}
		close(tried)
		late := <-outlived.Late
		if late.Effect == call.EffectUnknown {
			late.Outcome, late.Reason = outlived.Outcome, outlived.Reason // what the caller got is still so
		}
		l.finish(&late)
	})
	return tried
}

// publish makes f what is known of the operation.
func (l *lead) publish(f *call.Final) {
	l.record.become(f, l.ask, l.probes, l.cfg.Log)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry.record = l.record
}

// finish gives all who wait their answer, and has it written.
func (l *lead) finish(f *call.Final) {
	l.publish(f)
	l.entry.answer = Answer{Final: *f, Policy: l.ask.Policy}
	l.entry.answer.Told = l.record.Told
	close(l.entry.answered)
	l.tasks.Go(func() { l.save(l.entry, &l.record) })
	if l.inDoubt(f) {
		l.tasks.Go(func() { l.inquireLater(l.entry.key, l.ask.Probe) })
	}
}
