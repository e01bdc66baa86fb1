package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metricpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"

	"github.com/sallyport/sallyport/tracing"
)

// metricCollector is an OTLP collector that keeps the names of the metrics it is sent.
type metricCollector struct {
	metricpb.UnimplementedMetricsServiceServer

	mu       sync.Mutex // protects the fields below
	points   map[string]int
	services []any
}

// Export takes a batch (OTLP/gRPC).
func (c *metricCollector) Export(_ context.Context, req *metricpb.ExportMetricsServiceRequest) (*metricpb.ExportMetricsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceMetrics() {
		c.services = append(c.services, attributes(r.GetResource().GetAttributes())["service.name"])
		for _, scope := range r.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				c.points[m.GetName()] += len(m.GetSum().GetDataPoints()) + len(m.GetGauge().GetDataPoints()) + len(m.GetHistogram().GetDataPoints())
			}
		}
	}
	return &metricpb.ExportMetricsServiceResponse{}, nil
}

func startMetricCollector(t *testing.T) (*metricCollector, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &metricCollector{points: map[string]int{}}, grpc.NewServer()
	metricpb.RegisterMetricsServiceServer(server, c)
	served := make(chan error, 1) // receives one value, never closed
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Error(err)
		}
	})
	return c, "http://" + l.Addr().String()
}

// Metrics go to a collector where that is asked for, and only there; the last export is at the end.
func TestMetricsAreExportedWhereThatIsAskedFor(t *testing.T) {
	for exporters, want := range map[string]bool{"": false, "none": false, "prometheus": false, "otlp": true, "OTLP": true, "prometheus,otlp": true} {
		t.Run(exporters, func(t *testing.T) {
			c, endpoint := startMetricCollector(t)
			t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint) // spans have none
			t.Setenv("OTEL_METRICS_EXPORTER", exporters)
			t.Setenv("OTEL_SERVICE_NAME", "edge")
			o, err := tracing.New(t.Context(), os.LookupEnv, "1.2.3", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			do(t, o, giving(answered(200)), open(), asked(t, "GET", "https://api.example.com/"), sampled)
			if err := o.Close(t.Context()); err != nil {
				t.Error(err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if got := c.points["sallyport.calls"] == 1 && c.points["http.client.request.duration"] == 1 && len(c.services) == 1; got != want {
				t.Errorf("exported %v of %v", c.points, c.services)
			}
			if want && c.services[0] != "edge" {
				t.Errorf("of %v", c.services)
			}
		})
	}
}

func TestBrokenVariableOfMetricsIsNamedAtTheStart(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "127.0.0.1:4317", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is no URL"},
		{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json", `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL "http/json": give grpc or http/protobuf`},
		{"OTEL_EXPORTER_OTLP_METRICS_HEADERS", "authorization", "OTEL_EXPORTER_OTLP_METRICS_HEADERS: pair 1 has no ="},
		{"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "sometimes", `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE "sometimes": give cumulative, delta or lowmemory`},
		{"OTEL_METRIC_EXPORT_INTERVAL", "1m", `OTEL_METRIC_EXPORT_INTERVAL "1m": give a number from 1 to 86400000`},
		{"OTEL_METRIC_EXPORT_TIMEOUT", "0", `OTEL_METRIC_EXPORT_TIMEOUT "0": give a number from 1 to 86400000`},
	} {
		if err := start(t, tt.name, tt.value, "OTEL_METRICS_EXPORTER", "otlp"); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
		if err := start(t, tt.name, tt.value); err != nil {
			t.Errorf("not asked for: %v", err)
		}
	}
	// What is broken for both is named once.
	err := start(t, "OTEL_EXPORTER_OTLP_TIMEOUT", "x", "OTEL_METRICS_EXPORTER", "otlp")
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// A collector that is dead or hangs fails no export of anybody's call, is told in the log, and holds up the end as little as one for spans.
func TestHungCollectorOfMetricsHoldsUpTheEndForAKnownTime(t *testing.T) {
	for name, endpoint := range map[string]func(*testing.T) string{"dead": closedPort, "hung": hungListener} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint(t)) // of spans too
			var log bytes.Buffer                                 // written by Close, which waits for who writes
			o, err := tracing.New(t.Context(), os.LookupEnv, "1.2.3", slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			do(t, o, giving(answered(200)), open(), asked(t, "GET", "https://api.example.com/"), sampled)
			began := time.Now()
			err = o.Close(t.Context())
			if took := time.Since(began); took > 5*time.Second { // 3 s, and what a loaded machine adds
				t.Errorf("the end took %s (%v)", took, err)
			}
			if !strings.Contains(log.String(), `msg="metrics were not exported"`) {
				t.Errorf("logged\n%s", log.String())
			}
		})
	}
}
