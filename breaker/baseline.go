package breaker

import (
	"math"
	"slices"
	"time"
)

const (
	// baselineSamples bounds the memory of a baseline.
	baselineSamples = 32
	// baselineMinimum is how many answers must exist before the baseline says anything (semantics.md §6).
	baselineMinimum = 20
)

// baseline is how long this origin takes when it is well: the 95th percentile of the last successful attempts, exact over what it
// keeps. At first every success is kept; once full, at most baselineSamples per window, so that a busy origin's baseline is not
// that of the last few milliseconds. A histogram or a P² estimator would remember more and know it less exactly.
type baseline struct {
	// millis are latencies in milliseconds, rounded up; over a minute saturates. Finer would double the memory of it, and nobody
	// is excused for a millisecond.
	millis [baselineSamples]uint16
	known  uint8
	next   uint8
	last   time.Duration
}

// learn takes the latency of a success.
func (l *baseline) learn(at, window, latency time.Duration) {
	full := l.known == baselineSamples
	if full && at-l.last < window/baselineSamples {
		return
	}
	l.millis[l.next] = uint16(min((min(max(latency, 0), time.Hour)+time.Millisecond-1)/time.Millisecond, math.MaxUint16))
	l.next = (l.next + 1) % baselineSamples
	l.last = at
	if !full {
		l.known++
	}
}

// p95 is the 95th percentile by nearest rank; false while fewer than baselineMinimum answers exist.
func (l *baseline) p95() (time.Duration, bool) {
	n := int(l.known)
	if n < baselineMinimum {
		return 0, false
	}
	sorted := l.millis
	slices.Sort(sorted[:n])
	rank := (95*n + 99) / 100
	return time.Duration(sorted[rank-1]) * time.Millisecond, true
}

// appendTo appends what is kept, each rounded up to a millisecond.
func (l *baseline) appendTo(some []time.Duration) []time.Duration {
	for _, ms := range l.millis[:l.known] {
		some = append(some, time.Duration(ms)*time.Millisecond)
	}
	return some
}
