package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// Sender makes one attempt over HTTP. It returns when the attempt's resources are free: by a.Deadline, or soon after ctx ends. One with a
// Departure asks it before the first byte of the request leaves, and has until its Latest from then on.
type Sender interface {
	Send(ctx context.Context, c *call.Call, p *policy.Effective, a call.Attempt) call.Result
}

// Engine carries out plans.
type Engine struct {
	sender   Sender
	observer Observer
	guard    *guard.Guard
	origins  *Origins
	aloft    aloft
}

// New makes an engine. Engines that share origins share breakers, budgets, limits and holds.
func New(s Sender, o Observer, g *guard.Guard, origins *Origins) *Engine {
	return &Engine{sender: s, observer: o, guard: g, origins: origins}
}

// Do makes the call and returns when it is over: never later than its deadline, and after every attempt of it has ended, but for one that
// runs on (Final.Late, [Engine.Wait]). ctx tells that the caller went away; the time is the plan's.
func (e *Engine) Do(ctx context.Context, c *call.Call, p *policy.Effective) call.Final {
	now := time.Now()
	r := run{Engine: e, policy: p, origin: e.origins.enter(c, p, now), first: true}
	defer r.leave(ctx) // also when an attempt panics: nothing that is shared stays taken
	r.plan.prepare(c, p, e.guard, rand.Float64)
	step := r.plan.Next(now, Event{Kind: EventStarted, Gone: ctx.Err() != nil})
	for {
		switch step.Kind {
		case StepWithdraw:
			step = r.next(ctx, r.mayRepeat(ctx))
		case StepAdmit:
			ev := r.admit(ctx)
			step = r.next(ctx, ev)
		case StepSend:
			step = r.send(ctx, &step)
		case StepHedge:
			ev := r.admitHedge(ctx, time.Now())
			if step = r.next(ctx, ev); step.Kind != StepSend {
				r.handBack(ctx, time.Now())
			}
		case StepListen:
			step = r.listen(ctx, &step)
		case StepWait:
			r.noticeAt(ctx, step.Until.Add(-r.plan.pause), r.plan.waiting())
			wait(ctx, step.Until)
			step = r.next(ctx, Event{Kind: EventWaited})
		case StepFinal:
			if refused(step.Final) {
				r.notice(ctx, Notice{What: WhatRefusal, Kind: r.plan.kind(), Reason: step.Final.Reason})
			}
			return *step.Final
		}
	}
}

// run is one call on its way, with what it has taken of what is shared.
type run struct {
	*Engine
	policy *policy.Effective
	plan   Plan
	origin origin
	first  bool // nothing was sent to this origin yet
	// handedOn: what the call shares with others is in other hands, with its last attempt.
	handedOn bool

	tokens  tokens // for a repeat or a hedge that was not sent yet
	taken   taken  // for the attempt that is sent next, that nothing can run beside, or that has just landed
	attempt call.Attempt
	result  call.Result // of an attempt that nothing can run beside
	flights flights
}

// tokens pay for one attempt beyond the first.
type tokens struct {
	retry budget.Token
	hedge budget.Token // of the hedges' own allowance
}

func (t *tokens) spend(now time.Time) {
	t.retry.Spend(now)
	t.hedge.Spend(now)
}

func (t *tokens) handBack(now time.Time) {
	t.retry.HandBack(now)
	t.hedge.HandBack(now)
}

// taken is what an attempt holds until its resources are free.
type taken struct {
	slot   bulkhead.Slot
	ticket breaker.Ticket
}

func (t *taken) giveBack(now time.Time) {
	t.ticket.Settle(now, breaker.Result{Kind: breaker.Ignored}, 0)
	t.slot.Release()
	*t = taken{}
}

func (r *run) next(ctx context.Context, ev Event) Step {
	ev.Gone = ctx.Err() != nil
	return r.plan.Next(time.Now(), ev)
}

func (r *run) notice(ctx context.Context, n Notice) { r.noticeAt(ctx, time.Now(), n) }

// noticeAt is notice of what began at that time.
func (r *run) noticeAt(ctx context.Context, now time.Time, n Notice) {
	n.Call, n.Shared = r.plan.call, Shared{&r.origin}
	r.origins.remember(r.origin.name, now, &n)
	r.observer.Noticed(ctx, now, n)
}

// leave gives back whatever is still taken.
func (r *run) leave(ctx context.Context) {
	r.ground()
	r.handBack(ctx, time.Now())
	if !r.handedOn {
		r.origin.leave()
	}
}

