package breaker_test

import (
	"math"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

// opened is a breaker that opened at the very beginning.
func opened(t *testing.T, c breaker.Config) *breaker.Breaker {
	t.Helper()
	b := breaker.New(c)
	for range c.ConsecutiveFailures {
		attempt(t, b, zero, patient("a"), lost)
	}
	wantState(t, b, zero, breaker.Open)
	return b
}

func TestOpenRefusesUntilTheCooldownIsOverToTheNanosecond(t *testing.T) {
	b := opened(t, plain())
	last := zero.Add(time.Second - 1)
	refused(t, b, last, patient("a"), breaker.RefusedOpen, 1)
	if err := b.Peek(last); err == nil {
		t.Error("Peek sees an open door")
	}
	if err := b.Peek(ms(1000)); err != nil {
		t.Errorf("Peek after the cooldown: %v", err)
	}
	if !admit(t, b, ms(1000), patient("a")).Probe() {
		t.Error("not the probe")
	}
}

func TestLostProbeDoesNotWedge(t *testing.T) {
	b := opened(t, plain())
	a := patient("a")
	a.Timeout = 2500 * time.Millisecond
	lostProbe := admit(t, b, ms(1000), a)
	// Refused: what is left of the lease (its timeout and a second), at most the first cooldown.
	refused(t, b, ms(1001), a, breaker.RefusedProbing, time.Second)
	refused(t, b, ms(4400), a, breaker.RefusedProbing, 100*time.Millisecond)
	next := admit(t, b, ms(4500), a)
	if !next.Probe() {
		t.Fatal("not the probe")
	}
	if _, moved := lostProbe.Settle(ms(4501), lost, 0); moved {
		t.Error("the lost probe's late result moved the breaker")
	}
	refused(t, b, ms(4502), a, breaker.RefusedProbing, time.Second)
	if moved, _ := next.Settle(ms(4503), ok, 0); moved.To != breaker.Closed {
		t.Errorf("the live probe's success: %+v", moved)
	}
}

func TestProbeSettledAfterItsLeaseIsDropped(t *testing.T) {
	for name, end := range map[string]int{"in time": 1999 + 1000, "at its end": 2000 + 1000} {
		t.Run(name, func(t *testing.T) {
			b := opened(t, plain())
			a := patient("a")
			a.Timeout = time.Second
			_, moved := admit(t, b, ms(1000), a).Settle(ms(end), ok, 0)
			if moved != (name == "in time") {
				t.Errorf("moved: %v", moved)
			}
		})
	}
}

func TestProbeThatSaysNothingGivesItsPlaceBack(t *testing.T) {
	b := opened(t, plain())
	probe := admit(t, b, ms(1000), patient("a"))
	if _, moved := probe.Settle(ms(1100), ignored, 0); moved {
		t.Error("moved")
	}
	next := admit(t, b, ms(1100), patient("b"))
	// The second Settle of the first must not end the second's lease.
	probe.Settle(ms(1101), lost, 0)
	refused(t, b, ms(1102), patient("c"), breaker.RefusedProbing, time.Second)
	next.Settle(ms(1103), ok, 0)
	wantState(t, b, ms(1103), breaker.Closed)
}

func TestOnlyTheFirstProbeAnnouncesHalfOpen(t *testing.T) {
	b := opened(t, plain())
	first := admit(t, b, ms(1200), patient("a"))
	moved, is := first.Entered()
	want := breaker.Transition{From: breaker.Open, To: breaker.HalfOpen, Cause: breaker.CauseCooldownOver, At: ms(1200), Generation: 2}
	if !is || moved != want {
		t.Errorf("entered %v %+v, want %+v", is, moved, want)
	}
	first.Settle(ms(1200), ignored, 0)
	if _, is := admit(t, b, ms(1201), patient("a")).Entered(); is {
		t.Error("announced twice")
	}
}

func TestWhoIsFitToBeTheProbe(t *testing.T) {
	unrepeatable := patient("a")
	unrepeatable.Repeatable = false
	short := breaker.Attempt{Caller: "a", Repeatable: true, Timeout: 200 * time.Millisecond}
	for _, row := range []struct {
		name    string
		p95     time.Duration
		a       breaker.Attempt
		fit     bool
		timeout breaker.State // where its time-out leads, once it is taken
	}{
		{"repeatable with the policy's time", 0, patient("a"), true, breaker.Open},
		{"repeatable, the policy's time is short", 0, short, true, breaker.Open},
		{"cut to a second", 0, cut("a", time.Second), true, breaker.Open},
		{"cut just below a second", 0, cut("a", time.Second-1), false, breaker.HalfOpen},
		{"cut to twice p95", 800 * time.Millisecond, cut("a", 1600*time.Millisecond), true, breaker.Open},
		{"cut just below twice p95", 800 * time.Millisecond, cut("a", 1600*time.Millisecond-1), false, breaker.HalfOpen},
		{"cut to a second where twice p95 is less", 10 * time.Millisecond, cut("a", time.Second), true, breaker.Open},
		{"not repeatable", 0, unrepeatable, false, breaker.Open},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := breaker.New(plain())
			if row.p95 > 0 {
				for range 20 {
					attempt(t, b, zero, patient("a"), breaker.Result{Kind: breaker.OK, Latency: row.p95})
				}
			}
			for range 3 {
				attempt(t, b, zero, patient("a"), lost)
			}
			var probe breaker.Ticket
			if row.fit {
				probe = admit(t, b, ms(1000), row.a)
			} else {
				refused(t, b, ms(1000), row.a, breaker.RefusedUnfit, time.Second)
				refused(t, b, zero.Add(2*time.Second-1), row.a, breaker.RefusedUnfit, 1)
				probe = admit(t, b, ms(2000), row.a)
			}
			probe.Settle(ms(2001), timeout, 0)
			wantState(t, b, ms(2001), row.timeout)
		})
	}
}

