package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Environment looks up a variable, as os.LookupEnv does.
type Environment func(name string) (string, bool)

func (e Environment) value(names ...string) string {
	for _, name := range names {
		if v, ok := e(name); ok && v != "" {
			return v
		}
	}
	return ""
}

// New makes the observer that the standard OTEL_* variables ask for. Without an OTLP endpoint in them it exports nothing. The
// endpoint need not be there: spans wait in a bounded queue and are dropped when it is full. log hears of every export that fails.
func New(ctx context.Context, env Environment, version string, log *slog.Logger) (*Observer, error) {
	endpoint := env.value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" || strings.EqualFold(env.value("OTEL_SDK_DISABLED"), "true") || env.value("OTEL_TRACES_EXPORTER") == "none" {
		return &Observer{}, nil
	}
	exporter, err := newExporter(ctx, env)
	if err != nil {
		return nil, fmt.Errorf("traces to %s: %w", endpoint, err)
	}
	exporter = logged{exporter, log}
	// Of the attributes of the environment the name wins over ours, as OTEL_SERVICE_NAME should.
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "sallyport"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	// The sampler and the queue come from OTEL_TRACES_SAMPLER and OTEL_BSP_*, which the SDK reads itself.
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return &Observer{provider: provider, exporter: exporter, tracer: provider.Tracer("github.com/sallyport/sallyport")}, nil
}

func newExporter(ctx context.Context, env Environment) (sdktrace.SpanExporter, error) {
	switch protocol := env.value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "", "grpc":
		return otlptracegrpc.New(ctx) //nolint:wrapcheck // New names the endpoint
	case "http/protobuf":
		return otlptracehttp.New(ctx) //nolint:wrapcheck // as above
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL %q: give grpc or http/protobuf", protocol)
	}
}

// logged is an exporter whose failures go to the log of the broker: the SDK would print them on a line of its own making.
type logged struct {
	sdktrace.SpanExporter
	log *slog.Logger
}

// ExportSpans exports a batch.
func (l logged) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := l.SpanExporter.ExportSpans(ctx, spans); err != nil {
		l.log.Warn("spans are lost: the export failed", "spans", len(spans), "error", err)
	}
	return nil
}

// shutdownTime bounds the last export: a collector that hangs must not hold up the end of the process.
const shutdownTime = 3 * time.Second

// Close exports what is left, for a short while, also where ctx has ended: that is how a broker is told to end.
func (o *Observer) Close(ctx context.Context) error {
	if o.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	err := o.provider.Shutdown(ctx)
	if err != nil {
		// The SDK stops waiting, and leaves its export running: it ends with the exporter, at once when the time is already up.
		over, now := context.WithCancel(ctx)
		now()
		_ = o.exporter.Shutdown(over) // which says that the time is up
		return fmt.Errorf("last export: %w", err)
	}
	return nil
}
