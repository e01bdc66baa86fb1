package tracing

import (
	"context"
	"fmt"
	"strings"

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
// endpoint need not be there: spans wait in a bounded queue and are dropped when it is full.
func New(ctx context.Context, env Environment, version string) (*Observer, error) {
	endpoint := env.value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" || strings.EqualFold(env.value("OTEL_SDK_DISABLED"), "true") || env.value("OTEL_TRACES_EXPORTER") == "none" {
		return &Observer{}, nil
	}
	exporter, err := newExporter(ctx, env)
	if err != nil {
		return nil, fmt.Errorf("traces to %s: %w", endpoint, err)
	}
	// Of the attributes of the environment the name wins over ours, as OTEL_SERVICE_NAME should.
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "sallyport"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	// The sampler and the queue come from OTEL_TRACES_SAMPLER and OTEL_BSP_*, which the SDK reads itself.
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return &Observer{provider: provider, tracer: provider.Tracer("github.com/sallyport/sallyport")}, nil
}

func newExporter(ctx context.Context, env Environment) (sdktrace.SpanExporter, error) {
	switch protocol := env.value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "", "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL %q: give grpc or http/protobuf", protocol)
	}
}
