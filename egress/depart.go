package egress

import (
	"context"
	"time"

	"github.com/sallyport/sallyport/call"
)

// departs asks whether the request may leave on that connection, in HTTP/1.1, now that it would: an attempt that its call can leave
// alone has then more time. The first byte of any other leaves unasked.
func departs(a *call.Attempt, remote string, reused bool) bool {
	d := a.Departure
	if d == nil {
		return true
	}
	d.Way.RemoteAddress, d.Way.Protocol, d.Way.Reused = remote, protocolName, reused
	if !time.Now().Before(a.Deadline) || !d.Depart() {
		return false
	}
	a.Deadline = d.Latest
	return true
}

// stayed is the result of an attempt that was kept back.
func stayed(ctx context.Context, a *call.Attempt, reused bool) call.Result {
	return notSent(ctx, a, call.Result{
		Failure: call.FailureAttemptTimeout, Detail: "no time was left to send anything on the connection", Reused: reused,
	})
}

// queued prepares an attempt for HTTP/2, where the request leaves when the connection writes it: until then it has its own time, and
// more from then on. The context is that of the stream.
func queued(ctx context.Context, a *call.Attempt, remote string, reused bool) (of context.Context, over func()) {
	d := a.Departure
	if d == nil {
		return ctx, func() {}
	}
	d.Way.RemoteAddress, d.Way.Protocol, d.Way.Reused = remote, protocolHTTP2, reused
	of, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(time.Until(a.Deadline), func() {
		if d.Stay() {
			cancel(call.ErrTimeUp)
		}
	})
	a.Deadline = d.Latest
	return of, func() {
		timer.Stop()
		cancel(nil)
	}
}

// opened notes what a fresh connection took, for whoever does not wait for the answer.
func opened(a *call.Attempt, took call.Opening) {
	if a.Departure != nil {
		a.Departure.Way.Opening = openingOf(took)
	}
}
