package engine

import (
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// timerSlack is how late a timer may fire before a planned attempt counts as having lost its time: a wait is judged when it is
// planned, and a few late milliseconds shall not undo that.
const timerSlack = 5 * time.Millisecond

// Plan decides one call. It is used by one goroutine, from EventStarted to StepFinal.
type Plan struct {
	asked  *call.Call // as the caller asked
	call   *call.Call // the request that is made now: the caller's, or the hop of a redirect
	policy *policy.Effective
	guard  *guard.Guard
	rnd    func() float64

	work        time.Time // when the broker's work must be over
	maxAttempts uint32
	safe        bool // the method is safe (RFC 9110 §9.2.1)
	keyed       bool // an idempotency contract covers the operation
	repeat      policy.Repeatability

	attempts   []call.Attempt
	room       [1]call.Attempt // for most calls enough
	judged     int             // the place of the attempt that was judged last
	counted    uint32          // attempts that count against maxAttempts: all but a free resend and the hops
	freeSpent  bool            // the one free resend of the call was used
	free       bool            // the next attempt is the free resend
	planned    call.Decision   // the repeat that waits for a token
	waited     time.Duration   // backoff and hold before the next attempt
	held       time.Duration   // waited for holds altogether
	pause      time.Duration   // the wait that began last
	holding    bool            // it is for a hold
	retryAfter time.Duration   // when a refusal says to come again
	forced     bool            // the refusal is an operator's
	told       told            // what the last result means for what is shared
	effect     call.Effect     // what is known so far
	response   *call.Response  // the last complete answer, never overwritten by a refusal of ours
	denial     string          // why nothing may be sent there, for the caller
	note       string          // the same for the operator's log
	firstSend  time.Time       // start of the first attempt of which a byte may have left, in an earlier call under the same id too
	beside     beside          // attempts that run beside each other
	hops       redirects       // followed
	over       call.Final      // how the call ended, once it has
	late       late            // what follows when the caller has been told
}

// NewPlan prepares the decisions of one call. rnd gives numbers in [0, 1).
func NewPlan(c *call.Call, p *policy.Effective, g *guard.Guard, rnd func() float64) *Plan {
	plan := &Plan{}
	plan.prepare(c, p, g, rnd)
	return plan
}

// prepare makes a new plan in place.
func (p *Plan) prepare(c *call.Call, effective *policy.Effective, g *guard.Guard, rnd func() float64) {
	p.asked, p.policy, p.guard, p.rnd = c, effective, g, rnd
	p.ask(c)
	p.work = WorkDeadline(c, &effective.Deadline)
	p.maxAttempts = effective.Retry.MaxAttempts
	if c.MaxAttempts != 0 {
		p.maxAttempts = min(p.maxAttempts, c.MaxAttempts)
	}
	if c.Dispatch != 0 {
		p.maxAttempts = 1
	}
	p.effect = call.EffectNone
	p.attempts = p.room[:0]
	p.beside.allowed = p.hedgeable()
	p.hops.repeat = p.repeat
	p.firstSend = c.Before.FirstSend
	if c.Before.Unknown && !p.safe {
		p.effect = call.EffectUnknown
	}
}

// ask makes c the request from now on.
func (p *Plan) ask(c *call.Call) {
	p.call = c
	p.safe, p.keyed, p.repeat = call.Safe(c.Method), p.policy.Keyed(c), p.policy.Repeatability(c)
}

// Next takes what happened at now and gives the next step.
func (p *Plan) Next(now time.Time, ev Event) Step {
	switch ev.Kind {
	case EventStarted:
		return p.started(now, ev)
	case EventResult:
		return p.ended(now, ev)
	case EventWaited:
		return p.resumed(now, ev)
	case EventGranted:
		return p.granted(now)
	case EventAdmitted:
		return p.admitted(now, ev)
	case EventHeld:
		return p.heldUp(now, ev)
	case EventRefused:
		return p.refused(now, ev)
	case EventHedgeDue:
		return p.hedgeDue(now, ev)
	case EventHedgeAdmitted:
		return p.hedge(now, ev)
	case EventHedgeRefused:
		return p.withoutHedge()
	}
	panic("engine: an event of no kind")
}

func (p *Plan) started(now time.Time, ev Event) Step {
	if p.gone(now, ev) {
		return p.final(now, call.OutcomeCancelled, call.ReasonCancelled)
	}
	if !now.Before(p.work) {
		return p.final(now, call.OutcomeDeadlineExceeded, call.ReasonDeadline)
	}
	t := &p.call.Target
	if err := p.guard.Target(&p.policy.Egress.Rules, t.Scheme, t.Host, t.Address, t.Port); err != nil {
		p.denial, p.note = err.Error(), guard.Explain(err)
		return p.final(now, call.OutcomeDenied, call.ReasonEgressDenied)
	}
	if p.keyExpired(now) {
		return p.final(now, call.OutcomeUnknown, call.ReasonKeyExpired)
	}
	if p.asked.Before.Unknown && p.asked.Dispatch == 0 && p.repeat == policy.RepeatNever {
		// It was repeatable when its id was given back, and policies have changed: after an unknown effect a new attempt needs a
		// contract, or a new id (semantics.md §3).
		return p.final(now, call.OutcomeUnknown, call.ReasonNotRepeatable)
	}
	if p.asked.Dispatch == call.DispatchRepeat {
		return Step{Kind: StepWithdraw}
	}
	return p.admit(now)
}

// resumed goes on after a wait. The time was judged when the wait was planned.
func (p *Plan) resumed(now time.Time, ev Event) Step {
	if p.gone(now, ev) {
		return p.final(now, call.OutcomeCancelled, call.ReasonCancelled)
	}
	return p.admit(now)
}

// admit asks for what is shared between callers; the attempt starts when it is granted.
func (p *Plan) admit(now time.Time) Step {
	if !p.inTime(now) {
		return p.final(now, call.OutcomeDeadlineExceeded, call.ReasonDeadline)
	}
	return Step{Kind: StepAdmit}
}

// inTime: there is time for an attempt; the first one starts with whatever is left (semantics.md §1.4).
func (p *Plan) inTime(now time.Time) bool {
	remaining := p.work.Sub(now)
	return remaining > 0 && (len(p.attempts) == 0 || remaining+timerSlack >= p.policy.Deadline.MinAttemptTime)
}

// admitted starts the attempt: it begins when its slot was granted, and the wait for that may have taken its time.
func (p *Plan) admitted(now time.Time, ev Event) Step {
	if p.gone(now, ev) {
		return p.final(now, call.OutcomeCancelled, call.ReasonCancelled)
	}
	if !p.inTime(now) {
		return p.final(now, call.OutcomeDeadlineExceeded, call.ReasonDeadline)
	}
	if len(p.attempts) == 0 && p.keyExpired(now) {
		return p.final(now, call.OutcomeUnknown, call.ReasonKeyExpired) // it grew too old in a queue; a repeat was judged before its wait
	}
	kind := p.kind()
	if ev.Probe {
		kind = call.KindProbe
	}
	p.beside.due = ev.HedgeAt
	if ev.Probe {
		p.beside.due = time.Time{} // nothing runs beside a probe
	}
	return p.send(now, kind, ev.Queued)
}

// kind is what the next attempt will be, unless it is a probe or a hedge.
func (p *Plan) kind() call.Kind {
	switch {
	case p.hops.hopping:
		return call.KindRedirect
	case len(p.attempts) > 0:
		return call.KindRetry
	}
	return call.KindPrimary
}

// heldUp waits for the end of a hold, if the call has the time and the policy the patience (semantics.md §4).
func (p *Plan) heldUp(now time.Time, ev Event) Step {
	if p.gone(now, ev) {
		return p.final(now, call.OutcomeCancelled, call.ReasonCancelled)
	}
	wait := ev.Until.Sub(now)
	if p.held+wait > p.policy.Retry.RetryAfterMax || !p.fits(now, wait) {
		p.retryAfter = wait
		return p.final(now, call.OutcomeThrottled, call.ReasonOriginHeld)
	}
	p.held += wait
	wait = p.spread(now, wait)
	return p.rest(now, wait, true)
}

// refused ends the call by a refusal of ours. The upstream's last answer stays.
func (p *Plan) refused(now time.Time, ev Event) Step {
	if p.gone(now, ev) {
		return p.final(now, call.OutcomeCancelled, call.ReasonCancelled)
	}
	p.retryAfter, p.forced = ev.RetryAfter, ev.Forced
	switch ev.Reason {
	case call.ReasonBudgetExhausted:
		if len(p.attempts) == 0 {
			return p.final(now, call.OutcomeBudgetExhausted, ev.Reason)
		}
		return p.stop(now, call.OutcomeBudgetExhausted, ev.Reason)
	case call.ReasonBreakerOpen:
		return p.final(now, call.OutcomeBreakerOpen, ev.Reason)
	}
	return p.final(now, call.OutcomeOverloaded, call.ReasonConcurrencyLimit)
}

// gone: the caller went away. Past the work deadline an ended context is the deadline, whatever its error says: the server's
// context usually reads Canceled when the caller's deadline fires (semantics.md §1.6).
func (p *Plan) gone(now time.Time, ev Event) bool { return ev.Gone && now.Before(p.work) }

// timeout is the time an attempt that starts now is given: min(attempt.timeout, what remains), all that remains for the last one of
// a policy that widens it. clipped tells that the work deadline ends it, not its own time-out.
func (p *Plan) timeout(now time.Time) (timeout time.Duration, clipped bool) {
	number := p.counted
	if p.counts() {
		number++
	}
	remaining := p.work.Sub(now)
	limit := p.policy.Attempt.Timeout
	widened := p.policy.Attempt.WidenLast && number >= p.maxAttempts && limit < remaining
	if widened {
		limit = remaining
	}
	if t := p.call.AttemptTimeout; t != 0 {
		limit = min(limit, t)
	}
	return min(limit, remaining), remaining < limit || widened && limit == remaining
}

// counts: the next attempt counts against max_attempts. A hop does not, nor does the free resend.
func (p *Plan) counts() bool { return !p.free && !p.hops.hopping }

func (p *Plan) send(now time.Time, kind call.Kind, queued time.Duration) Step {
	timeout, clipped := p.timeout(now)
	if p.counts() {
		p.counted++
	}
	p.attempts = append(p.attempts, call.Attempt{
		Number:    uint32(len(p.attempts)) + 1, //nolint:gosec // bounded by max_attempts and one free resend
		Kind:      kind,
		Origin:    p.call.Target.Origin,
		Start:     now,
		Offset:    now.Sub(p.call.Arrived),
		Waited:    p.waited,
		Queued:    queued,
		Timeout:   timeout,
		Deadline:  now.Add(timeout),
		Clipped:   clipped,
		Remaining: p.work.Sub(now),
	})
	p.free, p.hops.hopping, p.waited = false, false, 0
	return Step{Kind: StepSend, Attempt: &p.attempts[len(p.attempts)-1], HedgeAt: p.nextHedge()}
}

// ended records what the attempt gave, and judges it unless the call is over.
func (p *Plan) ended(now time.Time, ev Event) Step {
	a := p.attempt(ev.Number)
	a.Duration = now.Sub(a.Start)
	a.Result = *ev.Result
	r := &a.Result
	p.told = told{}
	if r.Evidence != call.EvidenceNotSent && (p.firstSend.IsZero() || a.Start.Before(p.firstSend)) {
		p.firstSend = a.Start
	}
	if p.beside.over && !p.overtakes(r) {
		return p.lost(now, a)
	}
	return p.judge(now, ev, a)
}

// judge decides by the rules of semantics.md §2, in their order.
func (p *Plan) judge(now time.Time, ev Event, a *call.Attempt) Step {
	p.judged = int(a.Number) - 1
	r := &a.Result
	p.note = r.Note
	before := p.effect
	p.effect = p.effectOf(before, r)
	if r.Response != nil || r.Forwarded { // of an answer that broke off the caller has a part, and no older one may stand beside it
		p.response = r.Response
	}

	p.beside.settled = p.succeeded(r) || p.settled(before, r)
	if p.gone(now, ev) {
		return p.stop(now, call.OutcomeCancelled, call.ReasonCancelled)
	}
	p.told.success = p.beside.settled
	if step, ok := p.redirected(now, r); ok {
		return step
	}
	if p.told.success {
		return p.stop(now, call.OutcomeSuccess, call.ReasonSuccess)
	}
	reason, outcome, worth := p.worth(r)
	if worth {
		p.told.failure = true
		p.told.hold = p.holdFor(r, now)
	}
	bar := p.bars(r)
	if p.live() > 0 && (worth || p.yields(r)) {
		return p.leaveToOther(now, reason, bar)
	}
	if !worth {
		return p.stop(now, outcome, reason)
	}
	if bar != call.ReasonUnspecified {
		return p.stop(now, withoutRepeat(r.Evidence == call.EvidenceAnswered), bar)
	}
	if bar = p.beside.bar; bar != call.ReasonUnspecified {
		return p.stop(now, withoutRepeat(p.response != nil), bar)
	}
	if r.TimedOut && (a.Clipped || r.Forwarded) { // the time of what is forwarded is the call's
		return p.stop(now, call.OutcomeDeadlineExceeded, call.ReasonDeadline)
	}
	if r.Evidence == call.EvidenceNotSent && r.Reused && !p.freeSpent && p.asked.Dispatch == 0 {
		// The keep-alive race: the server closed the idle connection before a byte was written. It costs nothing, once per call.
		p.freeSpent, p.free, p.told.failure = true, true, false
		if now.Before(p.beside.notBefore) {
			return p.wait(now, reason) // an attempt beside this one was told to wait
		}
		return p.again(now, reason, 0)
	}
	if p.counted >= p.maxAttempts {
		return p.stop(now, call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted)
	}
	return p.wait(now, reason)
}

// withoutRepeat is how a call ends that was sent and must not be repeated.
func withoutRepeat(answered bool) call.Outcome {
	if answered {
		return call.OutcomeHTTPError
	}
	return call.OutcomeUnknown
}

// wait finds the wait before the next attempt and whether it fits (semantics.md §2.7).
func (p *Plan) wait(now time.Time, reason call.Reason) Step {
	r := &p.last().Result
	cfg := &p.policy.Retry.Backoff
	wait := cfg.Wait(int(p.counted), r.Status == 429, p.rnd())
	asked, ok := serverDelay(r, now)
	if other := p.beside.notBefore.Sub(now); other > 0 {
		asked, ok = max(asked, other), true
	}
	if ok {
		if p.tooLong(now, asked) {
			return p.stop(now, call.OutcomeThrottled, call.ReasonRetryAfterTooLong)
		}
		wait = max(wait, p.spread(now, asked))
	}
	return p.again(now, reason, wait)
}

// tooLong: a server's delay is more than the policy or the call's time allows.
func (p *Plan) tooLong(now time.Time, asked time.Duration) bool {
	return asked > p.policy.Retry.RetryAfterMax || !p.fits(now, asked)
}

// spread is a server's delay and an extra, so that those it told to go away do not return together. Never early; the extra is cut to
// what fits (semantics.md §4).
func (p *Plan) spread(now time.Time, asked time.Duration) time.Duration {
	latest := p.work.Sub(now) - max(p.policy.Deadline.MinAttemptTime, 1) // a wait never reaches the deadline itself
	return max(asked, min(backoff.Spread(asked, p.policy.Retry.Backoff.Jitter, p.rnd()), latest))
}

// again ends the judgement with another attempt after wait, if that fits before the work deadline and the key's life.
func (p *Plan) again(now time.Time, reason call.Reason, wait time.Duration) Step {
	if p.late.told {
		return p.stopLate(now)
	}
	if p.keyExpired(now.Add(wait)) {
		outcome := call.OutcomeUnknown
		if p.response != nil {
			outcome = call.OutcomeHTTPError // an answer is at hand, though perhaps of an earlier attempt
		}
		return p.stop(now, outcome, call.ReasonKeyExpired)
	}
	if !p.fits(now, wait) {
		return p.stop(now, call.OutcomeDeadlineExceeded, call.ReasonDeadline)
	}
	if p.last().Result.Forwarded { // what the caller has cannot be taken back
		return p.stop(now, withoutRepeat(p.last().Result.Evidence == call.EvidenceAnswered), call.ReasonBodyNotReplayable)
	}
	p.planned = call.Decision{Verdict: call.VerdictRetry, Reason: reason, Wait: wait}
	if p.free {
		return p.granted(now) // the free resend costs no token
	}
	return Step{Kind: StepWithdraw}
}

// granted carries the planned repeat out: what it costs has been paid.
func (p *Plan) granted(now time.Time) Step {
	if len(p.attempts) == 0 {
		return p.admit(now) // the first attempt of a dispatch that repeats
	}
	p.decide(p.planned)
	if p.planned.Wait == 0 {
		return p.admit(now)
	}
	return p.rest(now, p.planned.Wait, false)
}

// rest begins a wait before the next attempt.
func (p *Plan) rest(now time.Time, wait time.Duration, hold bool) Step {
	p.waited += wait
	p.pause, p.holding = wait, hold
	return Step{Kind: StepWait, Until: now.Add(wait)}
}

// fits: after the wait there is time for a useful attempt, and the wait itself does not reach the deadline (semantics.md §1.4).
func (p *Plan) fits(now time.Time, wait time.Duration) bool {
	remaining := p.work.Sub(now)
	return wait < remaining && remaining-wait >= p.policy.Deadline.MinAttemptTime
}

// keyExpired: a repeat at that instant would come after the upstream may have forgotten the key, and so create a second effect.
// Where there provably was no first one, the key's age does not matter.
func (p *Plan) keyExpired(at time.Time) bool {
	return p.keyed && p.effect != call.EffectNone && p.keyPast(at)
}

func (p *Plan) decide(d call.Decision) { p.last().Decision = d }

// ending is how the call ends, or the hop it goes on with.
type ending struct {
	outcome call.Outcome
	reason  call.Reason
	hop     *call.Call
}

// stop ends the call because of the last result.
func (p *Plan) stop(now time.Time, o call.Outcome, reason call.Reason) Step {
	p.decide(call.Decision{Verdict: call.VerdictStop, Reason: reason})
	return p.end(now, ending{outcome: o, reason: reason})
}

// end carries an ending out, once every attempt has ended.
func (p *Plan) end(now time.Time, e ending) Step {
	switch {
	case p.live() > 0:
		return p.endOthers(e)
	case e.hop != nil:
		return p.goOn(now, e.hop)
	}
	return p.final(now, e.outcome, e.reason)
}

// traced keeps what the observer said of an attempt that starts.
func (p *Plan) traced(a *call.Attempt) {
	own := p.attempt(a.Number)
	own.TraceParent, own.TraceID, own.SpanID = a.TraceParent, a.TraceID, a.SpanID
}

// attempt is the one of that number.
func (p *Plan) attempt(number uint32) *call.Attempt { return &p.attempts[number-1] }

// last is the attempt that was judged last.
func (p *Plan) last() *call.Attempt { return &p.attempts[p.judged] }

// waiting is what the wait is for: the planned repeat, or a hold.
func (p *Plan) waiting() Notice {
	reason := call.ReasonOriginHeld
	if !p.holding {
		reason = p.last().Decision.Reason
	}
	return Notice{What: WhatWait, Kind: p.kind(), Reason: reason, Wait: p.pause}
}
