package engine_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// The closed forms of the amplification model, E1 to E12: what retries cost an upstream, and what they give the callers.

// formsPolicy has nothing but the budget in the way of retries, and they follow at once.
func formsPolicy(t *testing.T, b policy.Budget, attempts uint32) *policy.Effective {
	t.Helper()
	p := worked(t)
	p.Retry.MaxAttempts = attempts
	p.Retry.Backoff = backoff.Config{Multiplier: 1, Jitter: backoff.JitterNone}
	p.Breaker.ConsecutiveFailures, p.Breaker.MinRequests = 0, 1_000_000
	p.Concurrency = policy.Concurrency{}
	p.Budget = b
	p.Budget.CallerMaxShare = 1
	return p
}

func windowBudget(ratio, perSecond float64) policy.Budget {
	return policy.Budget{Window: &policy.BudgetWindow{Ratio: ratio, Period: 10 * time.Second, MinPerSecond: perSecond}}
}

func bucketBudget(tokens, ratio float64, rule policy.TokenRule) policy.Budget {
	return policy.Budget{TokenBucket: &policy.TokenBucket{MaxTokens: tokens, TokenRatio: ratio, Rule: rule}}
}

// bets are calls made one after another, evenly spaced, whose attempts fail independently.
type bets struct {
	calls, attempts, failed, succeeded float64
	asked, refused                     float64 // for a retry
}

// bet makes so many calls; the first of them, up to skip, are not counted.
func bet(t *testing.T, p *policy.Effective, failing float64, skip, calls int, every time.Duration) bets {
	t.Helper()
	var b bets
	rnd := rand.New(rand.NewPCG(5, 13))
	s := newShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
		b.attempts++
		if rnd.Float64() < failing {
			b.failed++
			return status(503)
		}
		return status(200)
	}))
	for i := range skip + calls {
		if i == skip {
			b = bets{calls: float64(calls)}
		}
		f := s.call(t.Context(), "one", "api.example.com", time.Minute)
		b.asked += float64(len(f.Attempts) - 1)
		switch f.Outcome {
		case call.OutcomeSuccess:
			b.succeeded++
		case call.OutcomeBudgetExhausted:
			b.asked++
			b.refused++
		}
		time.Sleep(every)
	}
	return b
}

// unbounded is E1, attempts per call with no budget.
func unbounded(p float64, n uint32) float64 {
	if p == 1 {
		return float64(n)
	}
	return (1 - math.Pow(p, float64(n))) / (1 - p)
}

// TestClosedFormsOfAmplification: each form is taken at the part of the attempts that did fail. That part is drawn, and would otherwise
// be most of the difference.
func TestClosedFormsOfAmplification(t *testing.T) {
	const calls, every, perSecond = 2000, 20 * time.Millisecond, 50
	const burst = 10
	perRequest := func(b float64) func(float64) float64 {
		return func(p float64) float64 { return min(unbounded(p, 3), 1+b) }
	}
	perSuccess := func(b float64) func(float64) float64 {
		return func(p float64) float64 { return min(unbounded(p, 3), 1/(1-b*(1-p))+burst/float64(calls)) }
	}
	var table strings.Builder
	table.WriteString("\nform                 p | attempts/call   form     off | success %   by p\n")
	for _, row := range []struct {
		name      string
		budget    policy.Budget
		attempts  uint32
		failing   []float64
		form      func(p float64) float64 // attempts per call
		tolerance float64
	}{
		{"E1 three tries", windowBudget(10, 1000), 3, []float64{0.05, 0.3, 0.7, 1}, func(p float64) float64 { return unbounded(p, 3) }, 0.01},
		{"E1 five tries", windowBudget(10, 1000), 5, []float64{0.5, 1}, func(p float64) float64 { return unbounded(p, 5) }, 0.01},
		{"E2 window 0.1", windowBudget(0.1, 0), 3, []float64{0.05, 0.3, 0.7, 1}, perRequest(0.1), 0.02},
		{"E2 window 0.2", windowBudget(0.2, 0), 3, []float64{0.3, 1}, perRequest(0.2), 0.02},
		{"E3 bucket 0.1", bucketBudget(burst, 0.1, policy.TokenRulePerRetry), 3, []float64{0.05, 0.3, 0.7, 1}, perSuccess(0.1), 0.02},
		{"E3 bucket 0.2", bucketBudget(burst, 0.2, policy.TokenRulePerRetry), 3, []float64{0.3, 0.7, 1}, perSuccess(0.2), 0.02},
		{"E7 floor 2/s", windowBudget(0.1, 2), 3, []float64{1}, func(float64) float64 { return 1 + 0.1 + 2.0/perSecond }, 0.02},
	} {
		for _, p := range row.failing {
			t.Run(fmt.Sprintf("%s, %v fail", row.name, p), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := bet(t, formsPolicy(t, row.budget, row.attempts), p, 0, calls, every)
					failing := b.failed / b.attempts
					a, want := b.attempts/b.calls, row.form(failing)
					if math.Abs(a/want-1) > row.tolerance {
						t.Errorf("%.4f attempts per call at %.4f failing, want %.4f ±%v", a, failing, want, row.tolerance)
					}
					// E4, S = (1−p)·A: an attempt that succeeds ends its call, and nothing else does well. That is exact.
					if b.succeeded != b.attempts-b.failed {
						t.Errorf("%v calls succeeded, and %v attempts", b.succeeded, b.attempts-b.failed)
					}
					fmt.Fprintf(&table, "%-14s %7.4f |       %7.4f %7.4f %+.2f%% |     %5.1f  %5.1f\n", row.name, failing,
						a, want, 100*(a/want-1), 100*b.succeeded/b.calls, 100*(1-p)*row.form(p))
				})
			})
		}
	}
	t.Log(table.String())
}

