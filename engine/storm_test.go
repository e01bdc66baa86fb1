package engine_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// A thousand callers, each with a call every twenty seconds whatever became of its last one: fifty a second, each in a slot of its own.
// Within the slot it comes at the same moment in every period of the budget, so that all periods hold the same number of calls.
const (
	crowd  = 1000
	cycle  = 20 * time.Second
	slot   = cycle / crowd
	period = cycle / 2
	// every fifth caller is in a hurry: its time is less than an attempt's, which says nothing of the upstream.
	hurried, patience, hurry = 5, 2 * time.Second, 350 * time.Millisecond
	// fitGap is the longest time without a call that is fit to be a probe.
	fitGap = 3 * slot
)

// phase is a time in which that part of the attempts fails.
type phase struct {
	name    string
	lasts   time.Duration
	failing float64
}

// weather is what the upstream goes through. Each phase is a whole number of periods.
var weather = [...]phase{
	{"calm", period, 0},
	{"outage", 2 * period, 1},
	{"half", 2 * period, 0.5},
	{"after", 3 * period, 0},
}

// mended is when the upstream is well again, stormLasts when the callers stop.
const (
	mended     = 5 * period
	stormLasts = 8 * period
)

// slowest is the longest answer that is no time-out.
const slowest = 25 * time.Millisecond

// storm is one set of protections to go through it with.
type storm struct {
	name   string
	window *policy.BudgetWindow
	bucket *policy.TokenBucket
	share  float64 // caller_max_share
	row    uint32  // consecutive_failures; 0: no breaker
	rate   float64 // failure_rate
	base   time.Duration
	ramp   time.Duration
	probes uint32 // close_after
}

func (s *storm) breaks() bool { return s.row > 0 }

// generous is a budget that never refuses.
var generous = policy.BudgetWindow{Ratio: 10, Period: period, MinPerSecond: 1000}

func storms() []storm {
	window := &policy.BudgetWindow{Ratio: 0.2, Period: period, MinPerSecond: 1}
	half := &policy.TokenBucket{MaxTokens: 10, TokenRatio: 0.1, Rule: policy.TokenRuleHalf}
	perRetry := &policy.TokenBucket{MaxTokens: 10, TokenRatio: 0.1, Rule: policy.TokenRulePerRetry}
	const quick = 200 * time.Millisecond // shorter than an attempt may take: some come back after the breaker has closed again
	// Twelve in a row open it when all fail. When half do, the failure rate is sooner; where five do, mostly these.
	return []storm{
		{name: "neither", window: &generous, share: 1},
		{name: "window", window: window, share: 1},
		{name: "window, shared", window: window, share: 0.5},
		{name: "half", bucket: half},
		{name: "per retry", bucket: perRetry},
		{name: "breaker", window: &generous, share: 1, row: 5, rate: 0.5, base: quick, probes: 1},
		{name: "breaker, ramp", window: &generous, share: 1, row: 5, rate: 0.5, base: time.Second, ramp: period, probes: 1},
		{name: "breaker, window", window: window, share: 1, row: 12, rate: 0.4, base: quick, probes: 1},
		{name: "breaker, window, ramp", window: window, share: 0.5, row: 5, rate: 0.5, base: time.Second, ramp: period, probes: 1},
		{name: "breaker, half, ramp", bucket: half, row: 5, rate: 0.5, base: quick, ramp: period, probes: 2},
		{name: "breaker, per retry", bucket: perRetry, row: 5, rate: 0.5, base: quick, probes: 2},
	}
}

