package hedge

import (
	"fmt"
	"time"
)

// Config says what is waited for. It is comparable, so that it can be part of a key; the defaults are those of the policy.
type Config struct {
	// Delay is the wait when Percentile is 0; 0: none, the hedge may start with the attempt.
	Delay time.Duration
	// Percentile of the origin's own latencies, above 0 and at most 100, that is waited for; 0: Delay counts.
	Percentile float64
}

// Validate names the first field that nothing can wait by.
func (c Config) Validate() error {
	switch {
	case c.Delay < 0:
		return fmt.Errorf("delay: %v is negative", c.Delay)
	case !(c.Percentile >= 0 && c.Percentile <= 100): // also NaN
		return fmt.Errorf("percentile: %v is not above 0 and at most 100, or 0 for a fixed delay", c.Percentile)
	}
	return nil
}
