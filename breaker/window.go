package breaker

import (
	"math"
	"time"
)

// windowBuckets bounds the memory of a window, and is its resolution: a tenth.
const windowBuckets = 10

// counts are what a stretch of time held.
type counts struct {
	// counted are attempts that say something about the origin; failed and slow are among them.
	counted, failed, slow uint32
	// excused are time-outs that only say how impatient their callers were. They count toward a black hole.
	excused uint32
}

func (c *counts) add(d counts) {
	c.counted += d.counted
	c.failed += d.failed
	c.slow += d.slow
	c.excused += d.excused
}

func (c *counts) subtract(d counts) {
	c.counted -= d.counted
	c.failed -= d.failed
	c.slow -= d.slow
	c.excused -= d.excused
}

// window counts what happened in the last stretch of a given length. A bucket starts at the very instant of its first result and
// takes those of the next tenth of the length; it leaves as a whole when its first result is as old as the window is long. So no
// result is ever counted late, none leaves more than a tenth early, and one that is alone in its tenth leaves exactly on time.
// (A fixed grid would be as small, but its edges would depend on when the process started.)
type window struct {
	held *held // nil before the first result, and after trim of an empty window: an idle origin keeps none
	// oldest and next number the live buckets, oldest ≤ n < next; n stands at n modulo windowBuckets. Number 0 is never used, and the
	// last one neither: there the breaker begins anew ([window.full]).
	oldest, next uint32
}

// held are the counts of a window; its size is that of a size class.
type held struct {
	buckets [windowBuckets]struct {
		start time.Duration
		counts
	}
	sum counts
}

func newWindow() window { return window{oldest: 1, next: 1} }

// expire drops the buckets whose time is over.
func (w *window) expire(at, length time.Duration) {
	for w.oldest < w.next {
		b := &w.held.buckets[w.oldest%windowBuckets]
		if at-b.start < length {
			return
		}
		w.held.sum.subtract(b.counts)
		w.oldest++
	}
}

// sum is what the window holds; expire comes first.
func (w *window) sum() counts {
	if w.held == nil {
		return counts{}
	}
	return w.held.sum
}

// trim gives back the memory of an empty window. Its numbers stay, since callers are known by them.
func (w *window) trim(at, length time.Duration) {
	if w.expire(at, length); w.oldest == w.next {
		w.held = nil
	}
}

// record adds to the bucket of this instant and returns its number.
func (w *window) record(at, length time.Duration, c counts) uint32 {
	w.expire(at, length)
	// Rounded up, ten tenths are never shorter than the whole: when an eleventh bucket is due, the first has left.
	tenth := (length-1)/windowBuckets + 1
	if w.held == nil {
		w.held = new(held)
	}
	if w.oldest == w.next || at-w.held.buckets[(w.next-1)%windowBuckets].start >= tenth {
		b := &w.held.buckets[w.next%windowBuckets]
		b.start, b.counts = at, counts{}
		w.next++
	}
	w.held.buckets[(w.next-1)%windowBuckets].add(c)
	w.held.sum.add(c)
	return w.next - 1
}

// holds says whether a bucket is still in the window.
func (w *window) holds(bucket uint32) bool { return bucket >= w.oldest }

// full says that bucket numbers ran out, which a window of ten seconds takes a hundred years for.
func (w *window) full() bool { return w.next == math.MaxUint32 }