func (s *storm) policy(t *testing.T) *policy.Effective {
	t.Helper()
	p := worked(t)
	p.Deadline.CallerMargin = new(50 * time.Millisecond)
	p.Retry.MaxAttempts = 3
	p.Retry.Backoff = backoff.Config{Base: 50 * time.Millisecond, Multiplier: 2, Cap: time.Second, Jitter: backoff.JitterFull}
	p.Concurrency = policy.Concurrency{MaxInFlight: 100, MaxPending: 20, PendingWait: 100 * time.Millisecond}
	p.Budget = policy.Budget{Window: s.window, TokenBucket: s.bucket, CallerMaxShare: s.share}
	p.Breaker.ConsecutiveFailures = s.row
	if s.breaks() {
		p.Breaker.FailureRate, p.Breaker.Window = s.rate, time.Minute // so that all since the last move is in the window
		p.Breaker.OpenBase, p.Breaker.OpenCap, p.Breaker.Ramp, p.Breaker.CloseAfter = s.base, 3*time.Second, s.ramp, s.probes
	} else {
		p.Breaker.MinRequests = 1_000_000
	}
	return p
}

// recovery is how long after the upstream's the callers' own may take. Attempts that began before may fail until their time is up; the
// longest cooldown may have begun then; the next fit calls are the probes; and admissions rise.
func (s *storm) recovery(p *policy.Effective) time.Duration {
	if !s.breaks() {
		return 0
	}
	longest := time.Duration(float64(p.Breaker.OpenCap) * (1 + p.Breaker.OpenJitter))
	return p.Attempt.Timeout + longest + time.Duration(s.probes)*(fitGap+slowest) + s.ramp
}

// story is what happened in a storm. Instants are kept as time since it began.
type story struct {
	*storm
	shop   *shop
	policy *policy.Effective
	start  time.Time
	calls  []passage

	mu     sync.Mutex // protects the fields below: what the upstream saw
	rnd    *rand.Rand
	sends  int
	live   int
	probes int           // live
	gate   chan struct{} // while it is there, attempts wait for its closing
	faults []string
}

// passage is one call.
type passage struct {
	at, over, patience time.Duration
	final              call.Final
}

// TestStorm lets the same weather pass over every set of protections.
func TestStorm(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n                      | attempts/first | attempts/call | success %         | worst |               | back   bound\n" +
		"                      | outage half    | outage half   | outage half after | 10 s  | opens  probes | after\n")
	for _, s := range storms() {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := s.rage(t)
				b := st.spending()
				st.everyCallEnded(t)
				st.withinBudget(t, b)
				d := st.doorman(t)
				back := st.recovered(t, d)
				st.servesAll(t)
				table.WriteString(st.figures(b, d, back))
			})
		})
	}
	t.Log(table.String())
}

// rage lets the storm pass and returns when the last call has ended.
func (s *storm) rage(t *testing.T) *story {
	t.Helper()
	p := s.policy(t)
	st := &story{
		storm: s, policy: p, start: time.Now(),
		calls: make([]passage, stormLasts/slot),
		rnd:   rand.New(rand.NewPCG(7, 11)),
	}
	st.shop = newShop(t, p, senderFunc(st.send))
	var late [crowd / 2]time.Duration
	for i := range late {
		late[i] = time.Duration(st.rnd.Int64N(int64(slot)))
	}
	var all sync.WaitGroup
	for n := range st.calls {
		c := &st.calls[n]
		c.at, c.patience = time.Duration(n)*slot+late[n%len(late)], patience
		if n%hurried == 0 {
			c.patience = hurry
		}
		time.Sleep(c.at - time.Since(st.start))
		all.Go(func() {
			c.final = st.shop.call(t.Context(), fmt.Sprint("caller", n%crowd), "api.example.com", c.patience)
			c.over = time.Since(st.start)
		})
	}
	all.Wait()
	return st
}

