package breaker_test

import (
	"math"
	"slices"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

// oracle is the breaker written down naively: it keeps every result and counts from scratch, and remembers every caller.
type oracle struct {
	c       breaker.Config
	state   breaker.State
	gen     int
	since   time.Duration
	results []seen
	streak  []string // callers of the failures since the last success
	learned []time.Duration
	taught  time.Duration // when the last was learned
	hinted  time.Duration

	cooldown, until, anyAt time.Duration
	failedProbes           int
	successes              int
	probe                  *admission
	ramping                bool
}

// seen is one result of this generation.
type seen struct {
	at       time.Duration
	caller   string
	kind     breaker.Kind
	answered bool
	excused  bool
	slow     bool
}

// admission is the oracle's ticket.
type admission struct {
	gen      int
	a        breaker.Attempt
	probe    bool
	unfit    bool
	hasty    bool
	leaseEnd time.Duration
	settled  bool
}

func newOracle(c breaker.Config) *oracle {
	return &oracle{c: c, state: breaker.Closed, hinted: -1}
}

// live are the results in the window: those whose bucket began less than a window ago.
func (o *oracle) live(now time.Duration) []seen {
	tenth := (o.c.Window + 9) / 10
	start := time.Duration(math.MinInt64 / 4)
	var live []seen
	for _, r := range o.results {
		if r.at-start >= tenth {
			start = r.at
		}
		if now-start < o.c.Window {
			live = append(live, r)
		}
	}
	return live
}

func (o *oracle) p95() (time.Duration, bool) {
	if len(o.learned) < 20 {
		return 0, false
	}
	last := slices.Clone(o.learned[max(0, len(o.learned)-32):])
	slices.Sort(last)
	return last[int(math.Ceil(0.95*float64(len(last))))-1], true
}

func (o *oracle) patient(a breaker.Attempt) bool {
	p95, known := o.p95()
	return !a.Cut || a.Timeout >= time.Second && (!known || a.Timeout >= 2*p95)
}

func (o *oracle) excused(a breaker.Attempt) bool {
	p95, known := o.p95()
	return a.Cut && o.c.TimeoutFloor > 0 && (a.Timeout < o.c.TimeoutFloor || known && a.Timeout < 2*p95)
}

func (o *oracle) move(to breaker.State, now time.Duration) {
	o.state, o.since, o.gen = to, now, o.gen+1
	o.results, o.streak, o.hinted, o.successes, o.probe, o.ramping = nil, nil, -1, 0, nil, false
}

func (o *oracle) open(now time.Duration) {
	o.move(breaker.Open, now)
	o.cooldown = min(time.Duration(float64(o.c.OpenBase)*math.Pow(2, float64(o.failedProbes))), o.c.OpenCap)
	o.until, o.anyAt = now+o.cooldown, now+2*o.cooldown
}

// admit gives the reason of a refusal, or an admission.
func (o *oracle) admit(now time.Duration, a breaker.Attempt, rnd float64) (*admission, breaker.Refusal, time.Duration) {
	switch {
	case o.state == breaker.Closed:
		if elapsed := now - o.since; o.ramping && elapsed < o.c.Ramp && rnd >= 0.1+0.9*float64(elapsed)/float64(o.c.Ramp) {
			return nil, breaker.RefusedRamp, min(o.c.Ramp-elapsed, o.c.OpenBase)
		}
		return &admission{gen: o.gen, a: a}, 0, 0
	case o.state == breaker.Open && now < o.until:
		return nil, breaker.RefusedOpen, o.until - now
	case o.probe != nil && now < o.probe.leaseEnd:
		return nil, breaker.RefusedProbing, min(o.probe.leaseEnd-now, o.c.OpenBase)
	}
	unfit := !a.Repeatable || !o.patient(a)
	if unfit && now < o.anyAt {
		return nil, breaker.RefusedUnfit, min(o.anyAt-now, o.c.OpenBase)
	}
	if o.state == breaker.Open {
		o.move(breaker.HalfOpen, now)
	}
	if !unfit {
		o.anyAt = now + o.cooldown
	}
	o.probe = &admission{gen: o.gen, a: a, probe: true, unfit: unfit, hasty: !o.patient(a), leaseEnd: now + a.Timeout + time.Second}
	return o.probe, 0, 0
}

// settle says whether the state moved.
func (o *oracle) settle(now time.Duration, t *admission, r breaker.Result) bool {
	if t.settled || t.gen != o.gen || t.probe && (o.probe != t || now >= t.leaseEnd) {
		return false
	}
	t.settled = true
	gen := o.gen
	if t.probe {
		o.settleProbe(now, t, r)
	} else {
		o.settleClosed(now, t, r)
	}
	return o.gen != gen
}

func (o *oracle) settleProbe(now time.Duration, t *admission, r breaker.Result) {
	o.probe = nil
	switch {
	case r.Kind == breaker.Ignored:
	case r.Kind == breaker.OK:
		o.successes++
		if o.successes >= int(o.c.CloseAfter) {
			o.failedProbes = 0
			o.move(breaker.Closed, now)
			o.ramping = true
		}
	case r.Kind == breaker.Failed && r.TimedOut && (t.hasty || o.excused(t.a)):
		o.anyAt = now + o.cooldown
	default:
		o.failedProbes++
		o.open(now)
	}
}

func (o *oracle) settleClosed(now time.Duration, t *admission, r breaker.Result) {
	if r.Kind == breaker.Ignored {
		return
	}
	s := seen{
		at: now, caller: t.a.Caller, kind: r.Kind, answered: r.Kind != breaker.Failed || r.Answered,
		excused: r.Kind == breaker.Failed && r.TimedOut && o.excused(t.a),
		slow:    o.c.SlowCallThreshold > 0 && r.Latency > o.c.SlowCallThreshold,
	}
	n := o.tally(now)
	if r.Kind == breaker.OK {
		frozen := len(o.streak) > 0 ||
			n.failed+n.excused > 0 && 2*float64(n.failed+n.excused) >= o.c.FailureRate*float64(n.counted+n.excused)
		if !frozen && (len(o.learned) < 32 || now-o.taught >= o.c.Window/32) {
			o.learned, o.taught = append(o.learned, (r.Latency+time.Millisecond-1).Truncate(time.Millisecond)), now
		}
		o.streak, o.hinted = nil, -1
	}
	if r.Kind == breaker.Failed && !s.excused {
		o.streak = append(o.streak, s.caller)
	}
	o.results = append(o.results, s)
	if o.trips(now, s) {
		o.open(now)
	}
}

func (o *oracle) trips(now time.Duration, s seen) bool {
	n := o.tally(now)
	row, least := int(o.c.ConsecutiveFailures), int(o.c.MinRequests)
	if o.hinted >= 0 && now-o.hinted < o.c.Window {
		row, least = (row+1)/2, (least+1)/2
	}
	need := min(int(o.c.MinDistinctCallers), len(n.active))
	if s.kind == breaker.Failed && !s.excused && row > 0 && len(o.streak) >= row && distinct(o.streak) >= need {
		return true
	}
	answered := slices.ContainsFunc(o.results, func(r seen) bool { return r.answered && now-r.at < o.c.Window })
	if !answered && n.counted+n.excused >= least {
		return true
	}
	if s.excused || n.counted < least || distinct(n.hurt) < need {
		return false
	}
	return n.failed > 0 && float64(n.failed)/float64(n.counted) >= o.c.FailureRate ||
		n.slow > 0 && float64(n.slow)/float64(n.counted) >= o.c.SlowCallRate
}

type tally struct {
	counted, failed, slow, excused int
	active                         map[string]bool
	hurt                           []string
}

func (o *oracle) tally(now time.Duration) tally {
	n := tally{active: map[string]bool{}}
	for _, r := range o.live(now) {
		if r.excused {
			n.excused++
			continue
		}
		n.counted++
		n.active[r.caller] = true
		if r.kind != breaker.OK {
			n.failed++
		}
		if r.slow {
			n.slow++
		}
		if r.kind != breaker.OK || r.slow {
			n.hurt = append(n.hurt, r.caller)
		}
	}
	return n
}

func distinct(names []string) int {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return len(set)
}
