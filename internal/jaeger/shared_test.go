package jaeger

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestHedgeOverlapsTheAttemptItBeats(t *testing.T) {
	j := startJaeger(t)
	up := startUpstream(t, map[string][]habit{"/quotes": {silence, answer(200)}})
	b := startBroker(t, j.otlp["grpc"])
	resp := b.call(t, caller(0).sampled(), request("GET", up.URL+"/quotes"))
	call, attempts := j.tree(t, caller(0), resp)
	if len(attempts) != 2 || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Fatalf("%d attempts of %v", len(attempts), resp)
	}
	slow, hedge := &attempts[0], &attempts[1]
	same(t, "the loser", slow.tags(t), map[string]any{
		"sallyport.attempt.kind": "PRIMARY", "sallyport.evidence": "SENT_NO_RESPONSE", "sallyport.decision": "NONE",
		"sallyport.reason": "SUPERSEDED", "error": nil, "error.type": nil,
	})
	same(t, "the winner", hedge.tags(t), map[string]any{
		"sallyport.attempt.kind": "HEDGE", "sallyport.decision": "STOP", "sallyport.reason": "SUCCESS", "http.request.resend_count": 1.0,
	})
	if hedge.Start-slow.Start < 50_000 || hedge.Start >= slow.ends() {
		t.Errorf("the loser lasts from %d to %d, the winner from %d to %d", slow.Start, slow.ends(), hedge.Start, hedge.ends())
	}
	if len(call.Events) != 0 {
		t.Errorf("events %q", events(t, &call))
	}
	traceparents(t, caller(0), attempts, up.saw("/quotes"))
}

// A refusal in mid-call stands behind the waits; a call that is refused whole has its span and no other.
func TestRefusedCallTellsWhyWithoutAnAttempt(t *testing.T) {
	j := startJaeger(t)
	up := startUpstream(t, map[string][]habit{"/weather": {answer(503)}})
	b := startBroker(t, j.otlp["grpc"])

	opens := b.call(t, caller(0).sampled(), request("GET", up.URL+"/weather"))
	call, attempts := j.tree(t, caller(0), opens)
	told := []string{"wait STATUS_RETRYABLE", "wait STATUS_RETRYABLE", "refused BREAKER_OPEN"}
	if got := events(t, &call); !slices.Equal(got, told) || len(attempts) != 2 {
		t.Fatalf("%d attempts, events %q", len(attempts), got)
	}
	if second := call.Events[1].Time; call.Events[0].Time > attempts[1].Start || second < attempts[1].ends() ||
		call.Events[2].Time < second+40_000 {
		t.Errorf("events %v, attempts %v", call.Events, attempts)
	}
	for i, state := range []string{"CLOSED", "OPEN"} {
		same(t, "an attempt", attempts[i].tags(t), map[string]any{"sallyport.breaker.state": state})
		same(t, "its wait", byKey(t, call.Events[i].Fields), map[string]any{"sallyport.breaker.state": state})
	}

	refused := b.call(t, caller(1).sampled(), request("GET", up.URL+"/weather"))
	denied := b.call(t, caller(2).sampled(), request("GET", "http://10.1.2.3/"))
	for i, tt := range []struct {
		resp    *pb.CallResponse
		outcome pb.Outcome
		reason  string
		breaker string
	}{
		{refused, pb.Outcome_OUTCOME_BREAKER_OPEN, "BREAKER_OPEN", "OPEN"},
		{denied, pb.Outcome_OUTCOME_DENIED, "EGRESS_DENIED", "CLOSED"},
	} {
		call, attempts := j.tree(t, caller(1+i), tt.resp)
		if tt.resp.GetOutcome() != tt.outcome || len(attempts) != 0 || !slices.Equal(events(t, &call), []string{"refused " + tt.reason}) {
			t.Fatalf("%v: events %q, attempts %v", tt.outcome, events(t, &call), attempts)
		}
		same(t, tt.reason, byKey(t, call.Events[0].Fields), map[string]any{
			"sallyport.attempt.kind": "PRIMARY", "sallyport.breaker.state": tt.breaker, "sallyport.wait.seconds": nil,
		})
	}

	if _, err := b.try(t, caller(3).sampled(), request("CONNECT", up.URL)); status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
	found := j.trace(t, caller(3).trace, 1)
	invalid := &found.Spans[0]
	isCall(t, &found, invalid, caller(3))
	same(t, "the invalid call", invalid.tags(t), map[string]any{"sallyport.reason": "INVALID_REQUEST", "sallyport.outcome": nil})
	if got := events(t, invalid); !slices.Equal(got, []string{"refused INVALID_REQUEST"}) {
		t.Errorf("events %q", got)
	}
	if seen := len(up.saw("/weather")); seen != 2 {
		t.Errorf("the upstream saw %d requests", seen)
	}
}

