package engine_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// moments are instants in order.
type moments []time.Duration

// within counts those after one instant and not after another.
func (m moments) within(after, until time.Duration) float64 {
	return float64(m.until(until) - m.until(after))
}

func (m moments) until(at time.Duration) int {
	n, _ := slices.BinarySearch(m, at+1)
	return n
}

// spending is what the budget should have known.
type spending struct {
	firsts, successes, refused moments
	granted, sent, handedBack  moments // retries
}

func (st *story) spending() *spending {
	b := new(spending)
	for _, c := range st.calls {
		for i := range c.final.Attempts {
			a := &c.final.Attempts[i]
			switch at := st.since(a.Start); a.Number {
			case 1:
				b.firsts = append(b.firsts, at)
			default:
				b.sent = append(b.sent, at)
			}
			switch {
			case a.Decision.Reason == call.ReasonSuccess:
				b.successes = append(b.successes, st.landed(a))
			case a.Decision.Reason == call.ReasonBudgetExhausted:
				b.refused = append(b.refused, st.landed(a))
			case a.Decision.Verdict == call.VerdictRetry:
				b.granted = append(b.granted, st.landed(a))
				if i == len(c.final.Attempts)-1 {
					b.handedBack = append(b.handedBack, c.over)
				}
			}
		}
	}
	for _, m := range []moments{b.firsts, b.successes, b.refused, b.granted, b.sent, b.handedBack} {
		slices.Sort(m)
	}
	return b
}

// withinBudget: whatever the weather, the retries are within the closed form of their budget.
func (st *story) withinBudget(t *testing.T, b *spending) {
	t.Helper()
	if st.window != nil {
		st.withinWindow(t, b)
	} else {
		st.withinBucket(t, b)
	}
}

// withinWindow looks at every period: at those that end with a grant, and at those that end with a send, where the allowance is that of
// the last grant. All other periods hold no more retries than one of these.
func (st *story) withinWindow(t *testing.T, b *spending) {
	t.Helper()
	w := st.window
	allowance := func(after, until time.Duration) float64 {
		return w.Ratio*b.firsts.within(after, until) + w.MinPerSecond*w.Period.Seconds()
	}
	taken := func(after, until time.Duration) float64 {
		outstanding := b.granted.until(until) - b.sent.until(until) - b.handedBack.until(until)
		return b.sent.within(after, until) + float64(outstanding)
	}
	const tiny = 1e-6
	for _, at := range b.granted {
		if n, most := taken(at-w.Period, at), allowance(at-w.Period, at); n > most+tiny {
			t.Fatalf("%s: %v retries granted in a period, %v allowed", at, n, most)
		}
	}
	for _, at := range b.sent {
		last := b.granted[b.granted.until(at)-1]
		if n, most := b.sent.within(at-w.Period, at), allowance(last-w.Period, last); n > most+tiny {
			t.Fatalf("%s: %v retries sent in a period, %v allowed", at, n, most)
		}
	}
	// A phase is a whole number of periods, and none of these holds more first attempts than there are calls.
	from := time.Duration(0)
	for _, phase := range weather {
		n, most := b.sent.within(from, from+phase.lasts), w.Ratio*float64(phase.lasts/slot)+w.MinPerSecond*phase.lasts.Seconds()
		if n > most+tiny {
			t.Errorf("%s: %v retries, %v allowed", phase.name, n, most)
		}
		from += phase.lasts
	}
	if st.share < 1 {
		return // then one caller's share refuses as well
	}
	step := w.Period / 20 // the resolution of the window
	for _, at := range b.refused {
		if n, least := taken(at-w.Period-step, at), allowance(at-w.Period+step, at); n+1 <= least-tiny {
			t.Fatalf("%s: refused at %v retries in a period, %v allowed", at, n, least)
		}
	}
}

// withinBucket: between any two instants no more retries than the bucket can have held, and what successes added. What it can have held
// is all of max_tokens, of which TOKEN_RULE_HALF spends the upper half.
func (st *story) withinBucket(t *testing.T, b *spending) {
	t.Helper()
	held := st.bucket.MaxTokens
	var changes []change
	add := func(m moments, by float64) {
		for _, at := range m {
			changes = append(changes, change{at, by})
		}
	}
	add(b.granted, 1)
	add(b.successes, -st.bucket.TokenRatio)
	if st.bucket.Rule == policy.TokenRuleHalf {
		held /= 2
	} else {
		add(b.handedBack, -1)
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.by, a.by)) })
	drawn, worst := 0.0, 0.0
	for _, c := range changes {
		drawn = max(0, drawn+c.by)
		worst = max(worst, drawn)
	}
	if worst > held+1e-6 {
		t.Fatalf("%v retries more than successes paid for, the bucket holds %v", worst, held)
	}
	if worst < held/2 && !st.breaks() {
		t.Errorf("never more than %v retries from a bucket of %v", worst, held)
	}
}

