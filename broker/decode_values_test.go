package broker

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestEveryFieldOfARequestReachesTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		got, violations := decode(ctx, &pb.CallRequest{
			Request: &pb.HttpRequest{Method: "PUT", Url: "http://example.com/a?b", Body: []byte("body"), Headers: []*pb.HttpHeader{
				{Name: "X-Text", Value: " text "}, {Name: "X-Raw", RawValue: []byte("\xff\xfe")}, {Name: "Host", Value: "elsewhere.example.com"},
			}},
			OperationId: "op-1", RepeatSafety: pb.RepeatSafety_REPEAT_SAFETY_NEVER, MaxAttempts: 2, AttemptTimeout: durationpb.New(time.Second),
			MaxResponseBytes: 99, Criticality: pb.Criticality_CRITICALITY_CRITICAL, SingleUseBody: true,
			Labels: map[string]string{"team": "blue"}, Reserve: durationpb.New(time.Minute), Report: pb.Report_REPORT_BRIEF,
		}, "ann", now)
		if len(violations) > 0 {
			t.Fatal(violations)
		}
		want := &call.Call{
			Method: "PUT", Target: got.Target, Body: []byte("body"), Caller: "ann", OperationID: "op-1",
			Headers:      []call.Header{{Name: "X-Text", Value: "text"}, {Name: "X-Raw", Value: "\xff\xfe"}},
			RepeatSafety: call.RepeatSafetyNever, Criticality: call.CriticalityCritical, SingleUseBody: true,
			MaxAttempts: 2, AttemptTimeout: time.Second, MaxResponseBytes: 99, Reserve: time.Minute,
			Arrived: now, Deadline: now.Add(3 * time.Second), Labels: map[string]string{"team": "blue"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if got.Target.Origin != "http://example.com:80" || got.Target.RequestTarget != "/a?b" {
			t.Errorf("target %+v", got.Target)
		}
	})
}

func TestCallWithoutADeadlineHasNone(t *testing.T) {
	c, _ := decode(t.Context(), get("http://example.com/"), "ann", time.Now())
	if !c.Deadline.IsZero() {
		t.Errorf("deadline %v", c.Deadline)
	}
}

// A URL may hold a password, and the error may end in a log: neither message nor details repeat any of it.
func TestInvalidArgumentTellsAllFieldsAndNoSecret(t *testing.T) {
	up := scripted(t, say(okAnswer))
	r := start(t, setup{})
	req := get(strings.Replace(up.url("/"), "http://", "http://ann:"+hush+"@", 1))
	req.Request.Method, req.OperationId = "CONNECT", " "
	_, err := r.calls.Call(within(t), req)
	if status.Code(err) != codes.InvalidArgument || unsent(err) != "INVALID_REQUEST" {
		t.Fatalf("got %v", err)
	}
	fields := ""
	for _, v := range detail[errdetails.BadRequest](err).GetFieldViolations() {
		fields += v.GetField() + " "
		if v.GetDescription() == "" || strings.Contains(v.GetDescription(), hush) {
			t.Errorf("%s: %q", v.GetField(), v.GetDescription())
		}
	}
	if fields != "request.method request.url operation_id " {
		t.Errorf("fields %q", fields)
	}
	if m := status.Convert(err).Message(); strings.Contains(m, hush) || !strings.HasSuffix(m, "(and 2 more)") {
		t.Errorf("message %q", m)
	}
	if n := len(up.requests()); n != 0 || strings.Contains(r.log.String(), hush) {
		t.Errorf("%d requests sent, log %q", n, r.log)
	}
}