// handBack returns what was taken for an attempt that is not sent.
func (r *run) handBack(ctx context.Context, now time.Time) {
	r.taken.giveBack(now)
	granted := r.tokens.retry != budget.Token{}
	r.tokens.handBack(now)
	if granted {
		r.notice(ctx, Notice{What: WhatTokenHandedBack})
	}
}

// move goes over to what the callers of another origin share, when a redirect leads there.
func (r *run) move(now time.Time) {
	if r.origin.name == r.plan.call.Target.Origin {
		return
	}
	next := r.origins.enter(r.plan.call, r.policy, now)
	r.origin.leave()
	r.origin, r.first = next, true
}

// deferredPart is the part of a retry budget that repeats of deferred calls may use: calls whose callers wait come first.
const deferredPart = 0.5

// withdraw asks the retry budget for a token.
func (r *run) withdraw(ctx context.Context, now time.Time) *budget.RefusedError {
	part := 1.0
	if r.plan.asked.Dispatch == call.DispatchRepeat {
		part = deferredPart
	}
	token, err := r.origin.budget.WithdrawFrom(part, now, r.plan.call.Caller)
	if refused, ok := errors.AsType[*budget.RefusedError](err); ok {
		r.notice(ctx, Notice{What: WhatTokenRefused, Token: refused.Reason})
		return refused
	}
	r.tokens.retry = token
	r.notice(ctx, Notice{What: WhatTokenGranted})
	return nil
}

// mayRepeat asks it for a retry.
func (r *run) mayRepeat(ctx context.Context) Event {
	if refused := r.withdraw(ctx, time.Now()); refused != nil {
		return Event{Kind: EventRefused, Reason: call.ReasonBudgetExhausted, RetryAfter: refused.RetryAfter}
	}
	return Event{Kind: EventGranted}
}

// admit asks in this order: breaker peek and hold, concurrency slot, breaker ticket. An open breaker is reported before a full queue,
// and no probe's lease waits in a queue.
func (r *run) admit(ctx context.Context) Event {
	now := time.Now()
	r.move(now)
	if err := r.origin.breaker.Peek(now); err != nil {
		return breakerOpen(err)
	}
	if until := r.heldUntil(now); until.After(now) {
		return Event{Kind: EventHeld, Until: until}
	}
	slot, waiter, err := r.origin.bulkhead.Enter(now, r.plan.call.Caller, bulkhead.Criticality(r.plan.call.Criticality), r.plan.work.Sub(now))
	granted := now
	if waiter != nil {
		r.noticeAt(ctx, now, Notice{What: WhatWait, Kind: r.plan.kind(), Reason: call.ReasonConcurrencyLimit, Wait: waiter.Deadline.Sub(now)})
		slot, err = queue(ctx, waiter)
		granted = time.Now()
	}
	if err != nil {
		return Event{Kind: EventRefused, Reason: call.ReasonConcurrencyLimit}
	}
	r.taken.slot = slot
	if until := r.heldUntil(granted); waiter != nil && until.After(granted) {
		r.taken.giveBack(granted)
		return Event{Kind: EventHeld, Until: until} // it began while the call was queued
	}
	if err = r.ticket(ctx, granted); err != nil {
		r.taken.giveBack(granted)
		return breakerOpen(err)
	}
	return Event{Kind: EventAdmitted, Queued: granted.Sub(now), Probe: r.taken.ticket.Probe(), HedgeAt: r.hedgeAt(granted)}
}

// ticket asks the breaker for the attempt that would start now.
func (r *run) ticket(ctx context.Context, now time.Time) (err error) {
	timeout, cut := r.plan.allowance(now)
	r.taken.ticket, err = r.origin.breaker.Admit(now, breaker.Attempt{
		Caller: r.plan.call.Caller, Repeatable: r.plan.repeat != policy.RepeatNever,
		Timeout: timeout, Cut: cut,
	}, rand.Float64())
	if move, ok := r.taken.ticket.Entered(); ok {
		r.notice(ctx, Notice{What: WhatMove, Move: move})
	}
	return err
}

func (r *run) heldUntil(now time.Time) time.Time {
	if !r.policy.Retry.Hold {
		return time.Time{}
	}
	return r.origins.holds.of(now, r.plan.call, r.policy)
}

