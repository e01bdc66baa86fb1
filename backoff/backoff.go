// Package backoff says how long to wait before a retry: the broker's own growing wait ([Config.Wait]) and what a server asked for
// ([RetryAfter]). It reads no clock and has no randomness of its own, so every answer can be tested to the nanosecond.
package backoff

import (
	"math"
	"time"
)

// Jitter is the random part of a wait; its numbers are the wire's.
type Jitter int32

// The jitters, in the order of the wire.
const (
	// JitterUnspecified waits as JitterFull does.
	JitterUnspecified Jitter = iota
	// JitterFull is uniform between nothing and the ceiling.
	JitterFull
	// JitterNone is the ceiling itself.
	JitterNone
	// JitterEqual is half the ceiling, and a random part of the other half.
	JitterEqual
	// JitterProportional is the ceiling more or less JitterRatio of it, so it may pass Cap.
	JitterProportional
)

// Config shapes the waits. The ceiling of the wait before retry n is min(Cap, Base·Multiplier^(n−1)).
type Config struct {
	// Base is the ceiling before the first retry; 0 waits nothing.
	Base time.Duration
	// Multiplier is the growth from one retry to the next; below 1, which policies refuse, it counts as 1.
	Multiplier float64
	// Cap bounds the ceiling; 0 waits nothing.
	Cap time.Duration
	// Jitter is the random part.
	Jitter Jitter
	// JitterRatio is for JitterProportional; 0 is no random part.
	JitterRatio float64
	// ThrottleBase replaces Base after a 429; 0 leaves Base in place, so that "no rule for 429" never means "no wait".
	ThrottleBase time.Duration
}

// spreadRatio bounds what [Spread] adds.
const spreadRatio = 0.25

// Wait gives the wait before retry n, counted from 1 (a smaller n counts as 1). throttled says that the last answer was a 429.
// rnd is uniform in [0, 1). No n overflows.
func (c *Config) Wait(n int, throttled bool, rnd float64) time.Duration {
	ceiling := c.ceiling(n, throttled)
	switch c.Jitter {
	case JitterNone:
		return ceiling
	case JitterEqual:
		half := ceiling / 2
		return half + part(ceiling-half, rnd)
	case JitterProportional:
		return scale(ceiling, 1+c.JitterRatio*(2*rnd-1))
	default:
		return part(ceiling, rnd)
	}
}

// Spread adds up to a quarter to a server's delay, so that those it told to go away do not come back together. JitterNone adds
// nothing. The sum saturates.
func Spread(d time.Duration, j Jitter, rnd float64) time.Duration {
	if j == JitterNone || d <= 0 {
		return d
	}
	extra := scale(d, spreadRatio*rnd)
	if extra > math.MaxInt64-d {
		return math.MaxInt64
	}
	return d + extra
}

func (c *Config) ceiling(n int, throttled bool) time.Duration {
	base := c.Base
	if throttled && c.ThrottleBase > 0 {
		base = c.ThrottleBase
	}
	if base <= 0 || c.Cap <= 0 {
		return 0
	}
	multiplier := c.Multiplier
	if !(multiplier >= 1) { // also NaN
		multiplier = 1
	}
	// In floating point a power too large is +Inf and ends at the cap; the shifts and products of integers would wrap.
	grown := scale(base, math.Pow(multiplier, float64(max(n, 1)-1)))
	return min(grown, c.Cap)
}

// part is a share of d, never more than d whatever the share: a wait over the ceiling would outlast the deadline it was fitted to.
func part(d time.Duration, share float64) time.Duration {
	return min(scale(d, share), d)
}

// scale multiplies and saturates at both ends; NaN is 0.
func scale(d time.Duration, factor float64) time.Duration {
	x := float64(d) * factor
	switch {
	case x >= math.MaxInt64:
		return math.MaxInt64
	case x > 0:
		return time.Duration(x)
	default:
		return 0
	}
}