// change is what happened to a bucket.
type change struct {
	at time.Duration
	by float64
}

// doorman is the naive breaker. Told every attempt and refusal in their order, it objects to what a breaker must not have done.
type doorman struct {
	*story
	t *testing.T

	open                 bool
	closed               time.Duration // when last; 0 before
	row, counted, failed int           // since then
	probing              bool
	good                 uint32 // probes in a row
	failedProbes         int
	soonest, latest      time.Duration   // for the next probe
	trips, tests         []time.Duration // when it opened, and when probes were sent
}

// doorman watches the whole storm.
func (st *story) doorman(t *testing.T) *doorman {
	t.Helper()
	type news struct {
		at   time.Duration
		tell func()
	}
	d := &doorman{story: st, t: t}
	var all []news
	for _, c := range st.calls {
		for i := range c.final.Attempts {
			a := &c.final.Attempts[i]
			all = append(all, news{st.landed(a), func() { d.land(a) }}, news{st.since(a.Start), func() { d.leave(a) }})
		}
		if c.final.Outcome == call.OutcomeBreakerOpen {
			all = append(all, news{c.over, func() { d.refuse(c.over) }})
		}
	}
	slices.SortStableFunc(all, func(a, b news) int { return cmp.Compare(a.at, b.at) })
	for _, n := range all {
		n.tell()
	}
	return d
}

// leave: an attempt starts.
func (d *doorman) leave(a *call.Attempt) {
	at := d.since(a.Start)
	if a.Kind != call.KindProbe {
		if d.open {
			d.t.Fatalf("%s: %s %d while open", at, a.Kind, a.Number)
		}
		return
	}
	if !d.open || d.probing || at < d.soonest || at > d.latest+1 || a.Timeout != d.policy.Attempt.Timeout {
		d.t.Fatalf("%s: a probe of %s, open %v, another %v, due from %s to %s", at, a.Timeout, d.open, d.probing, d.soonest, d.latest)
	}
	d.probing = true
	d.tests = append(d.tests, at)
}

// refuse: the breaker says no.
func (d *doorman) refuse(at time.Duration) {
	if rising := d.closed > 0 && at < d.closed+d.ramp; !d.open && !rising {
		d.t.Fatalf("%s: refused while closed, %d in a row and %d of %d failed", at, d.row, d.failed, d.counted)
	}
}

// land: an attempt has ended.
func (d *doorman) land(a *call.Attempt) {
	at, ok := d.landed(a), a.Decision.Reason == call.ReasonSuccess
	b := &d.policy.Breaker
	switch {
	case a.Kind == call.KindProbe:
		d.probed(at, ok)
	case !d.breaks() || d.open || d.since(a.Start) < d.closed:
		// Nobody asks, or it was let in before the last move.
	case a.Result.TimedOut && a.Timeout < d.policy.Attempt.Timeout:
		// Its caller's impatience.
	case ok:
		d.row = 0
		d.counted++
	default:
		d.row++
		d.counted++
		d.failed++
	}
	row := d.breaks() && d.row >= int(b.ConsecutiveFailures)
	rate := d.counted >= int(b.MinRequests) && float64(d.failed) >= b.FailureRate*float64(d.counted)
	if !d.open && (row || rate) {
		d.open = true
		d.trips = append(d.trips, at)
		d.cooldown(at)
	}
}

// probed: close_after probes in a row let all in, a failed one none for twice as long.
func (d *doorman) probed(at time.Duration, ok bool) {
	d.probing = false
	if !ok {
		d.good = 0
		d.failedProbes++
		d.cooldown(at)
		return
	}
	if d.good++; d.good < d.policy.Breaker.CloseAfter {
		d.soonest, d.latest = at, at+fitGap
		return
	}
	*d = doorman{story: d.story, t: d.t, trips: d.trips, tests: d.tests, closed: at}
}

func (d *doorman) cooldown(at time.Duration) {
	b := &d.policy.Breaker
	least := min(b.OpenBase<<d.failedProbes, b.OpenCap)
	d.soonest = at + least
	d.latest = at + time.Duration(float64(least)*(1+b.OpenJitter)) + fitGap
}
