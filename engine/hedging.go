package engine

import (
	"context"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/hedge"
	"github.com/sallyport/sallyport/policy"
)

// hedging is what the callers of an origin share of their hedges: when a slow attempt gets company, and how much of it.
type hedging struct {
	trigger *hedge.Trigger
	// allowance bounds hedges to 1 + max_extra × first attempts of the last 10 s (semantics.md §8): the rule of a budget's window,
	// beside the retry budget that hedges draw from, too.
	allowance *budget.Budget
}

const hedgePeriod = 10 * time.Second

func newHedging(origin string, s policy.HedgeSettings) *hedging {
	allowance, err := budget.New(budget.Config{
		Name: origin, CallerMaxShare: 1,
		Window: &budget.Window{Ratio: s.MaxExtra, Period: hedgePeriod, MinPerSecond: 1 / hedgePeriod.Seconds()},
	})
	if err != nil {
		panic(err) // the policy was validated: its settings always make a budget
	}
	return &hedging{trigger: hedge.New(hedge.Config{Delay: s.Delay, Percentile: s.Percentile}), allowance: allowance}
}

// learn takes what an attempt tells of the origin's latency. One that was cancelled took at least that long.
func (h *hedging) learn(now time.Time, took time.Duration, t told) {
	switch {
	case t.success:
		h.trigger.Learn(now, took)
	case t.superseded:
		h.trigger.LearnAtLeast(took)
	}
}

// hedgeAt is when an attempt that starts now gets company; the zero time: not at all, or nobody knows yet.
func (r *run) hedgeAt(now time.Time) time.Time {
	if r.origin.hedging == nil {
		return time.Time{}
	}
	after, ok := r.origin.hedging.trigger.After()
	if !ok {
		return time.Time{}
	}
	return now.Add(after)
}

// admitHedge takes all that a hedge needs; when it is refused, what was taken before stays taken until the plan has heard of it. A hedge
// is extra load to save time: it waits for nothing, and an origin that is full, held or not well gets none.
func (r *run) admitHedge(ctx context.Context, now time.Time) Event {
	reason := r.takeHedge(ctx, now)
	if reason == call.ReasonUnspecified {
		return Event{Kind: EventHedgeAdmitted, HedgeAt: r.hedgeAt(now)}
	}
	r.notice(ctx, Notice{What: WhatRefusal, Kind: call.KindHedge, Reason: reason})
	return Event{Kind: EventHedgeRefused}
}

// takeHedge tells what refused.
func (r *run) takeHedge(ctx context.Context, now time.Time) call.Reason {
	if r.origin.breaker.State(now) != breaker.Closed {
		return call.ReasonBreakerOpen
	}
	if r.heldUntil(now).After(now) {
		return call.ReasonOriginHeld
	}
	var err error
	if r.tokens.hedge, err = r.origin.hedging.allowance.Withdraw(now, r.plan.call.Caller); err != nil {
		return call.ReasonBudgetExhausted
	}
	if r.withdraw(ctx, now) != nil {
		return call.ReasonBudgetExhausted
	}
	const noWait = 0
	c := r.plan.call
	if r.taken.slot, _, err = r.origin.bulkhead.Enter(now, c.Caller, bulkhead.Criticality(c.Criticality), noWait); err != nil {
		return call.ReasonConcurrencyLimit
	}
	if err = r.ticket(ctx, now); err != nil {
		return call.ReasonBreakerOpen
	}
	return call.ReasonUnspecified
}
