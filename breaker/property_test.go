package breaker_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/breaker"
)

// pair is one admission as the breaker and as the oracle know it.
type pair struct {
	ticket breaker.Ticket
	twin   *admission
}

// life is one random life of a breaker beside its oracle.
type life struct {
	b      *breaker.Breaker
	o      *oracle
	now    time.Duration
	flying []pair
	latest time.Duration // end of the latest lease or cooldown that could hold the door
}

func drawConfig(t *rapid.T) breaker.Config {
	seconds := func(name string, low, high int) time.Duration {
		return time.Duration(rapid.IntRange(low, high).Draw(t, name)) * 500 * time.Millisecond
	}
	return breaker.Config{
		ConsecutiveFailures: rapid.Uint32Range(0, 6).Draw(t, "consecutive"),
		FailureRate:         rapid.SampledFrom([]float64{0.07, 0.3, 0.5, 1}).Draw(t, "rate"),
		MinRequests:         rapid.Uint32Range(1, 12).Draw(t, "min requests"),
		Window:              rapid.SampledFrom([]time.Duration{time.Second + 7, 3 * time.Second, 10 * time.Second}).Draw(t, "window"),
		OpenBase:            seconds("open base", 1, 4),
		OpenCap:             seconds("open cap", 4, 16),
		CloseAfter:          rapid.Uint32Range(1, 3).Draw(t, "close after"),
		SlowCallThreshold:   rapid.SampledFrom([]time.Duration{0, 200 * time.Millisecond}).Draw(t, "slow threshold"),
		SlowCallRate:        rapid.SampledFrom([]float64{0.4, 0.8}).Draw(t, "slow rate"),
		MinDistinctCallers:  rapid.Uint32Range(0, 4).Draw(t, "distinct"),
		Ramp:                seconds("ramp", 0, 4),
		TimeoutFloor:        rapid.SampledFrom([]time.Duration{0, 300 * time.Millisecond, time.Second, 3 * time.Second}).Draw(t, "floor"),
	}
}

func (l *life) come(t *rapid.T) {
	a := breaker.Attempt{
		Caller:     rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "caller"),
		Repeatable: rapid.Bool().Draw(t, "repeatable"),
		Cut:        rapid.Bool().Draw(t, "cut"),
		Timeout:    time.Duration(rapid.IntRange(1, 3000).Draw(t, "timeout")) * time.Millisecond,
	}
	rnd := rapid.Float64Range(0, 0.999).Draw(t, "rnd")
	at := zero.Add(l.now)
	before := l.b.Snapshot(at)
	closedDoor := l.b.Peek(at)
	ticket, err := l.b.Admit(at, a, rnd)
	twin, reason, after := l.o.admit(l.now, a, rnd)
	if no, is := errors.AsType[*breaker.RefusedError](err); is {
		if no.Reason != reason || no.RetryAfter != after {
			t.Fatalf("refused: %v after %v, the oracle says %v after %v", no, no.RetryAfter, reason, after)
		}
		if no.RetryAfter <= 0 {
			t.Fatalf("refused with nothing to wait for: %v", no)
		}
		return
	}
	if reason != 0 {
		t.Fatalf("admitted, the oracle says %v", reason)
	}
	if closedDoor != nil {
		t.Fatalf("admitted although Peek said %v", closedDoor)
	}
	if before.State == breaker.Open {
		t.Fatal("admitted while open")
	}
	if before.Probing {
		t.Fatal("a second probe beside a live one")
	}
	if ticket.Probe() != twin.probe {
		t.Fatalf("probe: %v, the oracle says %v", ticket.Probe(), twin.probe)
	}
	l.latest = max(l.latest, twin.leaseEnd)
	l.flying = append(l.flying, pair{ticket, twin})
}

// end settles one of the youngest tickets so many. They stay in the list: some are settled twice, and most late.
func (l *life) end(t *rapid.T, youngest int) {
	if len(l.flying) == 0 {
		return
	}
	i := rapid.IntRange(max(0, len(l.flying)-youngest), len(l.flying)-1).Draw(t, "ticket")
	r := breaker.Result{
		Kind:    rapid.SampledFrom([]breaker.Kind{breaker.OK, breaker.OK, breaker.OK, breaker.Failed, breaker.Failed, breaker.Throttled, breaker.Ignored}).Draw(t, "kind"),
		Latency: time.Duration(rapid.IntRange(0, 900).Draw(t, "latency")) * time.Millisecond,
	}
	if r.Kind == breaker.Failed {
		r.TimedOut = rapid.Bool().Draw(t, "timed out")
		r.Answered = !r.TimedOut && rapid.Bool().Draw(t, "answered")
	}
	from := l.o.state
	moved, is := l.flying[i].ticket.Settle(zero.Add(l.now), r, 0)
	if was := l.o.settle(l.now, l.flying[i].twin, r); was != is {
		t.Fatalf("moved: %v %+v, the oracle says %v", is, moved, was)
	}
	if is && (moved.From != from || moved.To != l.o.state) {
		t.Fatalf("moved %+v, the oracle from %v to %v", moved, from, l.o.state)
	}
	if l.o.state == breaker.Open {
		l.latest = max(l.latest, l.o.anyAt)
	}
}

