package polyglot

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// vector is one answer or error of a broker. What to do after it is the Go client's word, which its own tests hold.
type vector struct {
	OperationID   string `json:"operation_id"`
	Method        string `json:"method"`
	Never         bool   `json:"never"`
	UnderContract bool   `json:"under_contract"`

	resp    *pb.CallResponse
	err     error
	details []byte // the trailer of the details, where it is not that of err
}

// advice is what a program prints of one.
type advice struct {
	Step        string `json:"step"`
	AfterMs     int64  `json:"after_ms"`
	OperationID string `json:"operation_id"`
}

func (v vector) want() advice {
	var a client.Advice
	if v.err == nil {
		a = client.Decide(v.resp)
	} else {
		req := &pb.CallRequest{Request: &pb.HttpRequest{Method: v.Method}, OperationId: v.OperationID}
		if v.Never {
			req.RepeatSafety = pb.RepeatSafety_REPEAT_SAFETY_NEVER
		}
		a = client.DecideError(v.err, req, v.UnderContract)
	}
	return advice{a.Step.String(), a.After.Milliseconds(), a.OperationID}
}

// vectors are every next step with every effect, those of a later broker included, every code with and without proof, and what
// looks like proof and is none.
func vectors() []vector {
	all := []vector{{OperationID: "large-reply", Method: "GET", resp: &pb.CallResponse{
		Next: pb.NextStep_NEXT_STEP_DONE, Response: &pb.HttpResponse{Body: make([]byte, 16<<20)},
	}}}
	for _, next := range []pb.NextStep{0, 1, 2, 3, 4, 5, 6, 99} {
		for _, effect := range []pb.Effect{0, 1, 2, 3, 99} {
			all = append(all, vector{
				OperationID: fmt.Sprintf("next-%d-effect-%d", next, effect), Method: "POST",
				resp: &pb.CallResponse{
					Next: next, Effect: effect, OperationId: "of-the-reply", RetryAfter: durationpb.New(1500 * time.Millisecond),
				},
			})
		}
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		all = append(
			all,
			vector{OperationID: "refused-" + code.String(), Method: "POST", err: detailed(code, errorInfo("sallyport", "false"))},
			vector{OperationID: "lost-" + code.String(), Method: "POST", err: status.Error(code, "lost")},
		)
	}
	lost := status.Error(codes.Unavailable, "lost")
	bad, _ := anypb.New(errorInfo("sallyport", "false"))
	bad.Value = bad.GetValue()[1:]
	return append(
		all,
		vector{OperationID: "lost-get", Method: "GET", err: lost},
		vector{OperationID: "lost-get-never", Method: "GET", Never: true, err: lost},
		vector{OperationID: "lost-lower-case-get", Method: "get", err: lost},
		vector{OperationID: "lost-delete", Method: "DELETE", err: lost},
		vector{OperationID: "lost-under-contract", Method: "POST", UnderContract: true, err: lost},
		vector{OperationID: "lost-under-contract-never", Method: "POST", UnderContract: true, Never: true, err: lost},
		vector{OperationID: "full", Method: "POST", err: detailed(
			codes.ResourceExhausted, errorInfo("sallyport", "false"), &errdetails.RetryInfo{RetryDelay: durationpb.New(250 * time.Millisecond)},
		)},
		vector{OperationID: "another-domain", Method: "POST", err: detailed(codes.Unavailable, errorInfo("example.com", "false"))},
		vector{OperationID: "sent-true", Method: "POST", err: detailed(codes.Unavailable, errorInfo("sallyport", "true"))},
		vector{OperationID: "sent-unsaid", Method: "POST", err: detailed(codes.Internal, &errdetails.ErrorInfo{Domain: "sallyport"})},
		vector{OperationID: "other-details", Method: "POST", err: detailed(codes.Unavailable, &errdetails.RetryInfo{})},
		vector{OperationID: "damaged-status", Method: "POST", err: lost, details: []byte{0xff, 0xff}},
		vector{OperationID: "damaged-info", Method: "POST", err: lost, details: statusBytes(codes.Unavailable, bad)},
		vector{OperationID: "of-another-code", Method: "POST", err: lost, details: statusBytes(codes.Internal, whole(errorInfo("sallyport", "false")))},
	)
}

func errorInfo(domain, sent string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Domain: domain, Reason: "DRAINING", Metadata: map[string]string{"sent": sent}}
}

func whole(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

func statusBytes(code codes.Code, details ...*anypb.Any) []byte {
	b, err := proto.Marshal(&statuspb.Status{Code: int32(code), Message: "lost", Details: details})
	if err != nil {
		panic(err)
	}
	return b
}

func detailed(code codes.Code, details ...proto.Message) error {
	s := &statuspb.Status{Code: int32(code), Message: "refused"}
	for _, d := range details {
		s.Details = append(s.Details, whole(d))
	}
	return status.ErrorProto(s)
}

// fake is a broker that answers what the list says, by operation id, and counts.
type fake struct {
	pb.UnimplementedCallServiceServer
	answers map[string]vector

	mu    sync.Mutex // protects the fields below
	asked map[string]int
}

func (f *fake) Call(ctx context.Context, req *pb.CallRequest) (*pb.CallResponse, error) {
	f.mu.Lock()
	f.asked[req.GetOperationId()]++
	f.mu.Unlock()
	v, ok := f.answers[req.GetOperationId()]
	if !ok { // "stock", what a channel with a retry policy asks
		return nil, status.Error(codes.Unavailable, "lost")
	}
	if v.details != nil {
		if err := grpc.SetTrailer(ctx, metadata.Pairs("grpc-status-details-bin", string(v.details))); err != nil {
			return nil, err
		}
	}
	return v.resp, v.err
}

// checkVectors has the program ask for every vector: it must advise what the Go client does, and ask once.
func checkVectors(t *testing.T, run program) {
	t.Helper()
	all := vectors()
	f := &fake{answers: map[string]vector{}, asked: map[string]int{}}
	for _, v := range all {
		f.answers[v.OperationID] = v
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "vectors.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	report := output(t, run("vectors", serve(t, f), list))
	var got map[string]advice
	if err := json.Unmarshal(report, &got); err != nil {
		t.Fatalf("%v in the report\n%s", err, report)
	}
	for _, v := range all {
		if got[v.OperationID] != v.want() {
			t.Errorf("%s: the advice is %+v, want %+v", v.OperationID, got[v.OperationID], v.want())
		}
		if n := f.asked[v.OperationID]; n != 1 {
			t.Errorf("%s: the broker was asked %d times, want once", v.OperationID, n)
		}
	}
	// What the shipped service config and its options are against; and this test sees a resend.
	if n := f.asked["stock"]; n != 4 {
		t.Errorf("a channel with a retry policy asked %d times, want 4", n)
	}
}

// serve gives the address of the fake.
func serve(t *testing.T, f *fake) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterCallServiceServer(s, f)
	done := make(chan error, 1) // receives one value
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}
