// Package tracing is the observer that gives calls and attempts their place in a trace.
//
// A call joins the caller's trace by W3C Trace Context in the gRPC metadata, or begins one. Every attempt has a span of its
// own under the call's, and its traceparent goes upstream; what a caller writes into a header never does. Spans are not
// exported in this version: the ids are real, so that an upstream that traces joins the caller's trace already.
package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sallyport/sallyport/call"
)

// Observer makes the ids of spans (engine.Observer).
type Observer struct{}

// Begin places a call: under the caller's span when traceparent is valid, else at the root of a new trace. An invalid one never
// fails a call (Trace Context §4.3). The context it returns is the one to make the call with; the text is the trace's id in hex.
func (Observer) Begin(ctx context.Context, traceparent, tracestate string) (context.Context, string) {
	parent := trace.SpanContext{}
	if traceparent != "" {
		carrier := propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate}
		parent = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	}
	id := parent.TraceID()
	for !id.IsValid() { // all zero is the one id that is none
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: newSpanID(), TraceFlags: parent.TraceFlags() & trace.FlagsSampled,
	})
	return context.WithValue(ctx, spanKey{}, sc), id.String()
}

type spanKey struct{}

// AttemptStarted gives the attempt a span under the call's.
func (Observer) AttemptStarted(ctx context.Context, _ *call.Call, a *call.Attempt) {
	sc, ok := ctx.Value(spanKey{}).(trace.SpanContext)
	if !ok {
		return
	}
	a.TraceID, a.SpanID = sc.TraceID().String(), newSpanID().String()
	a.TraceParent = "00-" + a.TraceID + "-" + a.SpanID + "-" + sc.TraceFlags().String()
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