func TestImpatientProbesComeOncePerCooldown(t *testing.T) {
	b := opened(t, plain())
	hasty := cut("a", 100*time.Millisecond)
	admit(t, b, ms(2000), hasty).Settle(ms(2100), timeout, 0)
	refused(t, b, ms(2101), hasty, breaker.RefusedUnfit, 999*time.Millisecond)
	if !admit(t, b, ms(3100), hasty).Probe() {
		t.Error("not the probe")
	}
}

func TestAFitProbeMakesTheUnfitWaitAnew(t *testing.T) {
	b := opened(t, plain())
	admit(t, b, ms(1900), patient("a")).Settle(ms(1950), ignored, 0)
	refused(t, b, ms(2500), cut("a", time.Millisecond), breaker.RefusedUnfit, 400*time.Millisecond)
	admit(t, b, ms(2900), cut("a", time.Millisecond))
}

func TestImpatientProbeThatAnswersCounts(t *testing.T) {
	for name, row := range map[string]struct {
		r    breaker.Result
		want breaker.State
	}{"success": {ok, breaker.Closed}, "503": {status503, breaker.Open}, "lost": {lost, breaker.Open}} {
		t.Run(name, func(t *testing.T) {
			b := opened(t, plain())
			admit(t, b, ms(2000), cut("a", 10*time.Millisecond)).Settle(ms(2001), row.r, 0)
			wantState(t, b, ms(2001), row.want)
		})
	}
}

func TestProbeBelowAHighFloorDecidesNothingByItsTimeout(t *testing.T) {
	c := plain()
	c.TimeoutFloor = 5 * time.Second
	b := opened(t, c)
	admit(t, b, ms(1000), cut("a", 2*time.Second)).Settle(ms(3000), timeout, 0)
	wantState(t, b, ms(3000), breaker.HalfOpen)
}

