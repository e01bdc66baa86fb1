package breaker

import "time"

// Snapshot is how a breaker stood at one instant, for observers.
type Snapshot struct {
	// State is what an attempt would meet: half-open as soon as the cooldown is over, although the move is announced with the
	// first probe.
	State State
	Mode  Mode
	// Since is when the state began; the zero time for a breaker that never moved.
	Since time.Time
	// Generation is how often it moved.
	Generation uint64
	// Consecutive failures so far.
	Consecutive uint32
	// Attempts in the window that were counted, Failed and Slow among them; Excused are the time-outs that were not.
	Attempts, Failed, Slow, Excused uint32
	// Callers whose attempts are in the window; 8 are told apart.
	Callers int
	// P95 of successful latencies, twice of which is time enough; 0 while fewer than 20 are known.
	P95 time.Duration
	// Suspicious since a hint.
	Suspicious bool
	// Ramping: admissions are still rising.
	Ramping bool
	// Cooldown is the length of the current or last open time; 0 for one that was closed since.
	Cooldown time.Duration
	// NextProbe is when the next probe may come: the end of the cooldown, or of the live probe's lease. The zero time when closed, when
	// forced open, and when a probe may come at once.
	NextProbe time.Time
	// Probing: a probe is under way.
	Probing bool
}

// State tells what an attempt would meet, as [Snapshot.State] does, at the cost of a comparison.
func (b *Breaker) State(now time.Time) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stateLocked(b.atLocked(now))
}

// AppendLatencies appends how long the latest successes took, at most 32, in no order: whole milliseconds, rounded up. They are what
// P95 is of, and stay as they are while attempts fail.
func (b *Breaker) AppendLatencies(to []time.Duration) []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.baseline.appendTo(to)
}

func (b *Breaker) stateLocked(at time.Duration) State {
	if b.state == Open && b.mode == Auto && at >= b.openUntil {
		return HalfOpen
	}
	return b.state
}

// Snapshot tells how the breaker stands. It moves nothing.
func (b *Breaker) Snapshot(now time.Time) Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.atLocked(now)
	b.window.expire(at, b.config.Window)
	sum := b.window.sum()
	s := Snapshot{
		State: b.stateLocked(at), Mode: b.mode, Generation: b.generation, Consecutive: b.consecutive,
		Attempts: sum.counted, Failed: sum.failed, Slow: sum.slow, Excused: sum.excused,
		Callers:    b.callers.active(&b.window),
		Suspicious: at < b.suspiciousUntil,
		Ramping:    b.ramping && at-b.since < b.config.Ramp,
	}
	s.P95, _ = b.baseline.p95()
	if b.generation > 0 {
		s.Since = b.start.Add(b.since)
	}
	if b.state == Closed || b.mode == ForcedOpen {
		return s
	}
	s.Cooldown = b.cooldown
	switch {
	case b.state == Open && at < b.openUntil:
		s.NextProbe = b.start.Add(b.openUntil)
	case b.state == Open:
		s.Since = b.start.Add(b.openUntil)
	case b.leasedLocked(at):
		s.Probing, s.NextProbe = true, b.start.Add(b.leaseEnd)
	}
	return s
}
