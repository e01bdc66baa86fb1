package operation

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/call/archive"
)

const (
	// firstPause is that between the first two probes while a caller waits; it doubles up to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
	// Later it goes on with longer ones, laterTries times.
	laterPause   = time.Second
	laterLongest = 15 * time.Minute
	laterTries   = 14
	// mostInquiries bounds the operations that are asked about in the background at once, mostFindings what is remembered of one.
	mostInquiries = 1000
	mostFindings  = 50
	// probeWithin is the time one probe is given where no caller waits.
	probeWithin = 10 * time.Second
)

// inDoubt: a final that a status probe may settle.
func (l *lead) inDoubt(f *call.Final) bool {
	return l.ask.Probe != nil && f.Effect == call.EffectUnknown && l.record.MustNotRepeat
}

// inquiry is the questions that are asked about one operation.
type inquiry struct {
	*Probe
	cfg *Config
	// lastByte is when the last byte may have been sent.
	lastByte time.Time
	findings []Finding
	agree    int // "not applied" that count, in a row
}

// ask makes one probe.
func (q *inquiry) ask(ctx context.Context, until time.Time) (Verdict, *call.Response) {
	now := time.Now()
	r := q.answer(ctx, until)
	f := Finding{Time: now.UTC(), Verdict: q.judge(r)}
	if r != nil {
		f.Status = r.Status
	}
	f.Counts = f.Verdict == VerdictNotApplied && q.Authoritative && q.Settle > 0 && !now.Before(q.settled())
	if f.Counts {
		q.agree++
	} else {
		q.agree = 0
	}
	if q.findings = append(q.findings, f); len(q.findings) > mostFindings {
		q.findings = slices.Delete(q.findings, 0, 1)
	}
	q.cfg.Observer.Probed(ctx, &f)
	return f.Verdict, r
}

// answer is that of the upstream. A probe that panics found nothing: the operation it is about has its outcome already.
func (q *inquiry) answer(ctx context.Context, until time.Time) (r *call.Response) {
	defer func() {
		if v := recover(); v != nil {
			q.cfg.Log.Error("a status probe panicked", "value", fmt.Sprint(v), "stack", string(debug.Stack()))
			r = nil
		}
	}()
	return q.Ask(ctx, until)
}

// settled is when a "not applied" begins to count: the original may be under way until then.
func (q *inquiry) settled() time.Time { return q.lastByte.Add(q.Settle) }

// proved: two "not applied" in a row say that nothing was done.
func (q *inquiry) proved() bool { return q.agree >= 2 }

// mayProve: asking again can prove that.
func (q *inquiry) mayProve() bool { return q.Authoritative && q.Settle > 0 }

// inquire asks while the caller waits. What was applied is told as the answer; what provably was not is sent once more.
func (l *lead) inquire(ctx context.Context, f *call.Final) call.Final {
	q := l.inquiry(f)
	defer func() { l.probes = q.findings }()
	for pause := firstPause; ctx.Err() == nil && time.Now().Before(l.ask.Work); pause = min(2*pause, longestPause) {
		verdict, answer := q.ask(ctx, l.ask.Work)
		switch {
		case verdict == VerdictApplied:
			return applied(f, answer)
		case q.proved():
			return l.sendAfresh(ctx, f)
		}
		next := time.Now().Add(pause)
		if settled := q.settled(); verdict == VerdictNotApplied && q.mayProve() && next.Before(settled) && settled.Before(l.ask.Work) {
			next = settled
		}
		if !next.Before(l.ask.Work) {
			break
		}
		sleep(ctx, next)
	}
	return *f
}

// inquiry begins the questions about what f left open.
func (l *lead) inquiry(f *call.Final) *inquiry {
	return &inquiry{Probe: l.ask.Probe, cfg: &l.cfg, lastByte: lastByte(f.Attempts), findings: l.probes}
}

// lastByte is when the last attempt ended: no byte of it was sent later.
func lastByte(attempts []call.Attempt) time.Time {
	var last time.Time
	for i := range attempts {
		last = latest(last, attempts[i].Start.Add(attempts[i].Duration))
	}
	return last
}

