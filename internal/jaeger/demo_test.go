package jaeger

import (
	"slices"
	"testing"

	"github.com/sallyport/sallyport/internal/process"
)

// The demo exports like any broker: what it tells can be looked at in Jaeger, every mechanism of it.
func TestDemoIsShown(t *testing.T) {
	j := startJaeger(t)
	demo := process.Start(t, append(process.Environment(), "OTEL_EXPORTER_OTLP_ENDPOINT="+j.otlp["grpc"]), program, "demo")
	demo.End(t) // by itself
	for _, tags := range []map[string]string{
		{"sallyport.outcome": "UNKNOWN"},
		{"sallyport.attempt.kind": "HEDGE"},
		{"sallyport.attempt.kind": "PROBE"},
		{"sallyport.breaker.state": "OPEN"},
		{"event": "refused", "sallyport.reason": "BREAKER_OPEN"},
		{"event": "refused", "sallyport.reason": "BUDGET_EXHAUSTED"},
		{"event": "refused", "sallyport.reason": "ORIGIN_HELD"},
	} {
		if !j.until(func() bool { return len(j.search(t, "sallyport", tags)) > 0 }) {
			t.Fatalf("no call with %v", tags)
		}
	}
	incomplete := func(found trace) bool { return len(callsOf(&found)) != 1 }
	if !j.until(func() bool { return !slices.ContainsFunc(j.search(t, "sallyport", nil), incomplete) }) {
		t.Fatal("a trace is not of one call")
	}
	for _, found := range j.search(t, "sallyport", nil) {
		call := callsOf(&found)[0]
		if len(call.References) != 0 {
			t.Errorf("the call is under %v, and nobody made it under a span", call.References)
		}
		for i := range found.Spans {
			if s := &found.Spans[i]; s.ID != call.ID {
				childOf(t, s, place{found.TraceID, call.ID})
			}
		}
	}
}

func callsOf(found *trace) []span {
	return slices.DeleteFunc(slices.Clone(found.Spans), func(s span) bool { return s.Name != callName })
}