// send is the upstream. Some failures are an answer, some a lost or refused connection, some nothing at all until the time is up.
func (st *story) send(_ context.Context, _ *call.Call, a call.Attempt) call.Result {
	st.mu.Lock()
	st.sends++
	st.live++
	gate := st.gate
	if !a.Start.Equal(time.Now()) || st.live > int(st.policy.Concurrency.MaxInFlight) {
		st.faults = append(st.faults, fmt.Sprintf("%s: sent %s after its start, as one of %d", st.since(a.Start), time.Since(a.Start), st.live))
	}
	if a.Kind == call.KindProbe {
		if st.probes++; st.probes > 1 {
			st.faults = append(st.faults, fmt.Sprintf("%s: %d probes at a time", st.since(a.Start), st.probes))
		}
	}
	sick := st.rnd.Float64() < failingAt(st.since(a.Start))
	takes := slowest/5 + time.Duration(st.rnd.Int64N(int64(slowest*4/5)))
	result := status(200)
	if sick {
		result = []call.Result{
			status(503),
			{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureConnectionLost},
			{Evidence: call.EvidenceNotSent, Failure: call.FailureConnect},
			{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureAttemptTimeout, TimedOut: true},
		}[st.rnd.IntN(4)]
	}
	st.mu.Unlock()
	defer func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.live--
		if a.Kind == call.KindProbe {
			st.probes--
		}
	}()
	if gate != nil {
		<-gate
		return result
	}
	if remaining := time.Until(a.Deadline); result.TimedOut || takes >= remaining {
		time.Sleep(remaining)
		return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureAttemptTimeout, TimedOut: true}
	}
	time.Sleep(takes)
	return result
}

func (st *story) since(at time.Time) time.Duration { return at.Sub(st.start) }

func (st *story) landed(a *call.Attempt) time.Duration { return st.since(a.Start) + a.Duration }

func failingAt(at time.Duration) float64 {
	for _, w := range weather {
		if at -= w.lasts; at < 0 {
			return w.failing
		}
	}
	return 0
}

// everyCallEnded: in its deadline, with an outcome that fits its protections, and after attempts that are all listed.
func (st *story) everyCallEnded(t *testing.T) {
	t.Helper()
	want := map[call.Outcome]call.Reason{
		call.OutcomeSuccess:          call.ReasonSuccess,
		call.OutcomeRetriesExhausted: call.ReasonAttemptsExhausted,
		call.OutcomeDeadlineExceeded: call.ReasonDeadline,
	}
	if st.window != &generous {
		want[call.OutcomeBudgetExhausted] = call.ReasonBudgetExhausted
	}
	if st.breaks() {
		want[call.OutcomeBreakerOpen] = call.ReasonBreakerOpen
	}
	listed, met := 0, map[call.Outcome]bool{}
	for _, c := range st.calls {
		f := &c.final
		listed += len(f.Attempts)
		met[f.Outcome] = true
		if reason, ok := want[f.Outcome]; !ok || f.Reason != reason {
			t.Fatalf("%s: %s, %s", c.at, f.Outcome, f.Reason)
		}
		work := c.patience - *st.policy.Deadline.CallerMargin
		if f.Elapsed > work || c.over-c.at != f.Elapsed {
			t.Fatalf("%s: over after %s, told %s, allowed %s", c.at, c.over-c.at, f.Elapsed, work)
		}
		for _, a := range f.Attempts {
			if a.Offset >= work || a.Offset+a.Duration > work || a.Duration > st.policy.Attempt.Timeout {
				t.Fatalf("%s: an attempt after %s ran %s", c.at, a.Offset, a.Duration)
			}
		}
		if ok := f.Outcome == call.OutcomeSuccess; ok != (f.Response != nil && f.Response.Status == 200) {
			t.Fatalf("%s: %s with the answer %v", c.at, f.Outcome, f.Response)
		}
	}
	for _, o := range []call.Outcome{call.OutcomeSuccess, call.OutcomeBudgetExhausted, call.OutcomeBreakerOpen} {
		if want[o] != 0 && !met[o] && (o != call.OutcomeBudgetExhausted || !st.breaks()) {
			t.Errorf("no call ended in %s", o)
		}
	}
	if listed != st.sends {
		t.Errorf("%d attempts are listed, the upstream saw %d", listed, st.sends)
	}
	for _, fault := range st.faults {
		t.Error(fault)
	}
}

