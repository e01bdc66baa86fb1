package tracing

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

// metricReaders are what reads metrics beside /metrics: an OTLP exporter every now and then, where it is asked for. Its times and its
// temporality come from OTEL_METRIC_EXPORT_* and OTEL_EXPORTER_OTLP_METRICS_*, which the SDK reads itself.
func metricReaders(ctx context.Context, s signal, res *resource.Resource, log *slog.Logger) ([]sdkmetric.Option, error) {
	if s.off() {
		return nil, nil
	}
	name, protocol := s.otlp("PROTOCOL")
	out, err := newMetricExporter(ctx, protocol)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, protocol, err)
	}
	reader := sdkmetric.NewPeriodicReader(toldExporter{out, log})
	return []sdkmetric.Option{sdkmetric.WithReader(reader), sdkmetric.WithResource(res)}, nil
}

func newMetricExporter(ctx context.Context, protocol string) (sdkmetric.Exporter, error) {
	if protocol == "http/protobuf" {
		return otlpmetrichttp.New(ctx) //nolint:wrapcheck // New names the variable
	}
	return otlpmetricgrpc.New(ctx) //nolint:wrapcheck // as above
}

// toldExporter tells the log of exports that fail: the SDK would print them on a line of its own making. Nothing is lost by one, since
// the next export has the sums of both, unless deltas were asked for.
type toldExporter struct {
	sdkmetric.Exporter
	log *slog.Logger
}

// Export exports, or says in the log that it did not.
func (e toldExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	if err := e.Exporter.Export(ctx, m); err != nil {
		e.log.Warn("metrics were not exported", "error", err)
	}
	return nil
}

// close exports a last time, as far as ctx lets it.
func (m *meter) close(ctx context.Context) error {
	if m == nil {
		return nil
	}
	if err := m.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("last export of metrics: %w", err)
	}
	return nil
}