// applied is the final once the probe has said so: its answer is the operation's.
func applied(f *call.Final, answer *call.Response) call.Final {
	found := *f
	found.Outcome, found.Effect, found.Reason, found.Next = call.OutcomeSuccess, call.EffectAnswered, call.ReasonSuccess, call.NextStepDone
	found.Detail = "the answer was lost; the status probe says that the operation was applied, and this is what it answered"
	found.Response, found.RetryAfter = answer, 0
	found.Told = call.Told{Outcome: found.Outcome, Reason: found.Reason}
	return found
}

// sendAfresh makes the call once more: the first one provably had no effect.
func (l *lead) sendAfresh(ctx context.Context, f *call.Final) call.Final {
	first := *f // the caller makes f what this returns
	l.call.Before = call.Before{}
	again := l.ask.Send(ctx, &l.call)
	if running := again.Late; running != nil {
		late := make(chan call.Final, 1) // receives one value, is never closed
		l.tasks.Go(func() { late <- onTopOf(&first, <-running) })
		again.Late = late
	}
	return onTopOf(&first, again)
}

// onTopOf is the final of a fresh send that tells of the first one too.
func onTopOf(first *call.Final, again call.Final) call.Final {
	before := uint32(len(first.Attempts)) //nolint:gosec // a handful
	all := slices.Concat(first.Attempts, again.Attempts)
	for i := range again.Attempts {
		all[int(before)+i].Number += before
	}
	again.Attempts = all
	again.Sends += first.Sends
	again.Detail += " (the status probe proved that an earlier attempt was not applied)"
	if again.FirstSend.IsZero() {
		again.FirstSend = first.FirstSend
	}
	return again
}

// inquireLater goes on asking after the caller has got his unknown.
func (o *Operations) inquireLater(k Key, p *Probe) {
	defer o.inquiring(-1)
	if o.inquiring(+1) > mostInquiries {
		o.cfg.Log.Warn("too many operations are asked about in the background; this one is when somebody asks for it", "caller", k.Caller, "operation_id", k.ID)
		return
	}
	counts := time.Now().Add(p.Settle) // tries before that can find that it was done, and not prove that it was not
	if o.inquireOften(k, p) || !time.Now().Before(counts) || !o.rest(time.Until(counts)) {
		return
	}
	o.inquireOften(k, p)
}

// inquireOften reports whether there is nothing more to ask.
func (o *Operations) inquireOften(k Key, p *Probe) bool {
	pause := laterPause
	for range laterTries {
		if !o.rest(pause) {
			return true
		}
		pause = min(2*pause, laterLongest)
		ctx, cancel := context.WithTimeout(context.Background(), 2*probeWithin)
		r, err := o.Reconcile(ctx, k, func(*Record) (*Probe, error) { return p, nil })
		cancel()
		if err == nil && r.State != StateUnknown && r.State != StateRunning || errors.Is(err, ErrNotFound) {
			return true
		}
	}
	return false
}

// inquiring counts the operations that are asked about in the background.
func (o *Operations) inquiring(more int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inquiries += more
	return o.inquiries
}

