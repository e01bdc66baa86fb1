package broker

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/tracing"
)

// logOf makes calls of a service without a server, and gives the lines of its log.
func logOf(t *testing.T, accessLog bool, sender engine.Sender, requests ...*pb.CallRequest) []map[string]any {
	t.Helper()
	out := &logBuffer{}
	observer, g := &tracing.Observer{}, guard.New(guard.Config{})
	ledger := memory.NewLedger(time.Now())
	operations := NewOperations(operation.Config{Ledger: ledger, Keeper: ledger, Owner: "broker-under-test@1", Log: newLog(&logBuffer{})}, observer)
	t.Cleanup(func() { operations.Close(context.WithoutCancel(t.Context())) })
	service := NewCallService(CallConfig{
		Operations: operations,
		Engine:     engine.New(sender, observer, g, engine.NewOrigins()), Observer: observer, BrokerID: "broker-under-test@1",
		Log: newLog(out), AccessLog: accessLog,
	}, compile(t))
	ctx, err := hangUps(t.Context(), &tap.Info{Header: metadata.Pairs("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")})
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range requests {
		_, _ = service.Call(ctx, req)
	}
	var lines []map[string]any
	for text := range strings.Lines(out.String()) {
		line := map[string]any{}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if strings.Contains(text, "s3cret") {
			t.Errorf("a secret is in the log: %s", text)
		}
		lines = append(lines, line)
	}
	return lines
}

// secretive is a request that has a secret wherever one can be. Its operation is named by its method and URL.
func secretive(method, url string) *pb.CallRequest {
	return &pb.CallRequest{
		Request: &pb.HttpRequest{
			Method: method, Url: url + "?token=s3cret", Body: []byte("s3cret"),
			Headers: []*pb.HttpHeader{{Name: "Authorization", Value: "Bearer s3cret"}},
		},
		OperationId: method + ":" + url, Labels: map[string]string{"note": "s3cret"},
	}
}

func TestAccessLogHasOneLinePerFinishedCall(t *testing.T) {
	results := []call.Result{answered(503), answered(200)}
	results[1].Response.Headers = []call.Header{{Name: "Set-Cookie", Value: "s3cret"}}
	results[1].Response.Body = []byte("s3cret")
	sent := 0
	sender := senderFunc(func(_ context.Context, _ *call.Call) call.Result {
		sent++
		return results[sent-1]
	})
	lines := logOf(t, true, sender,
		secretive("GET", "https://api.example.com/orders/17"), secretive("POST", "https://api.example.com:8443/orders"))
	ids := []string{"GET:https://api.example.com/orders/17", "POST:https://api.example.com:8443/orders"}
	want := []map[string]any{
		{
			"level": "INFO", "msg": "call", "method": "GET", "origin": "https://api.example.com:443",
			"outcome": "SUCCESS", "effect": "ANSWERED", "reason": "SUCCESS", "status": 200.0, "attempts": 2.0, "sends": 2.0,
		},
		{
			"level": "WARN", "msg": "egress denied", "method": "POST", "origin": "https://api.example.com:8443",
			"outcome": "DENIED", "effect": "NONE", "reason": "EGRESS_DENIED", "status": 0.0, "attempts": 0.0, "sends": 0.0,
		},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for i, line := range lines {
		want[i]["caller"], want[i]["policy"], want[i]["operation_id"] = "", "policies/default@1", ids[i]
		want[i]["trace_id"] = "0af7651916cd43dd8448eb211c80319c"
		for name, value := range want[i] {
			if line[name] != value {
				t.Errorf("line %d: %s is %v, want %v", i, name, line[name], value)
			}
		}
		if _, ok := line["elapsed"].(float64); !ok {
			t.Errorf("line %d: elapsed is %v", i, line["elapsed"])
		}
	}
}

func TestWithoutAccessLogOnlyDenialsAreLogged(t *testing.T) {
	sender := senderFunc(func(_ context.Context, _ *call.Call) call.Result { return answered(200) })
	lines := logOf(t, false, sender, secretive("GET", "https://api.example.com/"), secretive("GET", "https://10.1.2.3/"))
	if len(lines) != 1 || lines[0]["msg"] != "egress denied" || lines[0]["level"] != slog.LevelWarn.String() || lines[0]["rule"] == "" {
		t.Errorf("got %v", lines)
	}
}

// A call that was not taken is the caller's error: it has its answer, and no line.
func TestRefusedCallIsNoFinishedOne(t *testing.T) {
	sender := senderFunc(func(_ context.Context, _ *call.Call) call.Result { return answered(200) })
	if lines := logOf(t, true, sender, secretive("CONNECT", "https://api.example.com/")); len(lines) != 0 {
		t.Errorf("got %v", lines)
	}
}
