package broker

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracecollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/tracing"
)

const (
	fanOutAll    = pb.FanOutMode_FAN_OUT_MODE_ALL
	fanOutBest   = pb.FanOutMode_FAN_OUT_MODE_BEST_EFFORT
	fanOutFirst  = pb.FanOutMode_FAN_OUT_MODE_FIRST_SUCCESS
	fanOutQuorum = pb.FanOutMode_FAN_OUT_MODE_QUORUM
)

// branches is a fan-out of these calls, with ids a, b, c and so on.
func branches(mode pb.FanOutMode, calls ...*pb.CallRequest) *pb.FanOutRequest {
	req := &pb.FanOutRequest{Mode: mode}
	for i, c := range calls {
		req.Branches = append(req.Branches, &pb.Branch{Id: string(rune('a' + i)), Call: c})
	}
	return req
}

// told is what became of each branch, on one line: id, outcome, effect, number of attempts.
func told(resp *pb.FanOutResponse) string {
	parts := []string{strings.TrimPrefix(resp.GetOutcome().String(), "FAN_OUT_OUTCOME_")}
	for _, r := range resp.GetResults() {
		parts = append(parts, fmt.Sprintf("%s %s %s %d", r.GetId(), strings.TrimPrefix(r.GetResponse().GetOutcome().String(), "OUTCOME_"),
			strings.TrimPrefix(r.GetResponse().GetEffect().String(), "EFFECT_"), len(r.GetResponse().GetAttempts())))
	}
	return strings.Join(parts, "; ")
}

func TestFanOutNamesEveryFieldThatCannotBeTaken(t *testing.T) {
	up := scripted(t, say(okAnswer))
	r := start(t, setup{})
	good := func() *pb.CallRequest { return get(up.url("/")) }
	many := make([]*pb.CallRequest, 65)
	for i := range many {
		many[i] = good()
	}
	deferral := good()
	deferral.AllowDeferral, deferral.OperationId, deferral.ExpireTime = true, "op", timestamppb.New(time.Now().Add(time.Hour))
	unreadable := good()
	unreadable.ExpireTime = &timestamppb.Timestamp{Nanos: -1}
	key := post(up.url("/"), "no blank")
	negative := branches(fanOutAll, good(), good())
	negative.Branches[1].ReserveAfter = durationpb.New(-time.Second)
	quorum := func(mode pb.FanOutMode, n uint32) *pb.FanOutRequest {
		req := branches(mode, good(), good())
		req.Quorum = n
		return req
	}
	named := func(ids ...string) *pb.FanOutRequest {
		req := branches(fanOutAll)
		for _, id := range ids {
			req.Branches = append(req.Branches, &pb.Branch{Id: id, Call: good()})
		}
		return req
	}
	for _, tt := range []struct {
		name string
		req  *pb.FanOutRequest
		want []string
	}{
		{"no branches", branches(fanOutAll), []string{"branches"}},
		{"65 branches", branches(fanOutAll, many...), []string{"branches"}},
		{"no mode", branches(pb.FanOutMode_FAN_OUT_MODE_UNSPECIFIED, good()), []string{"mode"}},
		{"a mode of another version", branches(99, good()), []string{"mode"}},
		{"no id", named(""), []string{"branches[0].id"}},
		{"equal ids", named("x", "y", "x"), []string{"branches[2].id"}},
		{"a quorum of none", quorum(fanOutQuorum, 0), []string{"quorum"}},
		{"a quorum above the branches", quorum(fanOutQuorum, 3), []string{"quorum"}},
		{"a quorum that no int holds", quorum(fanOutQuorum, 1<<31+1), []string{"quorum"}},
		{"a quorum elsewhere", quorum(fanOutAll, 1), []string{"quorum"}},
		{"no call", &pb.FanOutRequest{Mode: fanOutAll, Branches: []*pb.Branch{{Id: "a"}}}, []string{"branches[0].call.request.method", "branches[0].call.request.url"}},
		{"one url", branches(fanOutAll, good(), get("ftp://example.com/")), []string{"branches[1].call.request.url"}},
		{"several", branches(fanOutAll, get("nonsense"), good(), key), []string{"branches[0].call.request.url", "branches[2].call.operation_id"}},
		{"a negative reserve", negative, []string{"branches[1].reserve_after"}},
		{"deferral", branches(fanOutAll, good(), deferral), []string{"branches[1].call.allow_deferral"}},
		{"a time that is none", branches(fanOutAll, unreadable), []string{"branches[0].call.expire_time"}},
		{"a body over the policy's limit", branches(fanOutAll, good(), ofSize(t, up.url("/"), 3<<20+1000)), []string{"branches[1].call.request.body"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := r.calls.FanOut(within(t), tt.req)
			var fields []string
			for _, v := range detail[errdetails.BadRequest](err).GetFieldViolations() {
				fields = append(fields, v.GetField())
			}
			if status.Code(err) != codes.InvalidArgument || unsent(err) != "INVALID_REQUEST" || !slices.Equal(fields, tt.want) {
				t.Errorf("%v, unsent reason %q, fields %q, want %q", err, unsent(err), fields, tt.want)
			}
		})
	}
	if n := len(up.requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestFanOutWithoutItsLedgerSendsNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		setup  setup
		code   codes.Code
		reason string
	}{
		{"several brokers", setup{replicas: true}, codes.FailedPrecondition, "LEDGER_NOT_SHARED"},
		{"a broken one", setup{ledger: brokenLedger{memory.NewLedger(time.Now())}}, codes.Unavailable, "LEDGER_UNAVAILABLE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := scripted(t, say(okAnswer))
			r := start(t, tt.setup)
			_, err := r.calls.FanOut(within(t), branches(fanOutBest, get(up.url("/")), post(up.url("/"), "op")))
			if status.Code(err) != tt.code || unsent(err) != tt.reason || len(up.requests()) != 0 {
				t.Errorf("%v, %d requests", err, len(up.requests()))
			}
			if resp, err := r.calls.FanOut(within(t), branches(fanOutBest, get(up.url("/")))); err != nil || told(resp) != "COMPLETE; a SUCCESS ANSWERED 1" {
				t.Errorf("without an id: %v, %v", resp, err)
			}
		})
	}
}

