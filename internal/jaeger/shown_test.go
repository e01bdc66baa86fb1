package jaeger

import (
	"bytes"
	"context"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

var update = flag.Bool("update", false, "rewrite testdata with what Jaeger shows now")

// One trace of three programs, as a person finds it in Jaeger: a caller and an upstream that trace by themselves, and between them a
// call whose first attempt is answered 503, whose second loses its answer, and whose third succeeds. What is shown stands in
// testdata, for reading in review.
func TestRetriedCallIsShown(t *testing.T) {
	j := startJaeger(t)
	checkout, orders := tracing(t, j, "checkout"), tracing(t, j, "orders")
	up := startUpstream(t, map[string][]habit{"/orders/17": {
		orders.traced(answer(503)), orders.traced(hangUp), orders.traced(answer(200)),
	}})
	b := startBroker(t, j.otlp["grpc"])

	ctx, span := checkout.Start(t.Context(), callName, oteltrace.WithSpanKind(oteltrace.SpanKindClient))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	resp := b.call(t, carrier["traceparent"], &pb.CallRequest{
		Request: &pb.HttpRequest{Method: "GET", Url: up.URL + "/orders/17?customer=42"},
		Labels:  map[string]string{"team": "checkout"},
	})
	span.End()
	if resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || len(resp.GetAttempts()) != 3 {
		t.Fatalf("%v", resp)
	}
	checkout.flush(t)
	orders.flush(t)
	found := j.trace(t, span.SpanContext().TraceID().String(), 1+1+3+3)

	shown := normalised(t, &found)
	file := filepath.Join("testdata", "retried.json")
	if *update {
		if err := os.WriteFile(file, shown, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(shown, want) {
		was, is := strings.Split(string(want), "\n"), strings.Split(string(shown), "\n")
		line := 0
		for line < len(was) && line < len(is) && was[line] == is[line] {
			line++
		}
		t.Errorf("%s:%d: Jaeger shows another trace from here on; -update rewrites the file, git tells the difference\n%s", file, line+1,
			strings.Join(is[line:min(line+5, len(is))], "\n"))
	}
}

// program beside the broker that traces as any does.
type traced struct {
	oteltrace.Tracer
	provider *sdktrace.TracerProvider
}

func tracing(t *testing.T, j *jaeger, service string) *traced {
	t.Helper()
	out, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpointURL(j.otlp["grpc"]))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(out), sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", service))))
	t.Cleanup(func() { _ = provider.Shutdown(context.WithoutCancel(t.Context())) })
	return &traced{provider.Tracer("example.com/" + service), provider}
}

func (p *traced) flush(t *testing.T) {
	t.Helper()
	if err := p.provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// traced has a span of its own for each request, in the trace that the request names.
func (p *traced) traced(h habit) habit {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		_, span := p.Start(ctx, r.Method+" /orders/{id}", oteltrace.WithSpanKind(oteltrace.SpanKindServer))
		defer func() { span.End() }() // before a hang-up is felt; called so, it takes the panic of one for no exception
		h(w, r)
	}
}
