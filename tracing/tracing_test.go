package tracing

import (
	"regexp"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/sallyport/sallyport/call"
)

const (
	theTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	theSpan  = "00f067aa0ba902b7"
)

// parts are version, trace, span and flags (Trace Context §3.2.2).
var parts = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-(0[01])$`)

// traced begins a call and starts one attempt of it.
func traced(t *testing.T, traceparent, tracestate string) (id string, a call.Attempt) {
	t.Helper()
	o := &Observer{}
	ctx, span := o.Begin(t.Context(), traceparent, tracestate)
	o.AttemptStarted(ctx, &call.Call{}, &a)
	return span.TraceID(), a
}

func TestCallJoinsTheCallersTrace(t *testing.T) {
	for _, tt := range []struct {
		name, traceparent, tracestate string
		joined                        bool
		flags                         string
	}{
		{"sampled", "00-" + theTrace + "-" + theSpan + "-01", "", true, "01"},
		{"not sampled", "00-" + theTrace + "-" + theSpan + "-00", "", true, "00"},
		{"with a tracestate", "00-" + theTrace + "-" + theSpan + "-01", "vendor=x", true, "01"},
		{"with a bad tracestate", "00-" + theTrace + "-" + theSpan + "-01", "\x00,,==", true, "01"},
		{"a version to come", "01-" + theTrace + "-" + theSpan + "-01-more", "", true, "01"},
		{"none", "", "", false, "00"},
		{"a tracestate alone", "", "vendor=x", false, "00"},
		{"garbage", "garbage", "", false, "00"},
		{"no trace", "00-00000000000000000000000000000000-" + theSpan + "-01", "", false, "00"},
		{"no span", "00-" + theTrace + "-0000000000000000-01", "", false, "00"},
		{"capitals", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + theSpan + "-01", "", false, "00"},
		{"forbidden version", "ff-" + theTrace + "-" + theSpan + "-01", "", false, "00"},
		{"more than version 00 has", "00-" + theTrace + "-" + theSpan + "-01-more", "", false, "00"},
		{"a short trace", "00-" + theTrace[:31] + "-" + theSpan + "-01", "", false, "00"},
		{"two in one", "00-" + theTrace + "-" + theSpan + "-01,00-" + theTrace + "-" + theSpan + "-01", "", false, "00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id, a := traced(t, tt.traceparent, tt.tracestate)
			if (id == theTrace) != tt.joined {
				t.Errorf("trace %s, joined %v, want %v", id, id == theTrace, tt.joined)
			}
			p := parts.FindStringSubmatch(a.TraceParent)
			if len(p) != 4 || p[1] != id || a.TraceID != id || p[2] != a.SpanID || p[3] != tt.flags {
				t.Errorf("traceparent %q of trace %s and span %s", a.TraceParent, a.TraceID, a.SpanID)
			}
			if _, err := trace.TraceIDFromHex(a.TraceID); err != nil {
				t.Errorf("trace id: %v", err)
			}
			if _, err := trace.SpanIDFromHex(a.SpanID); err != nil {
				t.Errorf("span id: %v", err)
			}
			if a.SpanID == theSpan {
				t.Error("the attempt has the caller's span")
			}
		})
	}
}

func TestEveryCallAndAttemptHasItsOwnIDs(t *testing.T) {
	const n = 1000
	traces, spans := map[string]bool{}, map[string]bool{}
	for range n {
		o := &Observer{}
		ctx, span := o.Begin(t.Context(), "", "")
		traces[span.TraceID()] = true
		for range 2 {
			a := call.Attempt{}
			o.AttemptStarted(ctx, &call.Call{}, &a)
			if a.TraceID != span.TraceID() {
				t.Fatalf("an attempt of trace %s in trace %s", span.TraceID(), a.TraceID)
			}
			spans[a.SpanID] = true
		}
	}
	if len(traces) != n || len(spans) != 2*n {
		t.Errorf("%d traces and %d spans, want %d and %d", len(traces), len(spans), n, 2*n)
	}
}

// A trace of the process around, of another library, is not the caller's word.
func TestTraceInTheContextIsNotTaken(t *testing.T) {
	id, err := trace.TraceIDFromHex(theTrace)
	if err != nil {
		t.Fatal(err)
	}
	around := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}}))
	if _, got := (&Observer{}).Begin(around, "", ""); got.TraceID() == theTrace {
		t.Error("joined")
	}
}

func TestAttemptOutsideATraceSendsNone(t *testing.T) {
	a := call.Attempt{}
	(&Observer{}).AttemptStarted(t.Context(), &call.Call{}, &a)
	if a.TraceParent != "" || a.TraceID != "" || a.SpanID != "" {
		t.Errorf("got %+v", a)
	}
}
