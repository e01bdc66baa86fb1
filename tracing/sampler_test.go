package tracing

import (
	"context"
	"os"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// The sampler is asked before there is a span: what it says must be what the SDK would do with the same variables.
func TestSamplesAsTheSDKWould(t *testing.T) {
	names := []string{
		"", "always_on", "ALWAYS_OFF", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
		" parentbased_traceidratio ",
	}
	for _, name := range names {
		for _, arg := range []string{"", "0", " 0.01", "0.5", "1"} {
			t.Run(name+" "+arg, func(t *testing.T) {
				t.Setenv("OTEL_TRACES_SAMPLER", name)
				t.Setenv("OTEL_TRACES_SAMPLER_ARG", arg)
				sampler := Environment(os.LookupEnv).sampler()
				ours := &Observer{sampler: sampler, tracer: sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithIDGenerator(ids{})).Tracer("")}
				theirs := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids{})).Tracer("") // reads the variables itself
				for range 200 {
					for _, parent := range parents(t) {
						sameAnswer(t, ours, theirs, parent)
					}
				}
			})
		}
	}
}

func sameAnswer(t *testing.T, ours *Observer, theirs trace.Tracer, parent trace.SpanContext) {
	t.Helper()
	above := trace.ContextWithRemoteSpanContext(t.Context(), parent)
	place, span := ours.begin(above, rpcName, trace.SpanKindServer)
	_, made := theirs.Start(context.WithValue(above, traceIDKey{}, place.TraceID()), rpcName)
	if got, want := place.WithSpanID(trace.SpanID{}), made.SpanContext().WithSpanID(trace.SpanID{}); !got.Equal(want) {
		t.Fatalf("under %v: %v, the SDK has %v", parent, got, want)
	}
	if (span != nil) != made.IsRecording() || span != nil && !span.IsRecording() {
		t.Fatalf("under %v: span %v, the SDK records: %t", parent, span, made.IsRecording())
	}
	if !place.IsValid() || parent.IsValid() && place.TraceID() != parent.TraceID() {
		t.Fatalf("under %v: place %v", parent, place)
	}
}

// parents are none, and a remote one with each decision and flag.
func parents(t *testing.T) []trace.SpanContext {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=1,other=2")
	if err != nil {
		t.Fatal(err)
	}
	all := []trace.SpanContext{{}}
	for _, flags := range []trace.TraceFlags{0, trace.FlagsSampled, 2, trace.FlagsSampled | 2} {
		all = append(all, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: newTraceID(), SpanID: newSpanID(), TraceFlags: flags, TraceState: state, Remote: true,
		}))
	}
	return all
}

// BenchmarkBegin is of calls of which one in a million is sampled.
func BenchmarkBegin(b *testing.B) {
	sampler := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(1e-6))
	o := &Observer{sampler: sampler, tracer: sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler)).Tracer("")}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		o.Begin(ctx, "", "")
	}
}
