package hedge

import "time"

// Trigger says when the hedges of one origin under one set of settings may start. It is safe for concurrent use. Use New.
type Trigger struct {
	delay     time.Duration
	latencies *latencies // nil for a fixed delay
}

// New makes a trigger that knows nothing of its origin yet. The configuration is within the bounds of its fields: the policy refuses any other.
func New(c Config) *Trigger {
	if c.Percentile == 0 {
		return &Trigger{delay: c.Delay}
	}
	return &Trigger{latencies: newLatencies(c.Percentile)}
}

// Learn takes the latency of a complete, successful answer, a hedge's as well, from the start of its own attempt.
func (t *Trigger) Learn(now time.Time, latency time.Duration) {
	if t.latencies != nil {
		t.latencies.answered(now, latency)
	}
}

// LearnAtLeast takes how long an attempt had run when it was cancelled because another one of its call answered. It does not matter
// which of the two is told first, nor when. An attempt that was cancelled for any other reason is not told.
func (t *Trigger) LearnAtLeast(elapsed time.Duration) {
	if t.latencies != nil {
		t.latencies.lost(elapsed)
	}
}

// After is how long an attempt runs alone. A percentile is the latency of one answer, in microseconds rounded up to four digits: it is
// too long by less than a thousandth, or by less than a microsecond below 10ms; over 9999s saturates. It is false while a percentile is asked for and fewer than 100 samples are known, when nothing
// is hedged. It takes no lock.
func (t *Trigger) After() (time.Duration, bool) {
	if t.latencies == nil {
		return t.delay, true
	}
	return t.latencies.value()
}

// Snapshot is a trigger at one instant, for observers.
type Snapshot struct {
	// Samples of the origin's latency that are kept; 0 for a fixed delay.
	Samples int
	// Delay and Known are what After gives.
	Delay time.Duration
	Known bool
}

// Snapshot tells how the trigger stands.
func (t *Trigger) Snapshot() Snapshot {
	if t.latencies == nil {
		return Snapshot{Delay: t.delay, Known: true}
	}
	return t.latencies.snapshot()
}
