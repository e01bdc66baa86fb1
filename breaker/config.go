package breaker

import (
	"math"
	"time"
)

// Config says when a breaker opens, for how long, and what closes it. Its fields are those of the policy's breaker block, in that
// order, so that one converts to the other; it is comparable, so that it can be part of a key.
type Config struct {
	// ConsecutiveFailures in a row open it; default 5. 0 switches the rule off.
	ConsecutiveFailures uint32
	// FailureRate is the share of the attempts in Window, above 0 and at most 1, that must have failed to open it; default 0.5.
	FailureRate float64
	// MinRequests is how many attempts Window must hold before a rate says anything, and how many without a single answer make
	// a black hole; default 20. 0 is refused.
	MinRequests uint32
	// Window is how far back the rates look; default 10s. 0 is refused. A result leaves the window at most a tenth of Window
	// early, never late.
	Window time.Duration
	// OpenBase is the first cooldown, doubled by each failed probe; default 1s. 0 is refused.
	OpenBase time.Duration
	// OpenCap bounds the doubling; default 60s. 0 is refused. Where two policies together put it below OpenBase, it wins.
	OpenCap time.Duration
	// OpenJitter lengthens each cooldown by up to this share of it, after the cap; default 0.5. 0: none.
	OpenJitter float64
	// CloseAfter is how many probes must succeed in a row to close it; default 1. 0 is refused.
	CloseAfter uint32
	// SlowCallThreshold is the latency above which an attempt is a slow call. 0, the default, switches the rule off.
	SlowCallThreshold time.Duration
	// SlowCallRate is the share of slow calls in Window, from 0 to 1, that opens it; default 0.8. 0: a single one does, once
	// Window holds MinRequests.
	SlowCallRate float64
	// MinDistinctCallers is from how many callers failures must come, or from all when fewer had attempts counted in Window;
	// default 2. 0 and 1: any caller's failures count alone. Above 8 it counts as 8.
	MinDistinctCallers uint32
	// Ramp is the time over which admissions rise from a tenth to all after closing. 0, the default, admits all at once.
	Ramp time.Duration
	// TimeoutFloor excuses the time-out of an attempt that its caller gave less than this (the exact rule stands at
	// [Attempt.Cut]); default 1s. 0: every time-out counts.
	TimeoutFloor time.Duration
}

// cooldown is the open time after so many failed probes in a row. The cap comes before the jitter: origins that reached it
// together must not come back together.
func cooldown(c *Config, failedProbes uint32, rnd float64) time.Duration {
	d := c.OpenBase
	for ; failedProbes > 0 && d < c.OpenCap; failedProbes-- {
		if d > math.MaxInt64/2 {
			d = math.MaxInt64
			break
		}
		d *= 2
	}
	d = min(d, c.OpenCap)
	grown := float64(d) * (1 + c.OpenJitter*rnd)
	if grown >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(d, time.Duration(grown))
}
