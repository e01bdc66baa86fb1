package breaker_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

func TestSettledTwiceCountsOnce(t *testing.T) {
	b := breaker.New(plain())
	ticket := admit(t, b, zero, patient("a"))
	for range 5 {
		ticket.Settle(zero, lost, 0)
	}
	if n := b.Snapshot(zero).Consecutive; n != 1 {
		t.Errorf("%d failures", n)
	}
	var none breaker.Ticket
	if _, moved := none.Settle(zero, lost, 0); moved || none.Probe() {
		t.Error("the zero ticket did something")
	}
}

func TestLateResultOfAnOlderGenerationIsDropped(t *testing.T) {
	b := breaker.New(plain())
	old := admit(t, b, zero, patient("a"))
	b.Reset(zero)
	young := admit(t, b, zero, patient("a"))
	old.Settle(zero, lost, 0)
	if n := b.Snapshot(zero).Consecutive; n != 0 {
		t.Errorf("%d failures by the old one", n)
	}
	young.Settle(zero, lost, 0)
	if n := b.Snapshot(zero).Consecutive; n != 1 {
		t.Errorf("%d failures, the old one took the young one's place", n)
	}
}

func TestExcusedTimeoutTripsNoRuleButTheBlackHole(t *testing.T) {
	for name, c := range map[string]breaker.Config{"row": plain(), "rate": rates()} {
		t.Run(name, func(t *testing.T) {
			b := breaker.New(c)
			attempt(t, b, zero, patient("b"), ok)
			for range 20 {
				attempt(t, b, ms(1000), patient("a"), status503)
			}
			// The other caller has left the window, so another failure would do; an excused time-out is none.
			if cause := attempt(t, b, ms(10_000), cut("a", time.Millisecond), timeout); cause != 0 {
				t.Errorf("opened by %q", cause)
			}
			if cause := attempt(t, b, ms(10_000), patient("a"), status503); cause == 0 {
				t.Error("a real one does not open it either")
			}
		})
	}
}

func TestOnlyAClosedBreakerBecomesSuspicious(t *testing.T) {
	b := breaker.New(plain())
	b.Hint(zero)
	if !b.Snapshot(zero).Suspicious {
		t.Error("not suspicious")
	}
	for range 3 {
		attempt(t, b, zero, patient("a"), lost)
		if b.State(zero) == breaker.Open {
			break
		}
	}
	b.Hint(zero)
	if s := b.Snapshot(zero); s.State != breaker.Open || s.Suspicious {
		t.Errorf("%+v", s)
	}
}

func TestImpatienceIsExcused(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers int
		p95     time.Duration
		floor   time.Duration
		a       breaker.Attempt
		r       breaker.Result
		counts  bool
	}{
		{"the policy's own time", 0, 0, time.Second, breaker.Attempt{Timeout: time.Millisecond}, timeout, true},
		{"cut below the floor", 0, 0, time.Second, cut("", time.Second-1), timeout, false},
		{"cut to the floor", 0, 0, time.Second, cut("", time.Second), timeout, true},
		{"cut below the floor, but lost", 0, 0, time.Second, cut("", time.Millisecond), lost, true},
		{"cut below the floor, but 503", 0, 0, time.Second, cut("", time.Millisecond), status503, true},
		{"no floor", 0, 0, 0, cut("", time.Millisecond), timeout, true},
		{"below twice p95 of 19 answers", 19, 3 * time.Second, time.Second, cut("", 5*time.Second), timeout, true},
		{"below twice p95 of 20 answers", 20, 3 * time.Second, time.Second, cut("", 6*time.Second-1), timeout, false},
		{"twice p95", 20, 3 * time.Second, time.Second, cut("", 6*time.Second), timeout, true},
		{"above twice p95, below the floor", 20, 10 * time.Millisecond, time.Second, cut("", 500*time.Millisecond), timeout, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := plain()
			c.TimeoutFloor = row.floor
			b := breaker.New(c)
			for range row.answers {
				attempt(t, b, zero, patient("a"), breaker.Result{Kind: breaker.OK, Latency: row.p95})
			}
			attempt(t, b, zero, row.a, row.r)
			s := b.Snapshot(zero)
			if (s.Consecutive == 1) != row.counts || (s.Failed == 1) != row.counts || (s.Excused == 1) == row.counts {
				t.Errorf("%+v, counts: %v", s, row.counts)
			}
		})
	}
}

func TestPercentileIsTheNinetyFifth(t *testing.T) {
	b := breaker.New(plain())
	for i := range 20 {
		attempt(t, b, zero, patient("a"), breaker.Result{Kind: breaker.OK, Latency: time.Duration(20-i) * time.Second})
	}
	if p95 := b.Snapshot(zero).P95; p95 != 19*time.Second {
		t.Errorf("p95 of 1s to 20s is %v", p95)
	}
}