// sleep returns at that instant, or when ctx ends.
func sleep(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Reconcile asks the status probe now, and again if that can prove something, and tells what is known after it. One that is not unknown
// is told as it is. probe finds the probe of an operation; its error is returned. The id is nobody's meanwhile: who asks under it is told
// what is known.
func (o *Operations) Reconcile(ctx context.Context, k Key, probe func(*Record) (*Probe, error)) (Record, error) {
	r, err := o.Get(ctx, k)
	if err != nil || r.State != StateUnknown {
		return r, err
	}
	p, err := probe(&r)
	if err != nil {
		return r, err
	}
	known, err := r.Known()
	if err != nil {
		return r, o.failed("read", err)
	}
	q := &inquiry{Probe: p, cfg: &o.cfg, lastByte: lastByte(known.Attempts)}
	if q.lastByte.IsZero() {
		q.lastByte = r.UpdateTime // of a start of the broker that ended in the middle
	}
	answer := q.question(ctx)
	return o.conclude(ctx, k, r.Epoch, q, answer)
}

// Inquiry is what a status probe said.
type Inquiry struct {
	// Applied is the answer that says "applied"; nil: none did.
	Applied *call.Response
	// NotApplied: two "not applied" that count agree.
	NotApplied bool
	// Provable is from when on they count; zero: never.
	Provable time.Time
}

// Inquire asks a status probe about something that nobody leads here, and again if that can prove something.
func (o *Operations) Inquire(ctx context.Context, p *Probe, lastByte time.Time) Inquiry {
	q := &inquiry{Probe: p, cfg: &o.cfg, lastByte: lastByte}
	found := Inquiry{Applied: q.question(ctx), NotApplied: q.proved()}
	if q.mayProve() {
		found.Provable = q.settled()
	}
	return found
}

// question asks once, and once more where two that agree prove something. It returns the answer that says "applied".
func (q *inquiry) question(ctx context.Context) *call.Response {
	for {
		until := time.Now().Add(probeWithin)
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
			until = deadline
		}
		verdict, answer := q.ask(ctx, until)
		switch {
		case verdict == VerdictApplied:
			return answer
		case q.proved(), !q.last().Counts:
			return nil
		}
		sleep(ctx, time.Now().Add(firstPause))
	}
}

// conclude keeps what was found out, whoever has gone, and tells what is known then. What others have settled meanwhile stays.
func (o *Operations) conclude(ctx context.Context, k Key, epoch uint64, q *inquiry, answer *call.Response) (Record, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), onceWithin)
	defer cancel()
	e, err := o.seize(ctx, k)
	if err != nil {
		return Record{}, err
	}
	if e == nil {
		return o.Get(ctx, k)
	}
	defer close(e.begun) // whoever asked for the id meanwhile looks again
	defer o.leave(e)
	r, err := o.read(ctx, k)
	if err != nil || r.State != StateUnknown || r.Epoch != epoch {
		return r, err
	}
	d, err := r.details()
	if err != nil {
		return r, o.failed("read", err)
	}
	d.Probes = append(d.Probes, q.findings...)
	switch {
	case answer != nil:
		r.State, r.Effect, r.Outcome, r.Reason = StateFinished, call.EffectAnswered, call.OutcomeSuccess, call.ReasonSuccess
		r.Told = call.Told{Outcome: r.Outcome, Reason: r.Reason}
		r.answer(&d, answer)
		d.Next, d.Detail = call.NextStepDone, "the status probe says that the operation was applied, and this is what it answered"
		r.retain(time.Now(), 0)
	case q.proved():
		r.State, r.Effect, r.Fingerprint, r.Told, r.FirstSend = StateFinished, call.EffectNone, Fingerprint{}, call.Told{}, time.Time{}
		d.Next, d.RetrySafe, d.Detail = call.NextStepRetry, true, "the status probe proved that the operation was not applied; its id is free for one more send"
		r.retain(time.Now(), 0)
	}
	if r.Details, err = d.encode(); err != nil {
		return r, fmt.Errorf("reconcile: %w", err)
	}
	r.UpdateTime = time.Now()
	if err := o.cfg.Ledger.Write(ctx, &r); err != nil {
		return r, o.failed("write", err)
	}
	return r, nil
}

// seize takes the id while nobody uses it; nil: a call is under way.
func (o *Operations) seize(ctx context.Context, k Key) (*entry, error) {
	for {
		e, takes, err := o.enter(k, Fingerprint{})
		if err != nil || takes {
			return e, err
		}
		select {
		case <-e.begun:
		case <-ctx.Done():
			return nil, &UnavailableError{errSlow}
		}
		if e.led {
			return nil, nil //nolint:nilnil // as it says
		}
	}
}

func (q *inquiry) last() *Finding { return &q.findings[len(q.findings)-1] }

// answer puts an answer into the record.
func (r *Record) answer(d *details, a *call.Response) {
	r.Status, r.BodyBytes, r.Body = a.Status, int64(len(a.Body)), nil
	if r.BodyBytes <= mostBody {
		r.Body = a.Body
	}
	d.Head = archive.HeadOf(a)
}