// A loser that is being sent loses its connection at the upstream, at once, and its slot and its room come back.
func TestFanOutEndsTheConnectionsOfItsLosers(t *testing.T) {
	ended := make(chan struct{})
	slow := scripted(t, hold(ended), say(okAnswer))
	quick := scripted(t, func(c net.Conn) bool { <-slow.arrived; return say(okAnswer)(c) })
	rule := policy.Rule{Name: "policies/narrow", Revision: 1, File: true}
	rule.Concurrency.MaxInFlight, rule.Concurrency.MaxPending = new(uint32(1)), new(uint32(0))
	r := start(t, setup{rules: []policy.Rule{rule}})
	resp, err := r.calls.FanOut(within(t), branches(fanOutFirst, post(slow.url("/charges"), ""), get(quick.url("/"))))
	if err != nil || told(resp) != "COMPLETE; a CANCELLED UNKNOWN 1; b SUCCESS ANSWERED 1" {
		t.Fatalf("%v, %v", resp, err)
	}
	lost := resp.GetResults()[0].GetResponse()
	if a := lost.GetAttempts()[0]; a.GetEvidence() != pb.Evidence_EVIDENCE_SENT_NO_RESPONSE || a.GetFailure() != pb.Failure_FAILURE_CANCELLED || lost.GetRetrySafe() || lost.GetNext() != pb.NextStep_NEXT_STEP_RECONCILE {
		t.Errorf("%v", lost)
	}
	select {
	case <-ended:
	case <-within(t).Done():
		t.Fatal("the upstream still has its connection")
	}
	if load := r.server.Load(); load.Calls != 0 || load.Bytes != 0 {
		t.Errorf("still taken: %+v", load)
	}
	if resp, err := r.calls.Call(within(t), get(slow.url("/"))); err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("the one slot: %v, %v", resp, err)
	}
}

func TestFanOutBranchUnderAnIDReplays(t *testing.T) {
	up := scripted(t, say(okAnswer))
	r := start(t, setup{})
	first, err := r.calls.FanOut(within(t), branches(fanOutAll, post(up.url("/charges"), "op"), post(up.url("/charges"), "other")))
	if err != nil || told(first) != "COMPLETE; a SUCCESS ANSWERED 1; b SUCCESS ANSWERED 1" {
		t.Fatalf("%v, %v", first, err)
	}
	again, err := r.calls.FanOut(within(t), branches(fanOutAll, get(up.url("/")), post(up.url("/charges"), "op")))
	b := again.GetResults()[1].GetResponse()
	if err != nil || again.GetOutcome() != pb.FanOutOutcome_FAN_OUT_OUTCOME_COMPLETE || !b.GetReplayed() || b.GetSends() != 0 || b.GetOperationId() != "op" || string(b.GetResponse().GetBody()) != "ok" {
		t.Errorf("%v, %v", again, err)
	}
	if alone, err := r.calls.Call(within(t), post(up.url("/charges"), "other")); err != nil || !alone.GetReplayed() {
		t.Errorf("a call of its own: %v, %v", alone, err)
	}
	if n := len(up.requests()); n != 3 {
		t.Errorf("%d requests", n)
	}
}

