package engine

import (
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
)

// wouldEnd reports whether the call would end with an answer of which the head is there: then the caller of a streamed call gets it from now
// on. One after which another attempt might follow is read first.
func (p *Plan) wouldEnd(now time.Time, number uint32, head *call.Response) bool {
	trial := *p
	trial.attempts = slices.Clone(p.attempts)
	step := trial.Next(now, Event{Kind: EventResult, Number: number, Result: &call.Result{
		Evidence: call.EvidenceAnswered, Status: head.Status, Response: head,
	}})
	return step.Kind == StepFinal
}