// A wait for a slot is told like any other, before it is known how it ends.
func TestWaitForASlotIsShown(t *testing.T) {
	j := startJaeger(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	up := startUpstream(t, map[string][]habit{"/ferries": {func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	}}})
	b := startBroker(t, j.otlp["grpc"])
	var holder errgroup.Group
	holder.Go(func() error {
		_, err := b.try(t, caller(0).sampled(), request("GET", up.URL+"/ferries"))
		return err
	})
	<-arrived
	resp := b.call(t, caller(1).sampled(), request("GET", up.URL+"/ferries"))
	close(release)
	if err := holder.Wait(); err != nil {
		t.Fatal(err)
	}
	call, _ := j.tree(t, caller(1), resp)
	if resp.GetOutcome() != pb.Outcome_OUTCOME_OVERLOADED || !slices.Equal(events(t, &call), []string{"wait CONCURRENCY_LIMIT", "refused CONCURRENCY_LIMIT"}) {
		t.Fatalf("events %q of %v", events(t, &call), resp)
	}
	same(t, "the wait", byKey(t, call.Events[0].Fields), map[string]any{"sallyport.wait.seconds": 0.1, "sallyport.attempt.kind": "PRIMARY"})
	if call.Duration < 100_000 {
		t.Errorf("over after %dµs", call.Duration)
	}
}

// injected is what the policy adds to a request.
const injected = "s3cret-of-the-broker"

// What Jaeger shows of a call holds the caller's labels, and no secret from any part of the request or the answer.
func TestNoSecretReachesJaeger(t *testing.T) {
	j := startJaeger(t)
	const path = "/accounts/7"
	up := startUpstream(t, map[string][]habit{path: {
		say("s3cret-in-an-answer", 503), say("s3cret-in-an-answer", 200),
	}})
	b := startBroker(t, j.otlp["grpc"])
	resp, err := b.try(t, caller(0).sampled(), &pb.CallRequest{
		Request: &pb.HttpRequest{
			Method: "PUT", Url: up.URL + path + "?token=s3cret-in-query&s3cret-without-name&n=1", Body: []byte("s3cret-in-body"),
			Headers: []*pb.HttpHeader{{Name: "Authorization", Value: "Bearer s3cret-in-header"}, {Name: "Cookie", Value: "id=s3cret-cookie"}},
		},
		Labels: map[string]string{"team": "checkout"},
	}, "baggage", "user=s3cret-baggage", "authorization", "Bearer s3cret-token")
	if err != nil {
		t.Fatal(err)
	}
	call, attempts := j.tree(t, caller(0), resp)
	sent := up.saw(path)
	if len(sent) != 2 || sent[1].Get("X-Key") != injected || sent[1].Get("Authorization") != "Bearer s3cret-in-header" {
		t.Fatalf("the upstream saw %v", sent)
	}
	same(t, "the call", call.tags(t), map[string]any{"sallyport.label.team": "checkout"})
	for i := range attempts {
		same(t, "an attempt", attempts[i].tags(t), map[string]any{"url.full": up.URL + path + "?token=REDACTED&REDACTED&n=REDACTED", "sallyport.label.team": nil})
	}
	// Userinfo is refused before it could be shown.
	withPassword := strings.Replace(up.URL, "://", "://user:s3cret-password@", 1)
	if _, err := b.try(t, caller(1).sampled(), request("GET", withPassword)); status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
	for _, found := range []trace{j.trace(t, caller(0).trace, 3), j.trace(t, caller(1).trace, 1)} {
		if strings.Contains(strings.ToLower(string(found.raw)), "s3cret") {
			t.Errorf("a secret is shown:\n%s", found.raw)
		}
	}
	b.Terminate(t)
	if strings.Contains(b.Log(), "s3cret") {
		t.Errorf("a secret is logged:\n%s", b.Log())
	}
}

// The caller's decision not to sample holds for Jaeger, and goes on to the upstream.
func TestUnsampledCallIsAbsent(t *testing.T) {
	j := startJaeger(t)
	up := startUpstream(t, map[string][]habit{"/": {answer(503), answer(200)}})
	b := startBroker(t, j.otlp["grpc"])
	absent := b.call(t, caller(0).unsampled(), request("GET", up.URL+"/"))
	j.tree(t, caller(1), b.call(t, caller(1).sampled(), request("GET", up.URL+"/")))
	b.Terminate(t)
	if found := j.traces(t, "/traces/"+caller(0).trace); len(found) != 0 {
		t.Errorf("Jaeger has %s", found[0].raw)
	}
	sent := up.saw("/")
	if len(sent) != 3 {
		t.Fatalf("%d requests", len(sent))
	}
	for i, a := range absent.GetAttempts() {
		if got := sent[i].Get("Traceparent"); got != (place{caller(0).trace, a.GetSpanId()}).unsampled() {
			t.Errorf("request %d has traceparent %q", i+1, got)
		}
	}
}