func TestPanicOfABranchEndsItsFanOutOnly(t *testing.T) {
	entered, proceed := make(chan struct{}, 2), make(chan struct{})
	r := start(t, setup{sender: senderFunc(func(ctx context.Context, c *call.Call) call.Result {
		if c.Target.Path == "/panic" {
			return blowUp(ctx, c)
		}
		return gated(entered, proceed)(ctx, c)
	})})
	beside := make(chan error, 1) // receives one value, never closed
	go func() {
		_, err := r.calls.Call(within(t), get("http://127.0.0.1/hold"))
		beside <- err
	}()
	<-entered
	_, err := r.calls.FanOut(within(t), branches(fanOutBest, get("http://127.0.0.1/hold"), get("http://127.0.0.1/panic")))
	if status.Code(err) != codes.Internal || len(status.Convert(err).Details()) != 0 {
		t.Errorf("%v with details %v; a byte may have left", err, status.Convert(err).Details())
	}
	record := logged(t, r.log, err)
	if stack, _ := record["stack"].(string); record["value"] != "made for a test" || !strings.Contains(stack, "broker.blowUp") {
		t.Errorf("log record %v", record)
	}
	close(proceed)
	if err := <-beside; err != nil {
		t.Errorf("the call beside it: %v", err)
	}
	if load := r.server.Load(); load.Calls != 0 || load.Bytes != 0 {
		t.Errorf("still taken: %+v", load)
	}
}

// spanSink is an OTLP collector that keeps what it is sent.
type spanSink struct {
	tracecollector.UnimplementedTraceServiceServer

	mu    sync.Mutex // protects the fields below
	spans []*tracepb.Span
}

// Export takes a batch.
func (s *spanSink) Export(_ context.Context, req *tracecollector.ExportTraceServiceRequest) (*tracecollector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		for _, scope := range r.GetScopeSpans() {
			s.spans = append(s.spans, scope.GetSpans()...)
		}
	}
	return &tracecollector.ExportTraceServiceResponse{}, nil
}

// tracingTo makes an observer that exports to the sink.
func tracingTo(t *testing.T, s *spanSink) *tracing.Observer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	tracecollector.RegisterTraceServiceServer(server, s)
	served := make(chan error, 1) // receives one value, never closed
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	o, err := tracing.New(t.Context(), os.LookupEnv, "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The branches stand side by side below the span of the fan-out, and their attempts below them.
func TestBranchesAreChildrenOfTheFanOut(t *testing.T) {
	sink := &spanSink{}
	o := tracingTo(t, sink)
	r := start(t, setup{observer: o, sender: senderFunc(func(context.Context, *call.Call) call.Result { return answered(200) })})
	ctx := metadata.AppendToOutgoingContext(within(t), "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := r.calls.FanOut(ctx, branches(fanOutAll, get("http://127.0.0.1/"), get("http://127.0.0.1/"), get("http://127.0.0.1/")))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	parents, kinds := map[string]string{}, map[string]tracepb.Span_SpanKind{}
	var root *tracepb.Span
	for _, s := range sink.spans {
		parents[hex.EncodeToString(s.GetSpanId())], kinds[hex.EncodeToString(s.GetSpanId())] = hex.EncodeToString(s.GetParentSpanId()), s.GetKind()
		if s.GetKind() == tracepb.Span_SPAN_KIND_SERVER {
			root = s
		}
	}
	if len(sink.spans) != 7 || root.GetName() != "sallyport.v1.CallService/FanOut" || hex.EncodeToString(root.GetParentSpanId()) != "b7ad6b7169203331" {
		t.Fatalf("%d spans, the fan-out's is %v", len(sink.spans), root)
	}
	attributes := map[string]string{}
	for _, a := range root.GetAttributes() {
		attributes[a.GetKey()] = fmt.Sprint(a.GetValue().GetStringValue(), a.GetValue().GetIntValue())
	}
	if attributes["sallyport.fan_out.outcome"] != "COMPLETE0" || attributes["sallyport.fan_out.branches"] != "3" {
		t.Errorf("%v", attributes)
	}
	own := map[string]bool{}
	for _, result := range resp.GetResults() {
		b := result.GetResponse()
		attempt := b.GetAttempts()[0].GetSpanId()
		branch := parents[attempt]
		own[branch] = true
		if b.GetTraceId() != "0af7651916cd43dd8448eb211c80319c" || kinds[attempt] != tracepb.Span_SPAN_KIND_CLIENT || kinds[branch] != tracepb.Span_SPAN_KIND_INTERNAL ||
			parents[branch] != hex.EncodeToString(root.GetSpanId()) {
			t.Errorf("%s: attempt %s below %s below %s", result.GetId(), attempt, branch, parents[branch])
		}
	}
	if len(own) != 3 {
		t.Errorf("%d branches have a span of their own", len(own))
	}
}
