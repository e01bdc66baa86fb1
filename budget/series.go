package budget

import "time"

// steps is the resolution: a period is kept as this many counts, plus the one that is leaving. With it a series costs under 200 bytes
// whatever the traffic. What falls into one step leaves the window together, and always to the safe side: extra attempts with
// the last of their step, first attempts with the first of theirs. A burst and a lone attempt leave exactly a period after they
// came; in dense traffic the allowance used is up to 1/20 below the one allowed, and never above.
const steps = 20

// MaxPeriod is the longest period of a window, far beyond use and far from any overflow.
const MaxPeriod = 366 * 24 * time.Hour

// grid turns instants into steps.
type grid struct {
	step time.Duration
	// unit is the resolution of a mark: one nanosecond up to a period of 85 s, and below 2⁻³¹ of a step beyond.
	unit time.Duration
}

// instant is a place on the grid: the step, and how far into it.
type instant struct {
	tick   int64
	offset uint32
}

// newGrid rounds the period up to a whole number of nanoseconds per step.
func newGrid(period time.Duration) grid {
	step := (period + steps - 1) / steps
	return grid{step: step, unit: step>>32 + 1}
}

func (g grid) period() time.Duration { return steps * g.step }

func (g grid) locate(at time.Duration) instant {
	return instant{tick: int64(at / g.step), offset: uint32(at % g.step / g.unit)} //nolint:gosec // below 2³² by the choice of unit
}

// leaves is when what was marked in a step has left the window.
func (g grid) leaves(tick int64, mark uint32) time.Duration {
	return time.Duration(tick)*g.step + time.Duration(mark)*g.unit + g.period()
}

// series counts one kind of event over the last period.
type series struct {
	counts [steps + 1]uint32
	marks  [steps + 1]uint32 // the offset at which the events of a step leave the window together
	tick   int64             // the newest step
	sum    uint64            // of the counts of all steps but the oldest, which is leaving
}

// place is where a step is kept; ticks are above −steps.
func place(tick int64) int { return int((tick + steps + 1) % (steps + 1)) }

// advance moves the newest step on and forgets what has left.
func (s *series) advance(tick int64) {
	if tick-s.tick > steps {
		*s = series{tick: tick}
		return
	}
	for s.tick < tick {
		s.tick++
		s.sum -= uint64(s.counts[place(s.tick-steps)])
		s.counts[place(s.tick)] = 0
	}
}

// add counts an event. keepFirst says that a step leaves with its first event, else it leaves with its last.
func (s *series) add(i instant, keepFirst bool) {
	s.advance(i.tick)
	p := place(i.tick)
	if s.counts[p] == 0 || !keepFirst {
		s.marks[p] = i.offset
	}
	if s.counts[p]+1 != 0 { // years of traffic in one step must not come round to none
		s.counts[p]++
		s.sum++
	}
}

// count is how many are in the window that ends at i, the instant itself included and the one a period earlier not. tie decides
// for the oldest step when its mark cannot be told from that instant, which happens on coarse grids only.
func (s *series) count(i instant, tie bool) uint64 {
	s.advance(i.tick)
	oldest := place(i.tick - steps)
	if mark := s.marks[oldest]; mark > i.offset || (tie && mark == i.offset) {
		return s.sum + uint64(s.counts[oldest])
	}
	return s.sum
}

// kept is how many are in all steps, the one that is leaving included.
func (s *series) kept(tick int64) uint64 {
	s.advance(tick)
	return s.sum + uint64(s.counts[place(tick-steps)])
}
