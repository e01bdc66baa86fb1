package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// seen is an instant of the golden files; later is when they were made.
var (
	seen  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	later = seen.Add(3*time.Minute + 2*time.Second)
)

// lost is a POST whose answer never came.
func lost(id string) *pb.Operation {
	return &pb.Operation{
		OperationId: id, State: pb.OperationState_OPERATION_STATE_UNKNOWN, Outcome: pb.Outcome_OUTCOME_UNKNOWN,
		Effect: pb.Effect_EFFECT_UNKNOWN, Reason: pb.Reason_REASON_NOT_REPEATABLE,
		CreateTime: timestamppb.New(seen), UpdateTime: timestamppb.New(seen.Add(time.Second)),
		Attempts: []*pb.Attempt{{
			Number: 1, Kind: pb.AttemptKind_ATTEMPT_KIND_PRIMARY, Offset: ms(0), Duration: ms(12),
			Evidence: pb.Evidence_EVIDENCE_SENT_NO_RESPONSE, Failure: pb.Failure_FAILURE_CONNECTION_LOST, Detail: "the peer closed it",
			Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_STOP, Reason: pb.Reason_REASON_NOT_REPEATABLE},
		}},
	}
}

// with changes an operation.
func with(o *pb.Operation, change func(o *pb.Operation)) *pb.Operation {
	change(o)
	return o
}

func answered(o *pb.Operation, code uint32, body string) {
	o.State, o.Effect = pb.OperationState_OPERATION_STATE_FINISHED, pb.Effect_EFFECT_ANSWERED
	o.Attempts[0].Status, o.Attempts[0].Evidence, o.Attempts[0].Failure = code, pb.Evidence_EVIDENCE_ANSWERED, 0
	o.Response = &pb.HttpResponse{Status: code, Protocol: "HTTP/1.1", Body: []byte(body)}
}

