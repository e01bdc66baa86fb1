package operation

import (
	"context"
	"time"

	"github.com/sallyport/sallyport/call"
)

// join waits for the call that is under way. over is false when there is none any more, and the id has to be looked at again.
func (o *Operations) join(ctx context.Context, e *entry, a *Ask, fingerprint Fingerprint) (answer Answer, over bool, err error) {
	w := waiter{ctx, time.NewTimer(time.Until(a.Work))}
	defer w.timer.Stop()
	if !w.until(e.begun) {
		return unanswered(ctx, a), true, nil
	}
	switch {
	case e.err != nil:
		return Answer{}, true, e.err
	case e.stands != nil:
		answer, err = o.told(ctx, e.stands, a, fingerprint)
		return answer, true, err
	case !e.led:
		return Answer{}, false, nil
	}
	switch o.joined(e, fingerprint) {
	case otherPayload:
		return o.conflict(ctx, a), true, nil
	case freeAgain:
		// As soon as the ledger knows it too.
		if !w.until(e.tried) {
			return Answer{}, true, &UnavailableError{errSlow}
		}
		return Answer{}, false, nil
	case unwritten:
		return Answer{}, true, &UnavailableError{errUnwritten}
	}
	defer o.unjoin(e)
	if !w.until(e.answered) {
		return unanswered(ctx, a), true, nil
	}
	answer = e.answer
	if answer.Told == (call.Told{}) && ofOneCaller(answer.Outcome) {
		return Answer{}, false, nil
	}
	if answer.Told != (call.Told{}) {
		answer.Outcome, answer.Reason = answer.Told.Outcome, answer.Told.Reason
	}
	o.cfg.Observer.Asked(ctx, Joined)
	o.awaitWritten(ctx, e.tried)
	answer.Final.Late, answer.Replayed, answer.Sends, answer.Elapsed = nil, true, 0, time.Since(a.Call.Arrived)
	return answer, true, nil
}

// ofOneCaller: a call ended so because of its caller, and others may have more patience.
func ofOneCaller(o call.Outcome) bool {
	return o == call.OutcomeCancelled || o == call.OutcomeDeadlineExceeded
}

// waiter waits in the time of one caller.
type waiter struct {
	ctx   context.Context //nolint:containedctx // lives as long as the call that waits
	timer *time.Timer
}

// until reports whether it happened in time, be it in the last moment.
func (w *waiter) until(it <-chan struct{}) bool {
	select {
	case <-it:
	case <-w.ctx.Done():
	case <-w.timer.C:
	}
	select {
	case <-it:
		return true
	default:
		return false
	}
}

// standing is how an entry stands to one who comes.
type standing int

const (
	underWay     standing = iota // or over and kept: its answer is his
	otherPayload                 // it is another operation's
	freeAgain                    // it is over, and the id will be given back
	unwritten                    // the same, but the ledger cannot take that now
)

// joined counts one more who waits, if there is something to wait for.
func (o *Operations) joined(e *entry, fingerprint Fingerprint) standing {
	o.mu.Lock()
	defer o.mu.Unlock()
	free := false
	select {
	case <-e.answered:
		free = e.record.Free()
	default:
	}
	switch {
	case free && e.unsaved:
		return unwritten
	case free:
		return freeAgain
	case e.fingerprint != fingerprint:
		return otherPayload
	}
	e.joiners++
	return underWay
}

// unjoin counts one less. A call whose own caller is gone ends with the last one who waited.
func (o *Operations) unjoin(e *entry) {
	o.mu.Lock()
	e.joiners--
	abandoned, cancel := e.gone && e.joiners == 0, e.cancel
	o.mu.Unlock()
	if abandoned {
		cancel(context.Canceled)
	}
}

// unanswered is told to one whose own time was up, or who went away, while another call was under way: that goes on.
func unanswered(ctx context.Context, a *Ask) Answer {
	f := call.Final{
		Outcome: call.OutcomeDeadlineExceeded, Effect: call.EffectUnknown, Reason: call.ReasonDeadline,
		Detail:    "another call under this operation id is under way; it goes on, and asking again with the same id joins it",
		RetrySafe: !a.MustNotRepeat, Next: call.NextStepWait,
		OperationID: a.Call.OperationID, Elapsed: time.Since(a.Call.Arrived),
	}
	if ctx.Err() != nil && time.Now().Before(a.Work) {
		f.Outcome, f.Reason = call.OutcomeCancelled, call.ReasonCancelled
	}
	return Answer{Final: f, Policy: a.Policy, Replayed: true}
}