func TestBaselineFreezesWhileAttemptsFail(t *testing.T) {
	c := rates()
	c.MinRequests = 1000
	b := breaker.New(c)
	learn := func(now time.Time, latency time.Duration) {
		attempt(t, b, now, patient("a"), breaker.Result{Kind: breaker.OK, Latency: latency})
	}
	for i := range 32 {
		learn(ms(i), 100*time.Millisecond)
	}
	// Every second attempt fails: what still comes back is slow, and teaches nothing.
	for i := range 100 {
		now := ms(20_000 + 400*i)
		attempt(t, b, now, patient("a"), timeout)
		learn(now, 5*time.Second)
		learn(now, 5*time.Second)
	}
	if p95 := b.Snapshot(ms(60_000)).P95; p95 != 100*time.Millisecond {
		t.Errorf("p95 moved to %v while attempts failed", p95)
	}
	// It is well again, only slower: that is the new baseline.
	for i := range 40 {
		learn(ms(80_000+400*i), 5*time.Second)
	}
	if p95 := b.Snapshot(ms(96_000)).P95; p95 != 5*time.Second {
		t.Errorf("p95 stayed at %v", p95)
	}
}

func TestBusyOriginsBaselineSpansTheWindow(t *testing.T) {
	b := breaker.New(plain())
	for i := range 32 {
		attempt(t, b, ms(i), patient("a"), ok)
	}
	// A thousand slow answers in a tenth of a second are one moment, not the origin.
	for range 1000 {
		attempt(t, b, ms(100), patient("a"), breaker.Result{Kind: breaker.OK, Latency: time.Minute})
	}
	if p95 := b.Snapshot(ms(100)).P95; p95 > time.Millisecond {
		t.Errorf("p95 is %v", p95)
	}
}

func TestBlackHoleOpensHoweverImpatientTheCallers(t *testing.T) {
	b := breaker.New(rates())
	hasty := cut("a", time.Millisecond)
	for i := range 9 {
		attempt(t, b, ms(i), hasty, timeout)
		attempt(t, b, ms(i), hasty, ignored) // cancelled ones are left out
	}
	if cause := attempt(t, b, ms(10), hasty, timeout); cause != breaker.CauseNoAnswer {
		t.Errorf("cause %q", cause)
	}
}

func TestOneAnswerMakesItNoBlackHole(t *testing.T) {
	for name, r := range map[string]breaker.Result{"200": ok, "429": status429, "503": status503} {
		t.Run(name, func(t *testing.T) {
			b := breaker.New(rates())
			attempt(t, b, zero, patient("a"), r)
			for i := range 100 {
				if cause := attempt(t, b, ms(i), cut("a", time.Millisecond), timeout); cause != 0 {
					t.Fatalf("opened by %q", cause)
				}
			}
			wantState(t, b, ms(9999), breaker.Closed)
			// Once the answer has left the window there is none.
			for i := range 9 {
				if cause := attempt(t, b, ms(9999), cut("a", time.Millisecond), timeout); cause != 0 {
					t.Fatalf("opened by %q at %d", cause, i)
				}
			}
			for range 10 {
				if attempt(t, b, ms(10_000), cut("a", time.Millisecond), timeout) == breaker.CauseNoAnswer {
					return
				}
			}
			t.Error("never opened")
		})
	}
}

func TestThrottlingCountsInTheRateAlone(t *testing.T) {
	b := breaker.New(plain())
	attempt(t, b, zero, patient("a"), lost)
	for range 10 {
		attempt(t, b, zero, patient("a"), status429)
	}
	if s := b.Snapshot(zero); s.Consecutive != 1 || s.Failed != 11 {
		t.Errorf("%+v", s)
	}
	b = breaker.New(rates())
	for range 9 {
		attempt(t, b, zero, patient("a"), status429)
	}
	if cause := attempt(t, b, zero, patient("a"), status429); cause != breaker.CauseFailureRate {
		t.Errorf("cause %q", cause)
	}
}

func TestRateOpensAtExactlyItsShare(t *testing.T) {
	c := rates()
	c.FailureRate, c.MinRequests = 0.07, 100 // in floating point 0.07·100 is more than 7
	b := breaker.New(c)
	for range 93 {
		attempt(t, b, zero, patient("a"), ok)
	}
	for range 6 {
		attempt(t, b, zero, patient("a"), status503)
	}
	wantState(t, b, zero, breaker.Closed)
	if cause := attempt(t, b, zero, patient("a"), status503); cause != breaker.CauseFailureRate {
		t.Errorf("cause %q at 7 of 100", cause)
	}
}

func TestAResultLeavesTheWindowExactlyOnTime(t *testing.T) {
	b := breaker.New(rates())
	attempt(t, b, ms(5), patient("a"), status503)
	if n := b.Snapshot(zero.Add(5*time.Millisecond + 10*time.Second - 1)).Failed; n != 1 {
		t.Errorf("%d a nanosecond before", n)
	}
	if n := b.Snapshot(ms(10_005)).Failed; n != 0 {
		t.Errorf("%d when its time is over", n)
	}
}

