package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// kept is a webhook that waits for its second attempt.
func kept(change func(d *pb.DeferredCall)) *pb.DeferredCall {
	d := &pb.DeferredCall{
		Name: "deferredCalls/0193b0c7-52f1-7a37-9f0e-8a3d5c1e7b42", State: pb.DeferredState_DEFERRED_STATE_RETRYING, OperationId: "order-17",
		Delivery: pb.DeliveryMode_DELIVERY_MODE_AT_LEAST_ONCE, MaxRetries: 5, Backoff: durationpb.New(time.Second),
		Call: &pb.CallRequest{
			Request: &pb.HttpRequest{Method: "POST", Url: "https://hooks.example.com/orders"}, Labels: map[string]string{"team": "shop", "kind": "paid"},
		},
		CreateTime: timestamppb.New(seen), NextAttemptTime: timestamppb.New(later.Add(time.Minute)), ExpireTime: timestamppb.New(seen.Add(24 * time.Hour)),
		Attempts: lost("").GetAttempts(),
	}
	if change != nil {
		change(d)
	}
	return d
}

func TestDeferredCallReadsAsWritten(t *testing.T) {
	for _, tt := range []struct {
		name string
		d    *pb.DeferredCall
	}{
		{"retrying", kept(nil)},
		{"unknown", kept(func(d *pb.DeferredCall) {
			d.State, d.Effect, d.Reason, d.NextAttemptTime = pb.DeferredState_DEFERRED_STATE_UNKNOWN, pb.Effect_EFFECT_UNKNOWN, pb.Reason_REASON_NOT_REPEATABLE, nil
			d.FinishTime, d.Delivery, d.Backoff = timestamppb.New(seen.Add(time.Second)), pb.DeliveryMode_DELIVERY_MODE_AT_MOST_ONCE, nil
		})},
		{"forgotten", kept(func(d *pb.DeferredCall) {
			d.State, d.Effect, d.Reason, d.NextAttemptTime = pb.DeferredState_DEFERRED_STATE_UNKNOWN, pb.Effect_EFFECT_UNKNOWN, pb.Reason_REASON_KEY_EXPIRED, nil
			d.FinishTime = timestamppb.New(seen.Add(time.Second))
		})},
		{"hostile", kept(func(d *pb.DeferredCall) {
			d.State, d.Failure, d.PossibleDuplicate = pb.DeferredState_DEFERRED_STATE_FAILED, pb.DeferredFailure_DEFERRED_FAILURE_EXPIRED, true
			d.Detail, d.OperationId, d.Call.Request.Url = "\x1b[2J gone", "\x9b1m", "https://hooks.example.com/\u202e"
			d.Call.Labels = map[string]string{"a\nb": "\a"}
			d.Response = &pb.HttpResponse{Status: 503, Protocol: "HTTP/1.1", Body: []byte("\x1b[31mred")}
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			printDeferred(&b, tt.d, later)
			golden := filepath.Join("testdata", "deferred", tt.name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("%s, want\n%s", b.String(), want)
			}
		})
	}
}

func TestCountsStandInTheOrderOfTheStates(t *testing.T) {
	got := countsText(map[string]uint64{"DEFERRED_STATE_FAILED": 2, "DEFERRED_STATE_PENDING": 10, "DEFERRED_STATE_SENDING": 0, "DEFERRED_STATE_RETRYING": 1})
	if want := "10 pending, 1 retrying, 2 failed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