func TestOperationReadsAsWritten(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    *pb.Operation
	}{
		{"unknown", lost("charge-1001")},
		{"running", with(lost("charge-1001"), func(o *pb.Operation) {
			o.State, o.Outcome, o.Effect, o.Reason, o.Attempts = pb.OperationState_OPERATION_STATE_RUNNING, 0, 0, 0, nil
		})},
		{"late", with(lost("charge-1001"), func(o *pb.Operation) { answered(o, 201, `{"charge": 1}`) })},
		{"bodygone", with(lost("charge-1001"), func(o *pb.Operation) {
			answered(o, 201, "")
			o.Response, o.Outcome, o.Reason = nil, pb.Outcome_OUTCOME_SUCCESS, pb.Reason_REASON_SUCCESS
		})},
		{"hostile", with(lost("\x1b[2J"+strings.Repeat("x", 250)), func(o *pb.Operation) { answered(o, 200, "\x1b[31mred") })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			printOperation(&b, tt.o, later)
			golden(t, filepath.Join("testdata", "operation", tt.name+".txt"), b.String())
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// What to do follows from the effect and from what the ledger stores. No unknown one is ever told to be sent again.
func TestOperationTellsWhatToDo(t *testing.T) {
	const (
		running, finished, unknown = pb.OperationState_OPERATION_STATE_RUNNING, pb.OperationState_OPERATION_STATE_FINISHED, pb.OperationState_OPERATION_STATE_UNKNOWN
		nothing, told, open        = pb.Effect_EFFECT_NONE, pb.Effect_EFFECT_ANSWERED, pb.Effect_EFFECT_UNKNOWN
	)
	for _, tt := range []struct {
		name    string
		state   pb.OperationState
		outcome pb.Outcome
		effect  pb.Effect
		status  uint32
		begins  string
	}{
		{"its caller waits", running, 0, 0, 0, "ask later, it is still running; a call under this id waits"},
		{"a late attempt runs", running, pb.Outcome_OUTCOME_UNKNOWN, open, 0, "ask later: its caller has been answered"},
		{"deferred", running, pb.Outcome_OUTCOME_DEFERRED, 0, 0, "ask later, it is still running"},
		{"lost", unknown, pb.Outcome_OUTCOME_UNKNOWN, open, 0, "find out what the upstream did"},
		{"a 502 to a POST", unknown, pb.Outcome_OUTCOME_HTTP_ERROR, open, 502, "find out what the upstream did"},
		{"cancelled after the send", unknown, pb.Outcome_OUTCOME_CANCELLED, open, 0, "find out what the upstream did"},
		{"done", finished, pb.Outcome_OUTCOME_SUCCESS, told, 201, "nothing, it is done"},
		{"done without a trace", finished, pb.Outcome_OUTCOME_SUCCESS, told, 0, "nothing, it is done"},
		{"lost, and answered late", finished, pb.Outcome_OUTCOME_UNKNOWN, told, 201, "go by the answer, a 201"},
		{"lost, and refused late", finished, pb.Outcome_OUTCOME_UNKNOWN, told, 404, "go by the answer, a 404"},
		{"lost, and late without a token", finished, pb.Outcome_OUTCOME_UNKNOWN, told, 401, "send it again under this id once"},
		{"cancelled, and answered late", finished, pb.Outcome_OUTCOME_CANCELLED, told, 201, "go by the answer, a 201"},
		{"a GET cancelled after a 503", finished, pb.Outcome_OUTCOME_CANCELLED, told, 503, "send it again under this id once"},
		{"no such thing", finished, pb.Outcome_OUTCOME_HTTP_ERROR, told, 404, "change the request"},
		{"not implemented", finished, pb.Outcome_OUTCOME_HTTP_ERROR, told, 501, "change the request"},
		{"no token", finished, pb.Outcome_OUTCOME_HTTP_ERROR, told, 401, "send it again under this id once"},
		{"another payload", finished, pb.Outcome_OUTCOME_OPERATION_CONFLICT, told, 422, "take a new operation id"},
		{"forbidden", finished, pb.Outcome_OUTCOME_DENIED, nothing, 0, "change the request"},
		{"no connection", finished, pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, nothing, 0, "send it again if you want it done"},
		{"too late to be sent", finished, pb.Outcome_OUTCOME_DEADLINE_EXCEEDED, nothing, 0, "send it again if you want it done"},
		{"a GET out of attempts", finished, pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, told, 503, "send it again under this id once"},
		{"a PUT out of attempts", finished, pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, open, 0, "send it again under this id and no other"},
		{"of a later version", 17, pb.Outcome_OUTCOME_SUCCESS, told, 200, "17"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &pb.Operation{State: tt.state, Outcome: tt.outcome, Effect: tt.effect}
			if tt.status != 0 {
				o.Response = &pb.HttpResponse{Status: tt.status}
			}
			if got := operationNext(o); !strings.HasPrefix(got, tt.begins) {
				t.Errorf("%q, want %q…", got, tt.begins)
			}
		})
	}
}

// Whatever an upstream wrote, an operation is plain text and fits its width.
func TestNoOperationReachesTheTerminalsControls(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		o := lost(text.Draw(t, "id"))
		o.State = pb.OperationState(rapid.Int32Range(0, 5).Draw(t, "state"))
		o.Attempts[0].Detail = text.Draw(t, "detail")
		o.Response = &pb.HttpResponse{
			Status: 200, Protocol: text.Draw(t, "protocol"), Body: []byte(text.Draw(t, "body")),
			Headers: []*pb.HttpHeader{{Name: "Content-Type", Value: text.Draw(t, "type")}},
		}
		var b strings.Builder
		printOperation(&b, o, later)
		for _, r := range b.String() {
			if r != '\n' && r != '\t' && r != '\r' && unicode.IsControl(r) || r == '\u202e' {
				t.Fatalf("%q in %q", r, b.String())
			}
		}
		shown, _, _ := strings.Cut(b.String(), "\nnext: ")
		for line := range strings.Lines(shown) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Fatalf("%d columns: %q", n, line)
			}
		}
	})
}

// shelf is a broker that has many operations, to see that pages are read as the flags say. What a real one knows is in
// testdata/script/operation.txtar.
type shelf struct {
	pb.UnimplementedCallServiceServer

	ids    []string
	sizes  chan int32 // one value for each page asked
	caller chan string
}

