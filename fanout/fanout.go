// Package fanout makes several calls under one deadline and decides when that is over.
package fanout

import (
	"context"
	"sync"
	"time"

	"github.com/sallyport/sallyport/call"
)

// Mode says when a fan-out is over.
type Mode int32

// The modes, in the order of the wire.
const (
	ModeUnspecified Mode = iota
	// ModeAll: the failure of a required branch ends the others.
	ModeAll
	// ModeBestEffort: every branch runs to its end.
	ModeBestEffort
	// ModeFirstSuccess: the first success ends the others.
	ModeFirstSuccess
	// ModeQuorum: so many successes end the others, and so does what makes them impossible.
	ModeQuorum
)

// Outcome says what became of the whole.
type Outcome int32

// The outcomes, in the order of the wire.
const (
	OutcomeUnspecified Outcome = iota
	// OutcomeComplete: all succeeded (ModeAll, ModeBestEffort), or as many as it takes.
	OutcomeComplete
	// OutcomePartial: only optional branches failed (ModeAll), or some succeeded (ModeBestEffort).
	OutcomePartial
	// OutcomeFailed: anything else.
	OutcomeFailed
)

// Plan is what a fan-out shall do.
type Plan struct {
	Mode Mode
	// Quorum is how many successes end it, in ModeQuorum.
	Quorum int
	// MaxParallel bounds the branches that run at once; 0: all of them.
	MaxParallel int
	// Arrived is when the broker took it.
	Arrived time.Time
	// Branches are made in their order.
	Branches []Branch
}

// Branch is one call of it.
type Branch struct {
	// Optional: its failure does not fail the whole, in ModeAll.
	Optional bool
	// Work is when its work must be over.
	Work time.Time
	// Call makes it, and ends soon after its context does.
	Call func(context.Context) call.Final
}

// Run makes the calls and gives what became of each, in their order. It returns when every branch has ended, or was never begun.
func (p *Plan) Run(ctx context.Context) (Outcome, []call.Final) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &run{Plan: p, finals: make([]call.Final, len(p.Branches)), tally: tally{plan: p}, stop: stop}
	atOnce := len(p.Branches)
	if p.MaxParallel > 0 {
		atOnce = min(atOnce, p.MaxParallel)
	}
	next := make(chan int) // closed below
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for i := range next {
				r.make(ctx, i)
			}
		})
	}
	for i := range p.Branches {
		next <- i
	}
	close(next)
	workers.Wait()
	if r.crashed != nil {
		panic(r.crashed)
	}
	return r.tally.outcome(), r.finals
}

// run is a fan-out under way.
type run struct {
	*Plan
	finals []call.Final
	stop   context.CancelCauseFunc

	mu      sync.Mutex // protects the fields below
	tally   tally
	crashed any // of the first branch that panicked, for the goroutine of the fan-out, which is recovered at the edge
}

// make makes one branch. A panic of it ends the others, and the whole after them.
func (r *run) make(ctx context.Context, i int) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		r.stop(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.crashed == nil {
			r.crashed = v
		}
	}()
	r.finals[i] = r.branch(ctx, i)
	r.ended(i)
}

// branch makes one, unless there is no use or no time for it any more.
func (r *run) branch(ctx context.Context, i int) call.Final {
	b := &r.Branches[i]
	f := call.Final{Effect: call.EffectNone, RetrySafe: true, Next: call.NextStepRetry, Elapsed: time.Since(r.Arrived)}
	switch {
	case !time.Now().Before(b.Work):
		f.Outcome, f.Reason, f.Detail = call.OutcomeDeadlineExceeded, call.ReasonDeadline, "the time was up before this branch began"
	case ctx.Err() != nil:
		f.Outcome, f.Reason, f.Detail = call.OutcomeCancelled, call.ReasonCancelled, "the fan-out was over before this branch was"
	default:
		return b.Call(ctx)
	}
	return f
}

// ended counts a branch, and ends the others where that settles it.
func (r *run) ended(i int) {
	r.mu.Lock()
	settled := r.tally.count(i, r.finals[i].Outcome == call.OutcomeSuccess)
	r.mu.Unlock()
	if settled {
		r.stop(nil)
	}
}

// tally counts how branches ended.
type tally struct {
	plan             *Plan
	succeeded, ended int
	requiredFailed   bool
}

// count takes one branch that has ended, and reports whether the others change nothing any more.
func (t *tally) count(i int, success bool) bool {
	t.ended++
	if success {
		t.succeeded++
	} else if !t.plan.Branches[i].Optional {
		t.requiredFailed = true
	}
	switch t.plan.Mode {
	case ModeAll:
		return t.requiredFailed
	case ModeFirstSuccess:
		return t.succeeded > 0
	case ModeQuorum:
		left := len(t.plan.Branches) - t.ended
		return t.succeeded >= t.plan.Quorum || t.succeeded+left < t.plan.Quorum
	}
	return false
}

// outcome is that of the whole, when every branch has ended.
func (t *tally) outcome() Outcome {
	all := t.succeeded == len(t.plan.Branches)
	switch t.plan.Mode {
	case ModeAll:
		switch {
		case all:
			return OutcomeComplete
		case !t.requiredFailed:
			return OutcomePartial
		}
	case ModeBestEffort:
		switch {
		case all:
			return OutcomeComplete
		case t.succeeded > 0:
			return OutcomePartial
		}
	case ModeFirstSuccess:
		if t.succeeded > 0 {
			return OutcomeComplete
		}
	case ModeQuorum:
		if t.succeeded >= t.plan.Quorum {
			return OutcomeComplete
		}
	}
	return OutcomeFailed
}