// recovered: when the upstream is well, all calls succeed at the first attempt again within the bound, and nothing collapses once
// more. It returns how long it took.
func (st *story) recovered(t *testing.T, d *doorman) time.Duration {
	t.Helper()
	bound := st.recovery(st.policy)
	back := time.Duration(0)
	for _, c := range st.calls {
		if c.at < mended || c.final.Outcome == call.OutcomeSuccess && len(c.final.Attempts) == 1 {
			continue
		}
		back = c.at - mended
		if back > bound {
			t.Fatalf("%s: %s, %d attempts, %s after the upstream was well, bound %s", c.at, c.final.Outcome, len(c.final.Attempts), back, bound)
		}
	}
	if st.breaks() && len(d.trips) == 0 {
		t.Error("the breaker never opened")
	}
	for _, at := range d.trips {
		if at > mended+st.policy.Attempt.Timeout {
			t.Errorf("%s: opened again", at)
		}
	}
	if st.ramp > 0 && d.closed >= mended {
		st.rises(t, d.closed)
	}
	return back
}

// rises: after closing, admissions rise in a line from a tenth to all. Each half of the ramp is held to six standard deviations.
func (st *story) rises(t *testing.T, closed time.Duration) {
	t.Helper()
	const parts = 2
	var asked, let [parts]float64
	for _, c := range st.calls {
		if part := float64(c.at-closed) / float64(st.ramp) * parts; part > 0 && part < parts {
			asked[int(part)]++
			if c.final.Outcome == call.OutcomeSuccess {
				let[int(part)]++
			}
		}
	}
	for i := range asked {
		want := 0.1 + 0.9*(float64(i)+0.5)/parts
		if got := let[i] / asked[i]; math.Abs(got-want) > 6*math.Sqrt(want*(1-want)/asked[i]) {
			t.Errorf("part %d of the ramp: %.2f of %v calls admitted, want %.2f", i, got, asked[i], want)
		}
	}
}

// servesAll: nothing was leaked. As many calls as the limit allows run side by side, one more does not, and they are ordinary ones.
func (st *story) servesAll(t *testing.T) {
	t.Helper()
	st.gate = make(chan struct{})
	finals := make([]call.Final, st.policy.Concurrency.MaxInFlight)
	var all sync.WaitGroup
	for i := range finals {
		all.Go(func() {
			finals[i] = st.shop.call(t.Context(), fmt.Sprint("caller", i), "api.example.com", patience)
		})
	}
	synctest.Wait()
	if st.live != len(finals) {
		t.Errorf("%d calls run side by side, want %d", st.live, len(finals))
	}
	ended(t, st.shop.call(t.Context(), "one more", "api.example.com", patience), call.OutcomeOverloaded, call.ReasonConcurrencyLimit, 0)
	close(st.gate)
	all.Wait()
	for _, f := range finals {
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 1)
		if f.Attempts[0].Kind != call.KindPrimary {
			t.Fatalf("kind %s after the storm", f.Attempts[0].Kind)
		}
	}
}

// figures is the storm's line of the table.
func (st *story) figures(b *spending, d *doorman, back time.Duration) string {
	var perFirst, perCall, success [len(weather)]float64
	from := time.Duration(0)
	for i, w := range weather {
		calls, good := 0.0, 0.0
		for _, c := range st.calls {
			if c.at > from && c.at <= from+w.lasts {
				calls++
				if c.final.Outcome == call.OutcomeSuccess {
					good++
				}
			}
		}
		firsts, retries := b.firsts.within(from, from+w.lasts), b.sent.within(from, from+w.lasts)
		from += w.lasts
		perFirst[i], perCall[i], success[i] = 1+retries/firsts, (firsts+retries)/calls, 100*good/calls
	}
	worst := 0.0
	for _, at := range b.sent {
		worst = max(worst, b.sent.within(at-period, at))
	}
	return fmt.Sprintf("%-21s | %5.3f  %5.3f | %5.3f  %5.3f | %5.1f %5.1f %5.1f | %5.0f | %5d %6d | %5.2fs %5.2fs\n", st.name,
		perFirst[1], perFirst[2], perCall[1], perCall[2], success[1], success[2], success[3], worst,
		len(d.trips), len(d.tests), back.Seconds(), st.recovery(st.policy).Seconds())
}
