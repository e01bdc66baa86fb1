package tracing_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/tracing"
)

// collector is an OTLP collector that keeps what it is sent.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	// export is asked before anything is kept; nil: at once.
	export func(context.Context) error

	mu        sync.Mutex // protects the fields below
	spans     []*tracepb.Span
	resources []map[string]any
}

// Export takes a batch (OTLP/gRPC).
func (c *collector) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	if c.export != nil {
		if err := c.export(ctx); err != nil {
			return nil, err
		}
	}
	c.keep(req)
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func (c *collector) keep(req *collectorpb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		c.resources = append(c.resources, attributes(r.GetResource().GetAttributes()))
		for _, scope := range r.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// startCollector serves OTLP over gRPC and gives its endpoint.
func startCollector(t *testing.T, c *collector) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1) // receives one value, never closed
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// startHTTPCollector serves OTLP over HTTP (protobuf).
func startHTTPCollector(t *testing.T, c *collector) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		req := &collectorpb.ExportTraceServiceRequest{}
		if err == nil {
			err = proto.Unmarshal(body, req)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s of %s: %v", r.URL.Path, r.Header.Get("Content-Type"), err)
		}
		c.keep(req)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// observe makes an observer that exports to the endpoint. The OTLP exporters read the environment themselves, so that it must be
// the process's.
func observe(t *testing.T, endpoint string, more ...string) *tracing.Observer {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	for i := 0; i < len(more); i += 2 {
		t.Setenv(more[i], more[i+1])
	}
	o, err := tracing.New(t.Context(), os.LookupEnv, "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// exported closes the observer, which exports what is left, and gives all spans: the call's first, then by their start.
func (c *collector) exported(t *testing.T, o *tracing.Observer) []*tracepb.Span {
	t.Helper()
	if err := o.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(c.spans, func(a, b *tracepb.Span) int {
		if a.GetKind() != b.GetKind() {
			return int(a.GetKind()) - int(b.GetKind()) // SERVER is 2, CLIENT is 3
		}
		return int(int64(a.GetStartTimeUnixNano()) - int64(b.GetStartTimeUnixNano()))
	})
	return c.spans
}

// attributes are those of a span, event or resource by name.
func attributes(list []*commonpb.KeyValue) map[string]any {
	all := map[string]any{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			all[kv.GetKey()] = int(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			all[kv.GetKey()] = v.DoubleValue
		default:
			all[kv.GetKey()] = v
		}
	}
	return all
}