// TestClosedFormOfTheHalfRule, E5: retries stop at the failure in a row that leaves half of the tokens, and last only while fewer than
// r/(1+r) of the attempts fail.
func TestClosedFormOfTheHalfRule(t *testing.T) {
	var table strings.Builder
	for _, tokens := range []float64{4, 5, 10, 40} {
		t.Run(fmt.Sprint(tokens, " tokens"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop(t, formsPolicy(t, bucketBudget(tokens, 0.1, policy.TokenRuleHalf), 1000),
					senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result { return status(503) }))
				f := s.call(t.Context(), "one", "api.example.com", time.Minute)
				ended(t, f, call.OutcomeBudgetExhausted, call.ReasonBudgetExhausted, int(math.Ceil(tokens/2)))
				ended(t, s.call(t.Context(), "one", "api.example.com", time.Minute), call.OutcomeBudgetExhausted, call.ReasonBudgetExhausted, 1)
				fmt.Fprintf(&table, "\nE5 %3v tokens: stopped at failure %d in a row", tokens, len(f.Attempts))
			})
		})
	}
	for _, row := range []struct {
		tokens, ratio float64
		part          float64 // of the limit fails
		refused       float64 // part of the retries
	}{
		{40, 0.1, 0.7, 0},
		{40, 0.1, 1.5, 1},
		{40, 0.5, 0.7, 0},
		{40, 0.5, 1.5, 1},
	} {
		limit := row.ratio / (1 + row.ratio)
		t.Run(fmt.Sprintf("%v tokens, ratio %v, %v of the limit", row.tokens, row.ratio, row.part), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bet(t, formsPolicy(t, bucketBudget(row.tokens, row.ratio, policy.TokenRuleHalf), 3), row.part*limit, 800, 1000, 0)
				refused := b.refused / b.asked
				if refused != row.refused {
					t.Errorf("%.3f of %v retries refused, want %v", refused, b.asked, row.refused)
				}
				fmt.Fprintf(&table, "\nE5 %3v tokens, ratio %v: %4.1f %% fail, limit %4.1f %%: %5.1f %% of the retries refused",
					row.tokens, row.ratio, 100*b.failed/b.attempts, 100*limit, 100*refused)
			})
		})
	}
	t.Log(table.String())
}

// line is an upstream of finite speed that serves in order and does not know whose caller has given up. From stall until goesOn it
// stands still.
type line struct {
	start         time.Time
	serves        time.Duration // each
	holds         int           // more are turned away at once
	stall, goesOn time.Duration

	mu   sync.Mutex    // protects the field below
	done time.Duration // when the last in line will have been served, the stall left out
}

func (l *line) send(_ context.Context, _ *call.Call, a call.Attempt) call.Result {
	takes, full := l.join(a.Start.Sub(l.start))
	if full {
		return status(503)
	}
	if remaining := time.Until(a.Deadline); takes > remaining {
		time.Sleep(remaining)
		return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureAttemptTimeout, TimedOut: true}
	}
	time.Sleep(takes)
	return status(200)
}