func TestCooldownDoublesToItsCapAndBeginsAgainAfterClosing(t *testing.T) {
	c := plain()
	c.OpenCap = 5 * time.Second
	b := opened(t, c)
	at := time.Second
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		now := zero.Add(at)
		moved, _ := admit(t, b, now, patient("a")).Settle(now, []breaker.Result{lost, status429}[int(at/time.Second)%2], 0)
		if moved.Cooldown != want || moved.Cause != breaker.CauseProbeFailed {
			t.Fatalf("after a failed probe %+v, want %v", moved, want)
		}
		if next := b.Snapshot(now).NextProbe; !next.Equal(now.Add(want)) {
			t.Fatalf("next probe at %v, want %v", next.Sub(zero), at+want)
		}
		at += want
	}
	now := zero.Add(at)
	attempt(t, b, now, patient("a"), ok)
	wantState(t, b, now, breaker.Closed)
	for range 2 {
		attempt(t, b, now, patient("a"), lost)
	}
	if moved, _ := admit(t, b, now, patient("a")).Settle(now, lost, 0); moved.Cooldown != time.Second {
		t.Errorf("opened anew for %v, want the first cooldown", moved.Cooldown)
	}
}

func TestJitterLengthensACooldownBeyondItsCap(t *testing.T) {
	for rnd, want := range map[float64]time.Duration{0: time.Second, 0.5: 1250 * time.Millisecond, math.Nextafter(1, 0): 1500 * time.Millisecond} {
		c := plain()
		c.ConsecutiveFailures, c.OpenCap, c.OpenJitter = 1, time.Second, 0.5
		moved, _ := admit(t, breaker.New(c), zero, patient("a")).Settle(zero, lost, rnd)
		if d := want - moved.Cooldown; d < 0 || d > 1 {
			t.Errorf("rnd %v: %v, want %v", rnd, moved.Cooldown, want)
		}
	}
}

func TestNoCooldownOverflows(t *testing.T) {
	c := plain()
	c.ConsecutiveFailures, c.OpenCap, c.OpenJitter = 1, math.MaxInt64, 1e300
	b := breaker.New(c)
	moved, _ := admit(t, b, zero, patient("a")).Settle(zero, lost, 0.9)
	if moved.Cooldown != math.MaxInt64 {
		t.Errorf("%v", moved.Cooldown)
	}
	refused(t, b, ms(1), patient("a"), breaker.RefusedOpen, math.MaxInt64-time.Millisecond)

	c.OpenJitter, c.OpenBase = 0, math.MaxInt64/2+1
	b = breaker.New(c)
	attempt(t, b, zero, patient("a"), lost)
	now := zero.Add(c.OpenBase)
	if moved, _ := admit(t, b, now, patient("a")).Settle(now, lost, 0); moved.Cooldown != math.MaxInt64 {
		t.Errorf("doubled to %v", moved.Cooldown)
	}
}

func TestCloseAfterTakesSoManyProbesInARow(t *testing.T) {
	c := plain()
	c.CloseAfter = 2
	b := opened(t, c)
	attempt(t, b, ms(1000), patient("a"), ok)
	wantState(t, b, ms(1000), breaker.HalfOpen)
	if cause := attempt(t, b, ms(1001), patient("a"), lost); cause != breaker.CauseProbeFailed {
		t.Fatalf("cause %v", cause)
	}
	// The success before the failure is forgotten.
	attempt(t, b, ms(3001), patient("a"), ok)
	wantState(t, b, ms(3001), breaker.HalfOpen)
	if cause := attempt(t, b, ms(3002), patient("a"), ok); cause != breaker.CauseProbesSucceeded {
		t.Fatalf("cause %v", cause)
	}
}

func TestAdmissionsRiseFromATenthToAllOverTheRamp(t *testing.T) {
	c := plain()
	c.Ramp = 10 * time.Second
	b := opened(t, c)
	attempt(t, b, ms(1000), patient("a"), ok)
	for _, row := range []struct {
		at    int
		share float64
	}{{1000, 0.1}, {6000, 0.55}, {10900, 0.991}} {
		now := ms(row.at)
		if _, err := b.Admit(now, patient("a"), row.share-0.001); err != nil {
			t.Errorf("at %d: %v below a share of %v", row.at, err, row.share)
		}
		if _, err := b.Admit(now, patient("a"), row.share+0.001); err == nil {
			t.Errorf("at %d: admitted above a share of %v", row.at, row.share)
		}
		if !b.Snapshot(now).Ramping || b.Peek(now) != nil {
			t.Errorf("at %d: not ramping, or a closed door", row.at)
		}
	}
	if _, err := b.Admit(ms(11000), patient("a"), 0.9999); err != nil {
		t.Errorf("after the ramp: %v", err)
	}
}