// ListOperations gives pages of seven at most.
func (s *shelf) ListOperations(_ context.Context, req *pb.ListOperationsRequest) (*pb.ListOperationsResponse, error) {
	s.sizes <- req.GetPageSize()
	s.caller <- req.GetCaller()
	from := 0
	if req.GetPageToken() != "" {
		if _, err := fmt.Sscan(req.GetPageToken(), &from); err != nil {
			return nil, err
		}
	}
	resp := &pb.ListOperationsResponse{}
	end := min(from+min(7, int(req.GetPageSize())), len(s.ids))
	for _, id := range s.ids[from:end] {
		resp.Operations = append(resp.Operations, lost(id))
	}
	if end < len(s.ids) {
		resp.NextPageToken = fmt.Sprint(end)
	}
	return resp, nil
}

// GetOperation knows none.
func (s *shelf) GetOperation(context.Context, *pb.GetOperationRequest) (*pb.GetOperationResponse, error) {
	st, err := status.New(codes.NotFound, "no such operation").WithDetails(&errdetails.ErrorInfo{
		Domain: "sallyport", Reason: "NOT_FOUND",
		Metadata: map[string]string{"sent": "false", "ledger": "0f3a", "known_since": "2026-11-30T12:00:00.5Z"},
	})
	if err != nil {
		return nil, err
	}
	return nil, st.Err()
}

func startShelf(t *testing.T, s *shelf) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterCallServiceServer(server, s)
	served := make(chan error, 1) // receives one value
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestListReadsAsManyPagesAsItNeeds(t *testing.T) {
	ids := make([]string, 30)
	for i := range ids {
		ids[i] = fmt.Sprintf("charge-%02d", i)
	}
	for _, tt := range []struct {
		args  []string
		want  int
		sizes []int32
	}{
		{nil, 20, []int32{20, 20, 20}},
		{[]string{"--limit", "3"}, 3, []int32{3}},
		{[]string{"--limit", "0"}, 30, []int32{200, 200, 200, 200, 200}},
		{[]string{"--limit", "100"}, 30, []int32{100, 100, 100, 100, 100}},
	} {
		t.Run(fmt.Sprint(tt.args), func(t *testing.T) {
			s := &shelf{ids: ids, sizes: make(chan int32, 10), caller: make(chan string, 10)}
			var out, errs strings.Builder
			args := append([]string{"operation", "list", "--broker", startShelf(t, s), "--caller", "shop"}, tt.args...)
			if code := run(args, strings.NewReader(""), &out, &errs); code != 0 {
				t.Fatalf("exit %d: %s", code, errs.String())
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")[1:]
			if len(lines) != tt.want || !strings.HasPrefix(lines[tt.want-1], ids[tt.want-1]+" ") {
				t.Errorf("%d lines:\n%s", len(lines), out.String())
			}
			close(s.sizes)
			var sizes []int32
			for n := range s.sizes {
				sizes = append(sizes, n)
				if c := <-s.caller; c != "shop" {
					t.Errorf("asked for %q", c)
				}
			}
			if !slices.Equal(sizes, tt.sizes) {
				t.Errorf("pages of %v, want %v", sizes, tt.sizes)
			}
		})
	}
}

// Two brokers may have two ledgers: who is told NOT_FOUND must see which one was asked, and since when it knows.
func TestNotFoundNamesTheLedger(t *testing.T) {
	var out, errs strings.Builder
	code := run([]string{"operation", "get", "charge-1", "--broker", startShelf(t, &shelf{})}, strings.NewReader(""), &out, &errs)
	const want = "sallyport: NOT_FOUND: no such operation; asked was ledger 0f3a, which knows of operations since 2026-11-30T12:00:00Z: " +
		"not known is no proof that nothing was sent\n"
	if code != exitGRPC || errs.String() != want || out.String() != "" {
		t.Errorf("exit %d, %q, %q", code, out.String(), errs.String())
	}
}
