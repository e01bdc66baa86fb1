package engine

import (
	"time"

	"github.com/sallyport/sallyport/call"
)

// WorkDeadline is the instant at which the call will be over.
func (p *Plan) WorkDeadline() time.Time { return p.work }

// Request is what is sent now: the caller's, or the hop of a redirect.
func (p *Plan) Request() *call.Call { return p.call }

// WouldEnd asks what a stream asks of an answer whose head is there.
func (p *Plan) WouldEnd(now time.Time, number uint32, head *call.Response) bool {
	return p.wouldEnd(now, number, head)
}