// warm teaches the baseline, as far as the settings let so many successes by.
func (l *life) warm(t *rapid.T) {
	for range rapid.IntRange(19, 50).Draw(t, "successes") {
		l.now += 40 * time.Millisecond
		at := zero.Add(l.now)
		ticket, err := l.b.Admit(at, patient("a"), 0)
		twin, reason, _ := l.o.admit(l.now, patient("a"), 0)
		if (err != nil) != (reason != 0) {
			t.Fatalf("refused: %v, the oracle says %v", err, reason)
		}
		if err != nil {
			return
		}
		r := breaker.Result{Kind: breaker.OK, Latency: time.Duration(rapid.IntRange(0, 1_500_000).Draw(t, "us")) * time.Microsecond}
		_, moved := ticket.Settle(at, r, 0)
		if l.o.settle(l.now, twin, r) != moved {
			t.Fatalf("moved: %v, the oracle does not agree", moved)
		}
		l.latest = max(l.latest, twin.leaseEnd, l.o.anyAt)
	}
}

// compare holds every count against the oracle's.
func (l *life) compare(t *rapid.T) {
	s := l.b.Snapshot(zero.Add(l.now))
	want := l.o.state
	if want == breaker.Open && l.now >= l.o.until {
		want = breaker.HalfOpen
	}
	n := l.o.tally(l.now)
	p95, _ := l.o.p95()
	if s.State != want || int(s.Generation) != l.o.gen || int(s.Consecutive) != len(l.o.streak) ||
		int(s.Attempts) != n.counted || int(s.Failed) != n.failed || int(s.Slow) != n.slow || int(s.Excused) != n.excused ||
		s.Callers != len(n.active) || s.P95 != p95 {
		t.Fatalf("at %v %+v, the oracle says %v, generation %d, %d in a row, %+v, p95 %v", l.now, s, want, l.o.gen, len(l.o.streak), n, p95)
	}
}

func live(t *rapid.T) {
	c := drawConfig(t)
	l := &life{b: breaker.New(c), o: newOracle(c)}
	l.b.Snapshot(zero) // its clock begins here
	if rapid.Bool().Draw(t, "warm") {
		l.warm(t)
	}
	for range rapid.IntRange(1, 120).Draw(t, "steps") {
		switch rapid.IntRange(0, 11).Draw(t, "what") {
		case 0, 1, 2:
			l.come(t)
		case 3:
			l.come(t)
			l.end(t, 6)
		case 4, 5, 6:
			l.end(t, 6)
		case 7:
			l.now += time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond
		case 8:
			l.now += time.Duration(rapid.IntRange(0, 12000).Draw(t, "ms")) * time.Millisecond
		case 9:
			l.b.Hint(zero.Add(l.now))
			if l.o.state == breaker.Closed {
				l.o.hinted = l.now
			}
		case 10: // late, and mostly again
			l.end(t, len(l.flying))
		case 11: // the oracle knows nothing of it
			l.b.Trim(zero.Add(l.now))
		}
		l.compare(t)
	}
	l.neverWedged(t)
}

// neverWedged leaves every ticket unsettled for ever: once leases and cooldowns are over, the least fit attempt is admitted.
func (l *life) neverWedged(t *rapid.T) {
	end := zero.Add(max(l.now, l.latest, l.o.anyAt) + l.o.c.Ramp)
	if _, err := l.b.Admit(end, breaker.Attempt{Caller: "z", Timeout: time.Millisecond, Cut: true}, 0.999); err != nil {
		t.Fatalf("wedged: %v", err)
	}
}

func TestBreakerAgreesWithThePlainOracle(t *testing.T) { rapid.Check(t, live) }

// FuzzEvents drives the same life by the fuzzer's bytes.
func FuzzEvents(f *testing.F) { f.Fuzz(rapid.MakeFuzz(live)) }

// TestWindowNeverCountsLateNorMuchTooEarly holds the counts between the two windows that bound the resolution.
func TestWindowNeverCountsLateNorMuchTooEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := usual()
		c.ConsecutiveFailures, c.FailureRate, c.MinRequests = 0, 1, 1<<30
		c.Window = time.Duration(rapid.Int64Range(1, 300).Draw(t, "window"))
		b := breaker.New(c)
		var results []time.Duration
		o := newOracle(c)
		b.Snapshot(zero) // its clock begins here
		now := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "results") {
			now += time.Duration(rapid.Int64Range(0, int64(c.Window)/5).Draw(t, "gap"))
			ticket, err := b.Admit(zero.Add(now), patient("a"), 0)
			if err != nil {
				t.Fatal(err)
			}
			ticket.Settle(zero.Add(now), ok, 0)
			results = append(results, now)
			o.results = append(o.results, seen{at: now, caller: "a", kind: breaker.OK})
			now += time.Duration(rapid.Int64Range(0, int64(c.Window)/10).Draw(t, "look"))
			low, high := 0, 0
			for _, r := range results {
				if now-r < c.Window {
					high++
				}
				if now-r < c.Window-(c.Window+9)/10 {
					low++
				}
			}
			n := int(b.Snapshot(zero.Add(now)).Attempts)
			if counted := len(o.live(now)); n < low || n > high || n != counted {
				t.Fatalf("%d attempts in a window of %v, want %d, from %d to %d", n, c.Window, counted, low, high)
			}
		}
	})
}
