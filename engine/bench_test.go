package engine_test

import (
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
)

// BenchmarkPlan is the cost of deciding a call that succeeds at once, from EventStarted to StepFinal.
func BenchmarkPlan(b *testing.B) {
	p, g := defaults(b), guard.New(guard.Config{})
	now := time.Now()
	c := &call.Call{
		Method: "GET", Arrived: now, Deadline: now.Add(time.Second),
		Target: call.Target{Scheme: "https", Host: "api.example.com", Port: 443},
	}
	result := call.Result{Evidence: call.EvidenceAnswered, Status: 200, Response: &call.Response{Status: 200}}
	half := func() float64 { return 0.5 }
	b.ReportAllocs()
	for b.Loop() {
		plan := engine.NewPlan(c, p, g, half)
		plan.Next(now, engine.Event{Kind: engine.EventStarted})
		plan.Next(now, engine.Event{Kind: engine.EventAdmitted})
		step := plan.Next(now.Add(time.Millisecond), engine.Event{Kind: engine.EventResult, Number: 1, Result: &result})
		if step.Kind != engine.StepFinal {
			b.Fatal("not final")
		}
	}
}
