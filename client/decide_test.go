package client_test

import (
	"context"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestDecideGoesByNextAndByEffectWhereNextIsNotKnown(t *testing.T) {
	for _, tt := range []struct {
		name string
		resp *pb.CallResponse
		want client.Advice
	}{
		{"done", &pb.CallResponse{Next: pb.NextStep_NEXT_STEP_DONE}, client.Advice{Step: client.StepDone}},
		{"fix", &pb.CallResponse{Next: pb.NextStep_NEXT_STEP_FIX_REQUEST}, client.Advice{Step: client.StepFix}},
		{
			"retry after", &pb.CallResponse{Next: pb.NextStep_NEXT_STEP_RETRY, RetryAfter: durationpb.New(1500 * time.Millisecond)},
			client.Advice{Step: client.StepRetry, After: 1500 * time.Millisecond},
		},
		{"retry, no delay known", &pb.CallResponse{Next: pb.NextStep_NEXT_STEP_RETRY}, client.Advice{Step: client.StepRetry}},
		{
			"retry under the id of the reply",
			&pb.CallResponse{Next: pb.NextStep_NEXT_STEP_RETRY_SAME_ID, OperationId: "made-by-broker", RetryAfter: durationpb.New(time.Second)},
			client.Advice{Step: client.StepRetrySameID, OperationID: "made-by-broker", After: time.Second},
		},
		{
			"reconcile", &pb.CallResponse{Next: pb.NextStep_NEXT_STEP_RECONCILE, Effect: pb.Effect_EFFECT_UNKNOWN, OperationId: "x"},
			client.Advice{Step: client.StepReconcile},
		},
		{"wait", &pb.CallResponse{Next: pb.NextStep_NEXT_STEP_WAIT}, client.Advice{Step: client.StepWait}},
		{"a later step, nothing done", &pb.CallResponse{Next: 99, Effect: pb.Effect_EFFECT_NONE}, client.Advice{Step: client.StepRetry}},
		{"a later step, answered", &pb.CallResponse{Next: 99, Effect: pb.Effect_EFFECT_ANSWERED}, client.Advice{Step: client.StepFix}},
		{"a later step, unknown", &pb.CallResponse{Next: 99, Effect: pb.Effect_EFFECT_UNKNOWN}, client.Advice{Step: client.StepReconcile}},
		{"a later step, a later effect", &pb.CallResponse{Next: 99, Effect: 99}, client.Advice{Step: client.StepReconcile}},
		{"nothing is said", &pb.CallResponse{}, client.Advice{Step: client.StepReconcile}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := client.Decide(tt.resp); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDecideErrorTellsRefusalFromLoss(t *testing.T) {
	refused := func(code codes.Code, delay time.Duration) error {
		return detailed(
			t, code,
			&errdetails.ErrorInfo{Domain: "sallyport", Metadata: map[string]string{"sent": "false"}},
			&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)},
		)
	}
	post := &pb.CallRequest{Request: &pb.HttpRequest{Method: "POST"}, OperationId: "id"}
	get := &pb.CallRequest{Request: &pb.HttpRequest{Method: "GET"}}
	for _, tt := range []struct {
		name          string
		err           error
		req           *pb.CallRequest
		underContract bool
		want          client.Advice
	}{
		{"the broker is full", refused(codes.ResourceExhausted, time.Second), post, false, client.Advice{Step: client.StepRetry, After: time.Second}},
		{"it drains", refused(codes.Unavailable, 0), post, false, client.Advice{Step: client.StepRetry}},
		{"a panic before it was sent", refused(codes.Internal, 0), post, false, client.Advice{Step: client.StepRetry}},
		{"the request cannot be taken", refused(codes.InvalidArgument, 0), get, true, client.Advice{Step: client.StepFix}},
		{"the token is refused", refused(codes.Unauthenticated, 0), get, false, client.Advice{Step: client.StepFix}},
		{"lost, GET", status.Error(codes.Unavailable, ""), get, false, client.Advice{Step: client.StepRetry}},
		{"lost, POST under a contract", status.Error(codes.Unavailable, ""), post, true, client.Advice{Step: client.StepRetrySameID, OperationID: "id"}},
		{"lost, POST", status.Error(codes.Unavailable, ""), post, false, client.Advice{Step: client.StepReconcile}},
		{"the time was up", context.DeadlineExceeded, post, false, client.Advice{Step: client.StepReconcile}},
		{
			"lost, POST under a contract without an id of its own", status.Error(codes.Internal, ""),
			&pb.CallRequest{Request: &pb.HttpRequest{Method: "POST"}}, true,
			client.Advice{Step: client.StepReconcile},
		},
		{
			"lost, never to be repeated", status.Error(codes.Unavailable, ""),
			&pb.CallRequest{Request: &pb.HttpRequest{Method: "GET"}, OperationId: "id", RepeatSafety: pb.RepeatSafety_REPEAT_SAFETY_NEVER},
			true,
			client.Advice{Step: client.StepReconcile},
		},
		{
			"methods are case-sensitive", status.Error(codes.Unavailable, ""),
			&pb.CallRequest{Request: &pb.HttpRequest{Method: "get"}}, false,
			client.Advice{Step: client.StepReconcile},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := client.DecideError(tt.err, tt.req, tt.underContract); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// The file is what the clients of other languages ship.
func TestServiceConfigIsTheSharedOneAndSendsNothingTwice(t *testing.T) {
	text, err := os.ReadFile("../clients/service_config.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != client.ServiceConfig {
		t.Error("client/service_config.go differs from clients/service_config.json")
	}
	// Read by the library, so that a file no client could use does not pass.
	conn, err := grpc.NewClient("127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	var config struct {
		MethodConfig []map[string]any `json:"methodConfig"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if len(config.MethodConfig) == 0 {
		t.Error("no method has a config")
	}
	for _, method := range config.MethodConfig {
		for _, field := range []string{"retryPolicy", "hedgingPolicy"} {
			if _, ok := method[field]; ok {
				t.Errorf("there is a %s", field)
			}
		}
	}
	want := map[string]any{"service": pb.CallService_ServiceDesc.ServiceName}
	if got := config.MethodConfig[0]["name"].([]any); !reflect.DeepEqual(got, []any{want}) {
		t.Errorf("it is about %v, want %v", got, want)
	}
}

// A stock channel with a retry policy sends it four times; ours once, whatever a service config says.
func TestRefusalOfTheBrokerIsNotResent(t *testing.T) {
	f := &fake{err: status.Error(codes.Unavailable, "lost"), asked: make(chan metadata.MD, 8)}
	addr := serve(t, "tcp", "127.0.0.1:0", f).Addr().String()
	if _, err := call(t, dial(t, addr, client.Config{})); status.Code(err) != codes.Unavailable {
		t.Errorf("error %v", err)
	}
	if n := len(f.asked); n != 1 {
		t.Errorf("the broker was asked %d times, want once", n)
	}

	stock, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(`{"methodConfig": [{
		"name": [{"service": "sallyport.v1.CallService"}],
		"retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}
	}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stock.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := pb.NewCallServiceClient(stock).Call(ctx, &pb.CallRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("error %v", err)
	}
	if n := len(f.asked); n != 1+4 {
		t.Errorf("a stock channel asked %d times: this test would not see a resend", n-1)
	}
}