func TestSlowCallsOpen(t *testing.T) {
	c := rates()
	c.SlowCallThreshold = 100 * time.Millisecond
	slow := breaker.Result{Kind: breaker.OK, Latency: 101 * time.Millisecond}
	edge := breaker.Result{Kind: breaker.OK, Latency: 100 * time.Millisecond}
	b := breaker.New(c)
	attempt(t, b, zero, patient("a"), edge)
	attempt(t, b, zero, patient("a"), edge)
	for range 7 {
		attempt(t, b, zero, patient("a"), slow)
	}
	if cause := attempt(t, b, zero, patient("a"), slow); cause != breaker.CauseSlowCalls {
		t.Errorf("cause %q at 8 of 10", cause)
	}
}

func TestHintMakesSuspiciousAndOpensNothing(t *testing.T) {
	c := plain()
	c.ConsecutiveFailures = 5
	for name, row := range map[string]struct {
		success bool
		later   time.Duration
		need    int
	}{"suspicious": {false, 0, 3}, "a success here counts more": {true, 0, 5}, "old news": {false, 10 * time.Second, 5}} {
		t.Run(name, func(t *testing.T) {
			b := breaker.New(c)
			b.Hint(zero)
			wantState(t, b, zero, breaker.Closed)
			if row.success {
				attempt(t, b, zero, patient("a"), ok)
			}
			now := zero.Add(row.later)
			for i := range row.need {
				if cause := attempt(t, b, now, patient("a"), lost); (cause != 0) != (i == row.need-1) {
					t.Fatalf("failure %d: %q", i+1, cause)
				}
			}
		})
	}
}

func TestHintDoesNotOverflowWhatItHalves(t *testing.T) {
	c := plain()
	c.ConsecutiveFailures, c.MinRequests = math.MaxUint32, math.MaxUint32
	b := breaker.New(c)
	b.Hint(zero)
	if cause := attempt(t, b, zero, patient("a"), lost); cause != 0 {
		t.Errorf("opened by %q", cause)
	}
}

func TestForcedModesHoldAgainstEverything(t *testing.T) {
	b := breaker.New(plain())
	b.Force(breaker.ForcedOpen, zero)
	refused(t, b, zero, patient("a"), breaker.RefusedForced, 0)
	b.Reset(zero)
	refused(t, b, zero.Add(time.Hour), patient("a"), breaker.RefusedForced, 0)
	b.Force(breaker.ForcedClosed, zero)
	for range 100 {
		if cause := attempt(t, b, zero, patient("a"), lost); cause != 0 {
			t.Fatalf("opened by %q although forced closed", cause)
		}
	}
	if s := b.Snapshot(zero); s.Failed != 100 || s.Mode != breaker.ForcedClosed {
		t.Errorf("%+v", s)
	}
	old := admit(t, b, zero, patient("a"))
	if moved := b.Force(breaker.Auto, zero); moved.To != breaker.Closed || moved.Cause != breaker.CauseForced {
		t.Errorf("back to auto: %+v", moved)
	}
	old.Settle(zero, lost, 0)
	if s := b.Snapshot(zero); s.Consecutive != 0 || s.Mode != breaker.Auto {
		t.Errorf("not fresh: %+v", s)
	}
	before := b.Snapshot(zero)
	if moved := b.Force(breaker.Auto, zero); moved.From != moved.To || b.Snapshot(zero) != before {
		t.Errorf("the same mode again moved %+v", moved)
	}
}

func TestResetForgetsTheBaseline(t *testing.T) {
	b := breaker.New(plain())
	for range 20 {
		attempt(t, b, zero, patient("a"), ok)
	}
	if b.Snapshot(zero).P95 == 0 {
		t.Fatal("nothing learned")
	}
	b.Reset(zero)
	if p95 := b.Snapshot(zero).P95; p95 != 0 {
		t.Errorf("p95 %v", p95)
	}
}

func TestTimeNeverRunsBackwards(t *testing.T) {
	b := breaker.New(plain())
	for range 3 {
		attempt(t, b, zero.Add(time.Hour), patient("a"), lost)
	}
	refused(t, b, zero, patient("a"), breaker.RefusedOpen, time.Second)
}

func TestEveryWordIsKnown(t *testing.T) {
	words := []fmt.Stringer{breaker.CauseReset + 1, breaker.State(0), breaker.Mode(0), breaker.Refusal(0)}
	unknown := map[string]bool{}
	for _, w := range words {
		unknown[w.String()] = true
	}
	for s := breaker.Closed; s <= breaker.HalfOpen; s++ {
		words = append(words, s)
	}
	for m := breaker.Auto; m <= breaker.ForcedClosed; m++ {
		words = append(words, m)
	}
	for c := breaker.CauseConsecutive; c <= breaker.CauseReset; c++ {
		words = append(words, c)
	}
	for r := breaker.RefusedOpen; r <= breaker.RefusedForced; r++ {
		words = append(words, r)
	}
	for _, w := range words[4:] {
		if unknown[w.String()] {
			t.Errorf("%T %d has no word", w, w)
		}
	}
}
