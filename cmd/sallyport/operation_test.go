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
	o.State, o.Effect, o.Next = pb.OperationState_OPERATION_STATE_FINISHED, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_DONE
	o.Attempts[0].Status, o.Attempts[0].Evidence, o.Attempts[0].Failure = code, pb.Evidence_EVIDENCE_ANSWERED, 0
	o.Response = &pb.HttpResponse{Status: code, Protocol: "HTTP/1.1", Body: []byte(body)}
}

func TestOperationReadsAsWritten(t *testing.T) {
	probe := func(seconds int, v pb.ProbeVerdict, code uint32, counts bool) *pb.ProbeFinding {
		return &pb.ProbeFinding{Time: timestamppb.New(seen.Add(time.Duration(seconds) * time.Second)), Verdict: v, Status: code, Counts: counts}
	}
	for _, tt := range []struct {
		name string
		o    *pb.Operation
	}{
		{"unknown", lost("charge-1001")},
		{"running", with(lost("charge-1001"), func(o *pb.Operation) {
			o.State, o.Outcome, o.Effect, o.Reason, o.Attempts = pb.OperationState_OPERATION_STATE_RUNNING, 0, 0, 0, nil
		})},
		{"late", with(lost("charge-1001"), func(o *pb.Operation) { answered(o, 201, `{"charge": 1}`) })},
		{"probed", with(lost("charge-1001"), func(o *pb.Operation) {
			o.State, o.Effect, o.Next, o.Free = pb.OperationState_OPERATION_STATE_FINISHED, pb.Effect_EFFECT_NONE, pb.NextStep_NEXT_STEP_RETRY, true
			o.Detail = "the status probe proved that the operation was not applied; its id is free for one more send"
			o.Probes = []*pb.ProbeFinding{
				probe(1, pb.ProbeVerdict_PROBE_VERDICT_NOTHING, 0, false), probe(2, pb.ProbeVerdict_PROBE_VERDICT_IN_PROGRESS, 202, false),
				probe(3, pb.ProbeVerdict_PROBE_VERDICT_NOT_APPLIED, 404, false), probe(60, pb.ProbeVerdict_PROBE_VERDICT_NOT_APPLIED, 404, true),
			}
		})},
		{"tombstone", with(lost("charge-1001"), func(o *pb.Operation) {
			answered(o, 201, "")
			o.Outcome, o.Reason, o.Next, o.Attempts, o.Policy = pb.Outcome_OUTCOME_SUCCESS, pb.Reason_REASON_SUCCESS, 0, nil, ""
			o.Response.Protocol, o.Response.BodyOmitted = "", true
		})},
		{"hostile", with(lost("\x1b[2J"+strings.Repeat("x", 250)), func(o *pb.Operation) {
			answered(o, 200, "\x1b[31mred")
			o.Detail, o.Policy = "a\x1b[2Jb\r\nc", "policies/\x1b]0;x\x07@1"
		})},
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

// What to do follows from the state first, then from what the broker says, and what a call under the id would meet from whether it is
// free. No unknown one is ever told to be sent again, whatever the broker adds.
func TestOperationTellsWhatToDo(t *testing.T) {
	const (
		running, finished, unknown = pb.OperationState_OPERATION_STATE_RUNNING, pb.OperationState_OPERATION_STATE_FINISHED, pb.OperationState_OPERATION_STATE_UNKNOWN
		free                       = "; the id is free, a call under a-1 is sent"
		kept                       = "; a call under this id gets the same answer, and nothing is sent"
	)
	for _, tt := range []struct {
		name         string
		o            *pb.Operation
		begins, ends string
	}{
		{"its caller waits", &pb.Operation{State: running}, "ask later, it is still running", "waits for the same answer"},
		{"deferred", &pb.Operation{State: running, Outcome: pb.Outcome_OUTCOME_DEFERRED}, "ask later, it is still running", "waits for the same answer"},
		{"a late attempt runs", &pb.Operation{State: running, Outcome: pb.Outcome_OUTCOME_UNKNOWN}, "ask later: its caller has been answered", "may yet settle it"},
		{"unknown", &pb.Operation{State: unknown, Next: pb.NextStep_NEXT_STEP_RECONCILE}, "find out what the upstream did", "a person has to find out"},
		{"unknown, of another opinion", &pb.Operation{State: unknown, Next: pb.NextStep_NEXT_STEP_RETRY, Free: true}, "find out what the upstream did", "a person has to find out"},
		{"done", &pb.Operation{State: finished, Next: pb.NextStep_NEXT_STEP_DONE}, "nothing, it is done", kept},
		{"refused", &pb.Operation{State: finished, Next: pb.NextStep_NEXT_STEP_FIX_REQUEST}, "change the request", kept},
		{"without a token", &pb.Operation{State: finished, Next: pb.NextStep_NEXT_STEP_FIX_REQUEST, Free: true}, "change the request", free},
		{"nothing sent", &pb.Operation{State: finished, Next: pb.NextStep_NEXT_STEP_RETRY, Free: true}, "send it again", free},
		{"keyed and lost", &pb.Operation{State: finished, Next: pb.NextStep_NEXT_STEP_RETRY_SAME_ID, Free: true}, "send it again under the same operation id and no other, a-1", free},
		{"a tombstone", &pb.Operation{State: finished}, "go by outcome, effect and status", kept},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.OperationId = "a-1"
			if got := operationNext(tt.o); !strings.HasPrefix(got, tt.begins) || !strings.HasSuffix(got, tt.ends) {
				t.Errorf("%q, want %q…%q", got, tt.begins, tt.ends)
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
		o.Attempts[0].Detail, o.Detail, o.Policy = text.Draw(t, "said"), text.Draw(t, "detail"), text.Draw(t, "policy")
		o.Next, o.Free = pb.NextStep(rapid.Int32Range(0, 7).Draw(t, "next")), rapid.Bool().Draw(t, "free")
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
		shown := strings.TrimSuffix(b.String(), answer(o.GetResponse()))
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