func breakerOpen(err error) Event {
	ev := Event{Kind: EventRefused, Reason: call.ReasonBreakerOpen}
	if refused, ok := errors.AsType[*breaker.RefusedError](err); ok {
		ev.RetryAfter, ev.Forced = refused.RetryAfter, refused.Reason == breaker.RefusedForced
	}
	return ev
}

// errQueue: no slot came in time, or the caller went away.
var errQueue = errors.New("no slot in time")

// queue waits for a slot.
func queue(ctx context.Context, w *bulkhead.Waiter) (bulkhead.Slot, error) {
	timer := time.NewTimer(time.Until(w.Deadline))
	defer timer.Stop()
	select {
	case <-w.C:
		if slot, ok := w.Slot(); ok {
			return slot, nil
		}
	case <-timer.C:
		w.Leave()
	case <-ctx.Done():
		w.Leave()
	}
	return bulkhead.Slot{}, errQueue
}

// send starts an attempt. One that nothing can run beside is made here and now, on the goroutine of the call.
func (r *run) send(ctx context.Context, step *Step) Step {
	r.attempt = *step.Attempt
	a := &r.attempt
	if r.first && r.plan.asked.Dispatch != call.DispatchRepeat {
		r.origin.budget.Deposit(a.Start, r.plan.call.Caller)
		if h := r.origin.hedging; h != nil {
			h.allowance.Deposit(a.Start, r.plan.call.Caller)
		}
	}
	r.first = false
	r.tokens.spend(a.Start)
	r.observer.AttemptStarted(ctx, r.plan.call, a)
	r.plan.traced(a)
	if r.plan.runsOn() {
		a.Departure = &call.Departure{Latest: r.plan.latest(a)}
	}
	if r.plan.call.Stream != nil {
		a.Stream = &call.AttemptStream{Forwards: func(head *call.Response) bool { return r.plan.wouldEnd(time.Now(), a.Number, head) }}
	}
	if step.HedgeAt.IsZero() && len(r.flights.inAir) == 0 && a.Departure == nil {
		r.result = r.sender.Send(ctx, r.plan.call, r.policy, *a)
		return r.landed(ctx, a.Number, &r.result)
	}
	r.launch(ctx, *a)
	return Step{Kind: StepListen, HedgeAt: step.HedgeAt}
}

// landed tells plan and all that is shared how an attempt went. Its slot was held until now, when its resources are free.
func (r *run) landed(ctx context.Context, number uint32, result *call.Result) Step {
	now := time.Now()
	a, asked := r.plan.attempt(number), r.plan.call // the plan may go on to another request
	given := time.Duration(0)
	if r.plan.runsOn() && !r.plan.late.told {
		given = a.Timeout // it was admitted for more, and did not get it
	}
	took := now.Sub(a.Start)
	if result.Head > 0 {
		took = result.Head // how long a stream lasts says nothing of its origin
	}
	if move, ok := r.taken.ticket.Settle(now, breakerResult(result, took, given), rand.Float64()); ok {
		r.notice(ctx, Notice{What: WhatMove, Move: move})
	}
	step := r.plan.Next(now, Event{Kind: EventResult, Gone: ctx.Err() != nil, Number: number, Result: result})
	r.tell(ctx, now, asked, a.Start, result)
	r.taken.slot.Release() // only now: who waits for it must see the hold
	r.taken = taken{}
	if step.Kind == StepWithdraw {
		step = r.next(ctx, r.mayRepeat(ctx)) // whether it is repeated is decided only now
	}
	r.observer.AttemptEnded(ctx, r.plan.attempt(number), Shared{&r.origin})
	return step
}

// tell lets budget, hedging and holds know what the plan made of a result of that request.
func (r *run) tell(ctx context.Context, now time.Time, asked *call.Call, started time.Time, result *call.Result) {
	told := r.plan.told
	if h := r.origin.hedging; h != nil && r.plan.hops.followed == 0 && r.plan.hedgeable() {
		h.learn(now, now.Sub(started), told)
	}
	switch {
	case told.success:
		r.origin.budget.Succeeded(now)
	case told.failure:
		r.origin.budget.Failed(now)
	}
	if told.hold > 0 {
		key := holdKey{origin: asked.Target.Origin}
		if result.Status == 429 {
			key.credential = credentialOf(asked, r.policy)
		}
		if r.origins.holds.hold(now, key, now.Add(told.hold)) {
			r.notice(ctx, Notice{What: WhatHold, Wait: told.hold, Credential: key.credential != ""})
		}
	}
}

// wait returns at that instant, or earlier when the caller went away.
func wait(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
