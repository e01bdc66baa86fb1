package jaeger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/internal/process"
)

// policies open this machine to the calls of the tests, with waits that are short and exact. A path stands for a habit of the upstream.
const policies = `
policies:
  - name: policies/beside
    match: { hosts: ["127.0.0.1"] }
    retry: { backoff: { base: 20ms, jitter: JITTER_NONE } }
    egress: { allow_cidrs: [127.0.0.0/8], any_port: true }
  - name: policies/quotes
    match: { hosts: ["127.0.0.1"], path_prefix: /quotes }
    hedge: { delay: 50ms }
  - name: policies/weather
    match: { hosts: ["127.0.0.1"], path_prefix: /weather }
    breaker: { consecutive_failures: 2, open_base: 30s, open_jitter: 0 }
  - name: policies/ferries
    match: { hosts: ["127.0.0.1"], path_prefix: /ferries }
    concurrency: { max_in_flight: 1, max_pending: 8, pending_wait: 100ms }
  - name: policies/tides
    match: { hosts: ["127.0.0.1"], path_prefix: /tides }
    attempt: { timeout: 300ms }
    retry: { max_attempts: 1 }
  - name: policies/accounts
    match: { hosts: ["127.0.0.1"], path_prefix: /accounts }
    credentials: [{ header: X-Key, secret: accounts-key, hosts: ["127.0.0.1"] }]
`

// broker is the built program, run as an operator runs it.
type broker struct {
	*process.Process
	conn  *grpc.ClientConn
	calls pb.CallServiceClient
}

// startBroker runs a broker that exports to endpoint. A span is exported soon; the variables may say otherwise, and more.
func startBroker(t *testing.T, endpoint string, variables ...string) *broker {
	t.Helper()
	secrets := t.TempDir()
	if err := os.WriteFile(filepath.Join(secrets, "accounts-key"), []byte(injected), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := append(process.Environment(), "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_BSP_SCHEDULE_DELAY=20")
	b := &broker{}
	var at string
	b.Process, at = process.Serve(t, append(environment, variables...), program, policies, "--secrets", secrets)
	var err error
	if b.conn, err = grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.conn.Close() })
	b.calls = pb.NewCallServiceClient(b.conn)
	return b
}

// place is a caller's place in a trace.
type place struct{ trace, span string }

// caller makes places that differ.
func caller(n int) place {
	return place{fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e%04x", n), fmt.Sprintf("00f067aa0ba9%04x", n)}
}

func (p place) sampled() string   { return "00-" + p.trace + "-" + p.span + "-01" }
func (p place) unsampled() string { return "00-" + p.trace + "-" + p.span + "-00" }

// call makes a call as a caller with that traceparent.
func (b *broker) call(t *testing.T, traceparent string, req *pb.CallRequest) *pb.CallResponse {
	t.Helper()
	resp, err := b.try(t, traceparent, req)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.Log())
	}
	return resp
}

// try is for calls that may be refused, and may be used on any goroutine. More metadata are given as key and value in turn.
func (b *broker) try(t *testing.T, traceparent string, req *pb.CallRequest, more ...string) (*pb.CallResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	return b.calls.Call(metadata.AppendToOutgoingContext(ctx, append(more, "traceparent", traceparent)...), req)
}

func request(method, url string) *pb.CallRequest {
	return &pb.CallRequest{Request: &pb.HttpRequest{Method: method, Url: url}}
}
