package tracing

import (
	"context"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampler is the one that OTEL_TRACES_SAMPLER and its argument ask for, as the SDK would read them. It is asked before there is a
// span: of a hundred calls one may be sampled, and a span that records nothing would be made for each of the others.
func (e Environment) sampler() sdktrace.Sampler {
	ratio := 1.0
	if r, err := strconv.ParseFloat(e.value("OTEL_TRACES_SAMPLER_ARG"), 64); err == nil {
		ratio = r
	}
	switch strings.ToLower(e.value("OTEL_TRACES_SAMPLER")) {
	case "always_on":
		return sdktrace.AlwaysSample()
	case "always_off":
		return sdktrace.NeverSample()
	case "traceidratio":
		return sdktrace.TraceIDRatioBased(ratio)
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample())
	case "parentbased_traceidratio":
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))
	default:
		return sdktrace.ParentBased(sdktrace.AlwaysSample())
	}
}

// begin gives a call its place, and a span where its trace is sampled: nil otherwise. Every sampler there is decides by the parent and by
// the trace's id, both of which the span has too, so that it is sampled when it is made.
func (o *Observer) begin(above context.Context, name string, kind trace.SpanKind) (trace.SpanContext, trace.Span) {
	parent := trace.SpanContextFromContext(above)
	id := traceIDUnder(parent)
	decided := o.sampler.ShouldSample(sdktrace.SamplingParameters{
		ParentContext: above, TraceID: id, Name: name, Kind: kind,
	})
	if decided.Decision == sdktrace.Drop {
		return trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: id, SpanID: newSpanID(),
			TraceFlags: parent.TraceFlags() &^ trace.FlagsSampled, TraceState: decided.Tracestate,
		}), nil
	}
	_, span := o.tracer.Start(context.WithValue(above, traceIDKey{}, id), name, trace.WithSpanKind(kind)) //nolint:spancheck // [Call.End] or [Call.Refuse] ends it
	return span.SpanContext(), span                                                                       //nolint:spancheck // as above
}

// traceIDKey is of the id for a trace that is about to begin.
type traceIDKey struct{}

// ids are the identities of spans (sdktrace.IDGenerator): a trace gets the id of which the sampler was asked.
type ids struct{}

// NewIDs is for the first span of a trace.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, ok := ctx.Value(traceIDKey{}).(trace.TraceID)
	if !ok {
		id = newTraceID()
	}
	return id, newSpanID()
}

// NewSpanID is for a span of a trace that has begun.
func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }
