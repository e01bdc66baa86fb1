package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// The conversion is a cast, so names and numbers must be the same on both sides, and neither side may have more of them.
func TestEnumsOfCallAreThoseOfTheWire(t *testing.T) {
	for _, tt := range []struct {
		prefix string
		wire   protoreflect.Enum
		ours   func(protoreflect.EnumNumber) fmt.Stringer
	}{
		{"OUTCOME_", pb.Outcome(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.Outcome(n) }},
		{"EFFECT_", pb.Effect(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.Effect(n) }},
		{"REASON_", pb.Reason(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.Reason(n) }},
		{"NEXT_STEP_", pb.NextStep(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.NextStep(n) }},
		{"ATTEMPT_KIND_", pb.AttemptKind(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.Kind(n) }},
		{"EVIDENCE_", pb.Evidence(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.Evidence(n) }},
		{"FAILURE_", pb.Failure(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.Failure(n) }},
		{"VERDICT_", pb.Verdict(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.Verdict(n) }},
		{"REPEAT_SAFETY_", pb.RepeatSafety(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.RepeatSafety(n) }},
		{"CRITICALITY_", pb.Criticality(0), func(n protoreflect.EnumNumber) fmt.Stringer { return call.Criticality(n) }},
	} {
		values := tt.wire.Descriptor().Values()
		for n := range protoreflect.EnumNumber(values.Len() + 10) {
			want := "?"
			if v := values.ByNumber(n); v != nil {
				want = strings.TrimPrefix(string(v.Name()), tt.prefix)
			}
			if got := tt.ours(n).String(); got != want {
				t.Errorf("%s: %d is %s on our side and %s on the wire", tt.wire.Descriptor().Name(), n, got, want)
			}
		}
	}
}

// The names above come from tables; this ties the constants themselves to them.
func TestLastConstantsAreTheLastOfTheWire(t *testing.T) {
	for _, tt := range []struct{ ours, wire any }{
		{int32(call.OutcomeDeferred), int32(pb.Outcome_OUTCOME_DEFERRED)},
		{int32(call.EffectUnknown), int32(pb.Effect_EFFECT_UNKNOWN)},
		{int32(call.ReasonDeferred), int32(pb.Reason_REASON_DEFERRED)},
		{int32(call.ReasonKeyExpired), int32(pb.Reason_REASON_KEY_EXPIRED)},
		{int32(call.NextStepWait), int32(pb.NextStep_NEXT_STEP_WAIT)},
		{int32(call.KindRedirect), int32(pb.AttemptKind_ATTEMPT_KIND_REDIRECT)},
		{int32(call.EvidenceAnswered), int32(pb.Evidence_EVIDENCE_ANSWERED)},
		{int32(call.FailureCancelled), int32(pb.Failure_FAILURE_CANCELLED)},
		{int32(call.VerdictNone), int32(pb.Verdict_VERDICT_NONE)},
		{int32(call.RepeatSafetyIdempotent), int32(pb.RepeatSafety_REPEAT_SAFETY_IDEMPOTENT)},
		{int32(call.CriticalitySheddable), int32(pb.Criticality_CRITICALITY_SHEDDABLE)},
	} {
		if tt.ours != tt.wire {
			t.Errorf("%v on our side, %v on the wire", tt.ours, tt.wire)
		}
	}
}

func finalWithEverything() *call.Final {
	start := time.Unix(1000, 5)
	return &call.Final{
		Outcome: call.OutcomeHTTPError, Effect: call.EffectUnknown, Reason: call.ReasonNotRepeatable, Detail: "detail",
		Response: &call.Response{
			Status: 502, Headers: []call.Header{{Name: "X-Text", Value: "text"}, {Name: "X-Raw", Value: "\xffraw"}, {Name: "X-Text", Value: ""}},
			Body: []byte("\xfebody"), Trailers: []call.Header{{Name: "X-End", Value: "é"}}, Protocol: "HTTP/1.1",
		},
		Attempts: []call.Attempt{{
			Number: 2, Kind: call.KindRetry, Origin: "http://example.com:80", Start: start, Offset: 1, Waited: 2, Queued: 3, Timeout: 4, Duration: 5,
			TraceID: "trace", SpanID: "span",
			Result: call.Result{
				Evidence: call.EvidencePartialResponse, Failure: call.FailureConnectionLost, Detail: "lost", Status: 200,
				RemoteAddress: "192.0.2.1:80", Protocol: "HTTP/1.1", Reused: true,
			},
			Decision: call.Decision{Verdict: call.VerdictRetry, Reason: call.ReasonFailureRetryable, Wait: 6},
		}},
		Sends: 7, RetrySafe: true, Next: call.NextStepReconcile, RetryAfter: 8, OperationID: "op", Elapsed: 9,
	}
}

func TestReplyHoldsAllThatIsKnown(t *testing.T) {
	got := encode(finalWithEverything(), pb.Report_REPORT_FULL)
	want := &pb.CallResponse{
		Outcome: pb.Outcome_OUTCOME_HTTP_ERROR, Effect: pb.Effect_EFFECT_UNKNOWN, Reason: pb.Reason_REASON_NOT_REPEATABLE, Detail: "detail",
		Response: &pb.HttpResponse{
			Status: 502, Body: []byte("\xfebody"), Protocol: "HTTP/1.1",
			Headers:  []*pb.HttpHeader{{Name: "X-Text", Value: "text"}, {Name: "X-Raw", RawValue: []byte("\xffraw")}, {Name: "X-Text"}},
			Trailers: []*pb.HttpHeader{{Name: "X-End", Value: "é"}},
		},
		Attempts: []*pb.Attempt{{
			Number: 2, Kind: pb.AttemptKind_ATTEMPT_KIND_RETRY, Offset: durationpb.New(1), Waited: durationpb.New(2),
			Queued: durationpb.New(3), Timeout: durationpb.New(4), Duration: durationpb.New(5), Status: 200,
			Evidence: pb.Evidence_EVIDENCE_PARTIAL_RESPONSE, Failure: pb.Failure_FAILURE_CONNECTION_LOST, Detail: "lost",
			Origin: "http://example.com:80", RemoteAddress: "192.0.2.1:80", Protocol: "HTTP/1.1", ReusedConnection: true,
			Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_RETRY, Reason: pb.Reason_REASON_FAILURE_RETRYABLE, Wait: durationpb.New(6)},
			SpanId:   "span", StartTime: &timestamppb.Timestamp{Seconds: 1000, Nanos: 5}, TraceId: "trace",
		}},
		Sends: 7, RetrySafe: true, Next: pb.NextStep_NEXT_STEP_RECONCILE, RetryAfter: durationpb.New(8), OperationId: "op",
		Elapsed: durationpb.New(9),
	}
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if _, err := proto.Marshal(got); err != nil {
		t.Errorf("a reply that cannot be sent: %v", err)
	}
}

func TestWhatIsNotKnownIsAbsent(t *testing.T) {
	got := encode(&call.Final{Attempts: make([]call.Attempt, 1)}, pb.Report_REPORT_FULL)
	a := got.GetAttempts()[0]
	if got.GetResponse() != nil || got.GetRetryAfter() != nil || a.GetWaited() != nil || a.GetQueued() != nil || a.GetDecision().GetWait() != nil {
		t.Errorf("got %v", got)
	}
	if got.GetElapsed() == nil || a.GetOffset() == nil || a.GetDuration() == nil || a.GetTimeout() == nil {
		t.Errorf("a duration that is always known is absent: %v", got)
	}
}

func TestBriefReportLeavesOutOnlyTheUneventful(t *testing.T) {
	for _, tt := range []struct {
		outcome  call.Outcome
		attempts int
		success  int // the attempt that succeeded
		report   pb.Report
		want     int
	}{
		{call.OutcomeSuccess, 1, 1, pb.Report_REPORT_BRIEF, 0},
		{call.OutcomeSuccess, 1, 1, pb.Report_REPORT_FULL, 1},
		{call.OutcomeSuccess, 1, 1, pb.Report_REPORT_UNSPECIFIED, 1},
		{call.OutcomeSuccess, 2, 2, pb.Report_REPORT_BRIEF, 2},
		{call.OutcomeSuccess, 2, 1, pb.Report_REPORT_BRIEF, 0}, // the other one was a hedge
		{call.OutcomeHTTPError, 1, 0, pb.Report_REPORT_BRIEF, 1},
		{call.OutcomeUnknown, 3, 0, pb.Report_REPORT_BRIEF, 3},
	} {
		f := &call.Final{Outcome: tt.outcome, Attempts: make([]call.Attempt, tt.attempts), Sends: uint32(tt.attempts)}
		if tt.success > 0 {
			f.Attempts[tt.success-1].Decision.Reason = call.ReasonSuccess
		}
		got := encode(f, tt.report)
		if len(got.GetAttempts()) != tt.want || got.GetSends() != f.Sends {
			t.Errorf("%v, %d attempts, %v: %d listed, want %d", tt.outcome, tt.attempts, tt.report, len(got.GetAttempts()), tt.want)
		}
	}
}
