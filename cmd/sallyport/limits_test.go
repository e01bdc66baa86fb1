package main

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What the flags say reaches the service: the smallest limit leaves room for no call at all.
func TestLimitsRuleTheBroker(t *testing.T) {
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200}}})
	s := testSettings(t)
	s.Limits.MaxBytes = 1
	n := startTestNode(t, s)
	_, err := callFor(t, dialNode(t, n), upstream.url+"/")
	reason := ""
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	if status.Code(err) != codes.ResourceExhausted || reason != "BROKER_FULL" {
		t.Errorf("got %v, reason %q", err, reason)
	}
	if requests, _ := upstream.saw("/"); requests != 0 {
		t.Errorf("the upstream saw %d requests", requests)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}
