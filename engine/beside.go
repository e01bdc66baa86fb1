package engine

import (
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
)

// beside is what a plan keeps of attempts that run beside each other: hedges (semantics.md §8). Nothing else is started while an
// attempt is in flight.
type beside struct {
	allowed bool      // this call may be hedged
	due     time.Time // of the next hedge; the zero time: none
	hedges  uint32    // sent so far

	// Left by attempts that failed while another one went on: what forbids a repeat, and the delay their answers asked for.
	bar       call.Reason
	notBefore time.Time

	// settled: a success has told of the operation; what becomes of others in flight changes nothing.
	settled bool
	// over: what the call ends with is known, but attempts are still in flight.
	over   bool
	ending ending
}

// hedgeable: the call's request may be hedged. The policy lists the method, or a key makes two requests one operation; the caller did
// not forbid a second send, and the body can be sent twice.
func (p *Plan) hedgeable() bool {
	h := &p.policy.Hedge
	return h.Enabled && h.MaxHedges > 0 && p.call.Stream == nil && p.call.RepeatSafety != call.RepeatSafetyNever && p.bodyTwice() &&
		(p.keyed || slices.Contains(h.Methods, p.call.Method))
}

// mayHedge: one more attempt is allowed and useful now, whatever is shared says. What an attempt that has failed forbids, or asks to
// wait for, holds for a hedge as for a repeat.
func (p *Plan) mayHedge(now time.Time) bool {
	b := &p.beside
	return b.allowed && b.hedges < p.policy.Hedge.MaxHedges && b.bar == call.ReasonUnspecified && !now.Before(b.notBefore) &&
		p.counted < p.maxAttempts && p.inTime(now) &&
		(!p.keyed || !now.After(p.keyBorn().Add(p.policy.Idempotency.KeyTTL)))
}

// keyBorn is when the operation's key may have come to the upstream first; there is an attempt.
func (p *Plan) keyBorn() time.Time {
	if first := p.attempts[0].Start; p.firstSend.IsZero() || first.Before(p.firstSend) {
		return first
	}
	return p.firstSend
}

// nextHedge is when the next hedge is due, the zero time when there will be none.
func (p *Plan) nextHedge() time.Time {
	if p.beside.due.IsZero() || !p.mayHedge(p.beside.due) {
		p.beside.due = time.Time{}
	}
	return p.beside.due
}

// hedgeDue asks for a hedge. A caller that went away ends the attempts in flight by itself.
func (p *Plan) hedgeDue(now time.Time, ev Event) Step {
	p.beside.due = time.Time{}
	if ev.Gone || !p.mayHedge(now) {
		return p.listen()
	}
	return Step{Kind: StepHedge}
}

// hedge sends it.
func (p *Plan) hedge(now time.Time, ev Event) Step {
	if ev.Gone || !p.mayHedge(now) {
		return p.withoutHedge()
	}
	p.beside.hedges++
	p.beside.due = ev.HedgeAt
	return p.send(now, call.KindHedge, 0)
}

// withoutHedge goes on with what is in flight. What refused one hedge is not asked again by this call (gRPC A6 stops hedging, too,
// once it is throttled).
func (p *Plan) withoutHedge() Step {
	p.beside.allowed = false
	return p.listen()
}

func (p *Plan) listen() Step { return Step{Kind: StepListen, HedgeAt: p.beside.due} }

// live counts the attempts in flight: those without a result.
func (p *Plan) live() int {
	n := 0
	for i := range p.attempts {
		if p.attempts[i].Result.Evidence == call.EvidenceUnspecified {
			n++
		}
	}
	return n
}

// leaveToOther decides nothing after a failure, since another attempt may still answer. What it forbids, and the delay it asks for,
// count when that one has failed as well.
func (p *Plan) leaveToOther(now time.Time, reason, bar call.Reason) Step {
	p.decide(call.Decision{Verdict: call.VerdictNone, Reason: reason})
	if p.beside.bar == call.ReasonUnspecified {
		p.beside.bar = bar
	}
	if asked, ok := serverDelay(&p.last().Result, now); ok && now.Add(asked).After(p.beside.notBefore) {
		p.beside.notBefore = now.Add(asked)
	}
	return p.listen()
}

// endOthers cancels what is in flight; the ending is carried out when all of it has ended.
func (p *Plan) endOthers(e ending) Step {
	p.beside.over, p.beside.ending = true, e
	p.beside.due = time.Time{}
	return Step{Kind: StepListen, Cancel: true}
}

// yields: such a result never ends a call while another attempt may still answer, even where the policy does not repeat it: no complete
// answer, and those by which a server tells a hedge that the first request is there already, or one too many.
func (p *Plan) yields(r *call.Result) bool {
	switch {
	case r.Evidence != call.EvidenceAnswered, r.Status == 425, r.Status == 429:
		return true
	}
	return p.keyed && (r.Status == 409 || p.inProgress(r.Status))
}

// overtakes: the call was about to end with something worse, and here is a success: the first one ends the call, however late it came.
func (p *Plan) overtakes(r *call.Result) bool {
	e := &p.beside.ending
	if p.beside.settled || e.outcome == call.OutcomeCancelled || !p.succeeded(r) {
		return false
	}
	p.beside.over = false
	p.last().Decision.Verdict = call.VerdictNone
	return true
}

// lost records an attempt that was in flight when the call was over. A request that may have been applied stays known, unless a success
// has told of the operation already. An answer that came after all is nobody's, but for a call that has ended without one of its own.
func (p *Plan) lost(now time.Time, a *call.Attempt) Step {
	r := &a.Result
	reason := call.ReasonSuperseded
	if p.beside.ending.outcome == call.OutcomeCancelled {
		reason = call.ReasonCancelled
		if r.Response != nil && !p.beside.settled {
			p.response = r.Response
		}
	} else if r.Failure == call.FailureCancelled {
		r.Detail = "another attempt was answered first"
		p.told.superseded = true
	}
	a.Decision = call.Decision{Verdict: call.VerdictNone, Reason: reason}
	if r.Evidence == call.EvidenceAnswered {
		p.told.success = p.succeeded(r)
		if _, _, worth := p.worth(r); worth && !p.told.success {
			p.told.failure, p.told.hold = true, p.holdFor(r, now)
		}
	}
	if !p.beside.settled {
		p.effect = p.effectOf(p.effect, r)
	}
	p.beside.settled = p.beside.settled || p.succeeded(r)
	if p.live() > 0 {
		return Step{Kind: StepListen}
	}
	return p.end(now, p.beside.ending)
}
