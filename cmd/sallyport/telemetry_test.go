package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

// spanCollector is an OTLP collector that keeps what it is sent.
type spanCollector struct {
	collectorpb.UnimplementedTraceServiceServer

	mu    sync.Mutex // protects the fields below
	spans []*tracepb.Span
}

func (c *spanCollector) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			c.spans = append(c.spans, s.GetSpans()...)
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// startCollector sets the environment to a collector and serves it.
func startCollector(t *testing.T) *spanCollector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &spanCollector{}, grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1) // receives one value, never closed
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	return c
}

// askHealth asks as a probe of an orchestrator does.
func askHealth(t *testing.T, n *node) {
	t.Helper()
	conn, err := grpc.NewClient(address(n.grpc), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

// Spans of the whole program: joined to the caller's trace, and exported when the broker ends. Health has none.
func TestCallOfAServedBrokerReachesTheCollector(t *testing.T) {
	collector := startCollector(t)
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 503}, {status: 200, body: "hello"}}})
	n := startTestNode(t, testSettings(t))
	c := dialNode(t, n)
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-"+parent+"-01")
	resp, err := c.Call(ctx, request("GET", upstream.url+"/"))
	if err != nil {
		t.Fatal(err)
	}
	askHealth(t, n)
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	collector.mu.Lock()
	defer collector.mu.Unlock()
	byID := map[string]*tracepb.Span{}
	var server *tracepb.Span
	for _, s := range collector.spans {
		byID[hex.EncodeToString(s.GetSpanId())] = s
		if s.GetKind() == tracepb.Span_SPAN_KIND_SERVER {
			server = s
		}
		if hex.EncodeToString(s.GetTraceId()) != trace {
			t.Errorf("a span of another trace: %v", s)
		}
	}
	if len(collector.spans) != 3 || len(byID) != 3 || server == nil || hex.EncodeToString(server.GetParentSpanId()) != parent {
		t.Fatalf("spans %v", collector.spans)
	}
	if resp.GetTraceId() != trace || len(resp.GetAttempts()) != 2 {
		t.Errorf("trace %s, %d attempts", resp.GetTraceId(), len(resp.GetAttempts()))
	}
	for _, a := range resp.GetAttempts() {
		s := byID[a.GetSpanId()]
		if s == nil || s.GetKind() != tracepb.Span_SPAN_KIND_CLIENT || !bytes.Equal(s.GetParentSpanId(), server.GetSpanId()) {
			t.Errorf("attempt %d: %v", a.GetNumber(), s)
		}
	}
}
