package engine

import (
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// The margin of a policy that sets none: 5 % of the time allowed, within these bounds.
const (
	marginShare   = 20
	marginFloor   = 10 * time.Millisecond
	marginCeiling = 250 * time.Millisecond
)

// Margin is what is kept free of the time allowed for the way back, where no policy sets another.
func Margin(allowed time.Duration) time.Duration {
	return min(max(allowed/marginShare, marginFloor), marginCeiling)
}

// WorkDeadline is the instant at which the broker's work must be over: the caller's deadline, or the default when it sent none,
// never later than max_timeout (max_stream_duration for a stream), less the time that is kept free for the way back (semantics.md §1.1, §1.2).
func WorkDeadline(c *call.Call, d *policy.Deadline) time.Time {
	deadline := Deadline(c, d)
	margin := Margin(deadline.Sub(c.Arrived))
	if d.CallerMargin != nil {
		margin = *d.CallerMargin
	}
	work := deadline.Add(-max(margin, c.Reserve))
	if !c.Latest.IsZero() && c.Latest.Before(work) {
		return c.Latest
	}
	return work
}

// Deadline is the instant at which the caller has his answer, or none: his deadline, or the default when he sent none, never later than
// max_timeout (semantics.md §1.1). A stream has max_stream_duration for both (contract.md §1, StreamCall).
func Deadline(c *call.Call, d *policy.Deadline) time.Time {
	deadline, usual, most := c.Deadline, d.DefaultTimeout, d.MaxTimeout
	if c.Stream != nil {
		usual, most = d.MaxStreamDuration, d.MaxStreamDuration
	}
	if deadline.IsZero() {
		deadline = c.Arrived.Add(usual)
	}
	if latest := c.Arrived.Add(most); deadline.After(latest) {
		deadline = latest
	}
	return deadline
}
