package hedge

import "time"

// Config says what is waited for. It is comparable, so that it can be part of a key; the defaults are those of the policy.
type Config struct {
	// Delay is the wait when Percentile is 0; 0: none, the hedge may start with the attempt.
	Delay time.Duration
	// Percentile of the origin's own latencies, above 0 and at most 100, that is waited for; 0: Delay counts.
	Percentile float64
}
