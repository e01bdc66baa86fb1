package budget_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sallyport/sallyport/budget"
)

// load is a model of callers: first attempts at even distances, each followed by up to attempts−1 retries while the budget allows;
// every attempt fails with probability p, independently. Retries follow at once.
type load struct {
	p        float64
	attempts int
	firsts   int
	every    time.Duration
}

// run gives attempts per first attempt, and the part of the calls that succeeded.
func (l load) run(b *budget.Budget, seed uint64) (amplification, success float64) {
	rnd := rand.New(rand.NewPCG(seed, 4))
	sent, succeeded := 0, 0
	for i := range l.firsts {
		now := after(time.Duration(i) * l.every)
		b.Deposit(now, "a")
		for n := 1; ; n++ {
			sent++
			if rnd.Float64() >= l.p {
				b.Succeeded(now)
				succeeded++
				break
			}
			b.Failed(now)
			if n == l.attempts {
				break
			}
			token, err := b.Withdraw(now, "a")
			if err != nil {
				break
			}
			token.Spend(now)
		}
	}
	return float64(sent) / float64(l.firsts), float64(succeeded) / float64(l.firsts)
}

func withinPart(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s: %.4f, want %.4f ±%v %%", what, got, want, tolerance*100)
	}
}

// unbounded is E1 of the model: amplification by p and N with no budget.
func unbounded(p float64, n int) float64 {
	if p == 1 {
		return float64(n)
	}
	return (1 - math.Pow(p, float64(n))) / (1 - p)
}

// TestAmplificationOfAWindow: E2, A = min(E1, 1 + ratio), and S = (1−p)·A (E4).
func TestAmplificationOfAWindow(t *testing.T) {
	for _, ratio := range []float64{0.1, 0.2, 0.5} {
		for _, p := range []float64{0.01, 0.05, 0.3, 0.7, 1} {
			t.Run(fmt.Sprintf("ratio %v, failures %v", ratio, p), func(t *testing.T) {
				l := load{p: p, attempts: 3, firsts: 20_000, every: 5 * time.Millisecond}
				a, s := l.run(newBudget(t, windowOf(ratio, 10*time.Second, 0, 0.5)), 1)
				want := min(unbounded(p, 3), 1+ratio)
				withinPart(t, "attempts per first attempt", a, want, 0.02)
				if a > 1+ratio {
					t.Errorf("%v attempts per first attempt, over the bound", a)
				}
				if p < 1 {
					withinPart(t, "successes", s, (1-p)*a, 0.02)
				}
			})
		}
	}
}

// TestFloorOfAWindowAddsItsRate: E7 for one broker, A = 1 + ratio + floor/λ.
func TestFloorOfAWindowAddsItsRate(t *testing.T) {
	l := load{p: 1, attempts: 3, firsts: 20_000, every: 5 * time.Millisecond} // 200/s
	a, _ := l.run(newBudget(t, windowOf(0.1, 10*time.Second, 10, 0.5)), 1)
	withinPart(t, "attempts per first attempt", a, 1.15, 0.02)
}

// TestAmplificationOfTokensPerRetry: E3, A = 1/(1 − b(1−p)) where the budget is what limits, and 1 in a full outage.
func TestAmplificationOfTokensPerRetry(t *testing.T) {
	for _, b := range []float64{0.1, 0.2} {
		for _, p := range []float64{0.05, 0.3, 0.5, 0.9, 1} {
			t.Run(fmt.Sprintf("token ratio %v, failures %v", b, p), func(t *testing.T) {
				l := load{p: p, attempts: 3, firsts: 40_000, every: 5 * time.Millisecond}
				a, _ := l.run(newBudget(t, bucketOf(10, b, budget.RulePerRetry)), 2)
				withinPart(t, "attempts per first attempt", a, min(unbounded(p, 3), 1/(1-b*(1-p))), 0.02)
			})
		}
	}
}

// TestHalfRuleStopsAfterHalfTheTokensInFailures: E5, and retries last only while p < r/(1+r).
func TestHalfRuleStopsAfterHalfTheTokensInFailures(t *testing.T) {
	b := newBudget(t, bucketOf(10, 0.1, budget.RuleHalf))
	retries := 0
	for ; retries < 100; retries++ {
		b.Failed(epoch)
		if _, err := b.Withdraw(epoch, "a"); err != nil {
			break
		}
	}
	if retries != 4 {
		t.Errorf("%d retries before the 5th failure in a row, want 4", retries)
	}

	const ratio = 0.1
	limit := ratio / (1 + ratio) // 9.1 %
	for _, row := range []struct {
		p         float64
		sustained bool
	}{{limit * 0.7, true}, {limit * 1.5, false}} {
		// Of the attempts that fail, how many had their retry refused, long after the start?
		b := newBudget(t, bucketOf(10, ratio, budget.RuleHalf))
		rnd := rand.New(rand.NewPCG(3, 5))
		failures, refused := 0, 0
		for i := range 200_000 {
			if rnd.Float64() >= row.p {
				b.Succeeded(epoch)
				continue
			}
			b.Failed(epoch)
			if _, err := b.Withdraw(epoch, "a"); i > 1000 {
				failures++
				if err != nil {
					refused++
				}
			}
		}
		if part := float64(refused) / float64(failures); row.sustained != (part < 0.1) || row.sustained == (part > 0.8) {
			t.Errorf("failures %.3f (limit %.3f): %.3f of the retries refused", row.p, limit, part)
		}
	}
}

// TestOutageAfterHealthSpendsNoMoreThanTheWindow: the failing cohort lives on the first attempts of the last period, not on a hoard.
func TestOutageAfterHealthSpendsNoMoreThanTheWindow(t *testing.T) {
	b := newBudget(t, windowOf(0.2, 10*time.Second, 0, 0.5))
	now := time.Duration(0)
	for range 3600 * 10 { // an hour at 10/s without a failure
		now += 100 * time.Millisecond
		b.Deposit(after(now), "a")
	}
	if got := granted(b, after(now), "a", 1000); got != 20 {
		t.Errorf("%d granted, want 0.2 of the 100 of the last 10s", got)
	}
}