// join gives the time until it is served.
func (l *line) join(at time.Duration) (takes time.Duration, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	worked, stalled := at, l.goesOn-l.stall
	if at > l.stall {
		worked = max(l.stall, at-stalled)
	}
	if l.done-worked >= time.Duration(l.holds)*l.serves {
		return 0, true
	}
	l.done = max(l.done, worked) + l.serves
	if l.done > l.stall {
		return l.done + stalled - at, false
	}
	return l.done - at, false
}

// TestClosedFormOfRecovery: an upstream stands still for a while, and comes back to a line of work whose callers have given up. E11: it
// never catches up iff retries make more work than it can do, N·λ ≥ μ, and the line is longer than their patience, Q/μ > T. E12:
// else it takes (B − μT)/(μ − N·λ), B being the line when it goes on, here a full one. With a budget N is 1 + ratio. A breaker keeps the
// line short, so that only its own settings count.
func TestClosedFormOfRecovery(t *testing.T) {
	const (
		lambda, mu, full = 25, 50, 250
		patience         = 1 // second
		starts, goesOn   = 10, 20
		lasts            = 50
	)
	var table strings.Builder
	table.WriteString("\nE11, E12             | seconds  form\n")
	for _, row := range []struct {
		name     string
		attempts uint32
		budget   policy.Budget
		breaker  bool
		n        float64 // attempts per call when all fail
	}{
		{"one try", 1, windowBudget(10, 1000), false, 1},
		{"window 0.1", 3, windowBudget(0.1, 0), false, 1.1},
		{"window 0.2", 3, windowBudget(0.2, 0), false, 1.2},
		{"no budget", 3, windowBudget(10, 1000), false, 3},
		{"no budget, breaker", 3, windowBudget(10, 1000), true, 3},
		{"window 0.2, breaker", 3, windowBudget(0.2, 0), true, 1.2},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := formsPolicy(t, row.budget, row.attempts)
				p.Attempt.Timeout = patience * time.Second
				p.Retry.Backoff = backoff.Config{Base: 50 * time.Millisecond, Multiplier: 2, Cap: time.Second, Jitter: backoff.JitterFull}
				want, never := (full-mu*patience)/(mu-row.n*lambda), row.n*lambda >= mu
				if row.breaker {
					p.Breaker.ConsecutiveFailures, p.Breaker.MinRequests, p.Breaker.OpenCap = 5, 20, 4*time.Second
					// At most: the last probe of the stall times out, the longest cooldown, the next probe.
					want, never = patience+p.Breaker.OpenCap.Seconds()*(1+p.Breaker.OpenJitter)+patience, false
				}
				line := &line{start: time.Now(), serves: time.Second / mu, holds: full, stall: starts * time.Second, goesOn: goesOn * time.Second}
				good := goodput(t, newShop(t, p, senderFunc(line.send)), lambda, lasts)
				took := recovered(good[goesOn:])
				switch off := math.Abs(float64(took) - want); {
				case min(slices.Min(good[:starts]), 1) < 1:
					t.Errorf("%v of the calls succeed before the trouble", good[:starts])
				case never && (took >= 0 || slices.Max(good[starts:]) > 0):
					t.Errorf("it recovers after %d s, want never: %.2f", took, good)
				case !never && took < 0, row.breaker && float64(took) > want, !never && !row.breaker && off > max(2, 0.2*want):
					t.Errorf("it takes %d s, want %.1f: %.2f", took, want, good)
				}
				form := fmt.Sprintf("%.1f", want)
				switch {
				case never:
					form = "never"
				case row.breaker:
					form = "at most " + form
				}
				fmt.Fprintf(&table, "%-20s |  %5d   %s\n", row.name, took, form)
			})
		})
	}
	t.Log(table.String())
}

// goodput makes perSecond calls a second, each by a caller of its own, and gives the part of each second's that succeeded.
func goodput(t *testing.T, s *shop, perSecond, seconds int) []float64 {
	t.Helper()
	ok := make([]bool, perSecond*seconds)
	var all sync.WaitGroup
	for i := range ok {
		all.Go(func() {
			ok[i] = s.call(t.Context(), fmt.Sprint("caller", i), "api.example.com", 10*time.Second).Outcome == call.OutcomeSuccess
		})
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	all.Wait()
	good := make([]float64, seconds)
	for second := range good {
		n := 0
		for _, ok := range ok[second*perSecond:][:perSecond] {
			if ok {
				n++
			}
		}
		good[second] = float64(n) / float64(perSecond)
	}
	return good
}

// recovered is the first second that begins five with nine tenths good each, -1 for none.
func recovered(good []float64) int {
	for second := range len(good) - 4 {
		if slices.Min(good[second:][:5]) >= 0.9 {
			return second
		}
	}
	return -1
}
