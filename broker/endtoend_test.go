package broker

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

const (
	unavailable = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
	inProgress  = "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n"
)

// TestCallThroughEverything walks from a gRPC client through server, engine and HTTP to a real upstream and back.
func TestCallThroughEverything(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request func(url string) *pb.CallRequest
		rules   []policy.Rule
		script  []step
		outcome pb.Outcome
		effect  pb.Effect
		next    pb.NextStep
		reason  pb.Reason
		sends   int
		keys    string // the Idempotency-Key of each request the upstream saw
	}{
		{
			"success", get, nil,
			[]step{say(okAnswer)},
			pb.Outcome_OUTCOME_SUCCESS, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_DONE, pb.Reason_REASON_SUCCESS, 1, "",
		},
		{
			"a 503 is repeated", get, nil,
			[]step{say(unavailable), say(okAnswer)},
			pb.Outcome_OUTCOME_SUCCESS, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_DONE, pb.Reason_REASON_SUCCESS, 2, ",",
		},
		{
			"a lost GET is repeated", get, nil,
			[]step{lose, say(okAnswer)},
			pb.Outcome_OUTCOME_SUCCESS, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_DONE, pb.Reason_REASON_SUCCESS, 2, ",",
		},
		{
			"attempts run out", get, nil,
			[]step{say(unavailable)},
			pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_RETRY, pb.Reason_REASON_ATTEMPTS_EXHAUSTED, 3, ",,",
		},
		{
			"a lost POST is never repeated",
			func(u string) *pb.CallRequest { return post(u, "op") }, nil,
			[]step{lose, say(okAnswer)},
			pb.Outcome_OUTCOME_UNKNOWN, pb.Effect_EFFECT_UNKNOWN, pb.NextStep_NEXT_STEP_RECONCILE, pb.Reason_REASON_NOT_REPEATABLE, 1, "",
		},
		{
			"a keyed POST is repeated under its key",
			func(u string) *pb.CallRequest { return post(u, "op") },
			[]policy.Rule{contract()},
			[]step{lose, say(inProgress), say(okAnswer)},
			pb.Outcome_OUTCOME_SUCCESS, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_DONE, pb.Reason_REASON_SUCCESS, 3, "op,op,op",
		},
		{
			"no answer to a keyed POST", func(u string) *pb.CallRequest { return post(u, "op") },
			[]policy.Rule{contract()},
			[]step{lose},
			pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, pb.Effect_EFFECT_UNKNOWN, pb.NextStep_NEXT_STEP_RETRY_SAME_ID, pb.Reason_REASON_ATTEMPTS_EXHAUSTED, 3, "op,op,op",
		},
		{
			"a forbidden literal is not dialled",
			func(string) *pb.CallRequest { return get("http://169.254.169.254/latest") }, nil,
			[]step{say(okAnswer)},
			pb.Outcome_OUTCOME_DENIED, pb.Effect_EFFECT_NONE, pb.NextStep_NEXT_STEP_FIX_REQUEST, pb.Reason_REASON_EGRESS_DENIED, 0, "",
		},
		{
			"a malformed answer", get, nil,
			[]step{say("HTTP/1.1 000 Odd\r\n\r\n")},
			pb.Outcome_OUTCOME_RESPONSE_REJECTED, pb.Effect_EFFECT_UNKNOWN, pb.NextStep_NEXT_STEP_RETRY, pb.Reason_REASON_MALFORMED_RESPONSE, 1, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := scripted(t, tt.script...)
			r := start(t, setup{rules: tt.rules})
			resp, err := r.calls.Call(within(t), tt.request(up.url("/a?b=c")))
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetOutcome() != tt.outcome || resp.GetEffect() != tt.effect || resp.GetNext() != tt.next || resp.GetReason() != tt.reason {
				t.Errorf("%v, %v, %v, %v: %s", resp.GetOutcome(), resp.GetEffect(), resp.GetNext(), resp.GetReason(), resp.GetDetail())
			}
			keys := []string{}
			for _, s := range up.requests() {
				keys = append(keys, s.Header.Get("Idempotency-Key"))
				if s.RequestURI != "/a?b=c" || s.UserAgent() != "sallyport/test" {
					t.Errorf("the upstream saw %s of %s", s.RequestURI, s.UserAgent())
				}
			}
			if len(keys) != tt.sends || int(resp.GetSends()) != tt.sends || len(resp.GetAttempts()) != tt.sends || strings.Join(keys, ",") != tt.keys {
				t.Errorf("%d sends, %d attempts told, keys seen %q; want %d, %q", resp.GetSends(), len(resp.GetAttempts()), keys, tt.sends, tt.keys)
			}
			wantPolicy := "policies/default@1"
			if tt.rules != nil {
				wantPolicy = "policies/contract@7"
			}
			if resp.GetPolicy() != wantPolicy || resp.GetBrokerId() != "broker-under-test@1" || len(resp.GetTraceId()) != 32 {
				t.Errorf("policy %q, broker %q, trace %q", resp.GetPolicy(), resp.GetBrokerId(), resp.GetTraceId())
			}
		})
	}
}

func TestGeneratedIDIsToldAndSent(t *testing.T) {
	up := scripted(t, lose, say(okAnswer))
	r := start(t, setup{rules: []policy.Rule{contract()}})
	resp, err := r.calls.Call(within(t), post(up.url("/"), ""))
	if err != nil || !uuidForm.MatchString(resp.GetOperationId()) {
		t.Fatalf("%v, %v", resp, err)
	}
	for i, s := range up.requests() {
		if key := s.Header.Get("Idempotency-Key"); key != resp.GetOperationId() {
			t.Errorf("send %d has the key %q, told is %q", i+1, key, resp.GetOperationId())
		}
	}
}

func TestCancelledCallerEndsTheUpstreamConnection(t *testing.T) {
	ended := make(chan struct{})
	up := scripted(t, hold(ended))
	r := start(t, setup{})
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		<-up.arrived
		cancel()
	}()
	if _, err := r.calls.Call(ctx, get(up.url("/"))); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
	over(t, "the upstream connection", ended)
	if n := len(up.requests()); n != 1 {
		t.Errorf("%d requests for a caller who has gone", n)
	}
}

// The caller gets a typed answer, not its own library's DEADLINE_EXCEEDED: the broker keeps a margin free at the end.
func TestAnswerComesBeforeTheCallersDeadline(t *testing.T) {
	up := scripted(t, hold(make(chan struct{})))
	rule := policy.Rule{Name: "policies/margin", Revision: 1, File: true}
	rule.Deadline.CallerMargin = new(2500 * time.Millisecond)
	r := start(t, setup{rules: []policy.Rule{rule}})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	resp, err := r.calls.Call(ctx, get(up.url("/")))
	if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_DEADLINE_EXCEEDED || resp.GetEffect() != pb.Effect_EFFECT_UNKNOWN {
		t.Fatalf("%v, %v, %v", err, resp.GetOutcome(), resp.GetEffect())
	}
	// The deadline travels as what is left of it, so that the first attempt has at most half a second.
	if given := resp.GetAttempts()[0].GetTimeout().AsDuration(); given <= 0 || given > 500*time.Millisecond {
		t.Errorf("the attempt was given %v", given)
	}
}

func TestTraceOfTheCallerGoesOn(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	up := scripted(t, say(unavailable), say(okAnswer))
	r := start(t, setup{})
	ctx := metadata.AppendToOutgoingContext(within(t), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	req := get(up.url("/"))
	req.Request.Headers = []*pb.HttpHeader{{Name: "Traceparent", Value: "00-" + strings.Repeat("1", 32) + "-" + strings.Repeat("2", 16) + "-00"}}
	resp, err := r.calls.Call(ctx, req)
	if err != nil || resp.GetTraceId() != trace || len(resp.GetAttempts()) != 2 {
		t.Fatalf("%v, %v", resp, err)
	}
	for i, a := range resp.GetAttempts() {
		got := up.requests()[i].Header["Traceparent"]
		if want := "00-" + trace + "-" + a.GetSpanId() + "-01"; len(got) != 1 || got[0] != want || a.GetTraceId() != trace {
			t.Errorf("the upstream saw %q, want %q", got, want)
		}
	}
	if resp.GetAttempts()[0].GetSpanId() == resp.GetAttempts()[1].GetSpanId() {
		t.Error("two attempts share a span")
	}
}

func TestTwoTraceparentsAreNone(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	r := start(t, setup{})
	ctx := metadata.AppendToOutgoingContext(within(t), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01",
		"traceparent", "00-"+trace+"-00f067aa0ba902b8-01")
	resp, err := r.calls.Call(ctx, get("http://169.254.169.254/"))
	if err != nil || resp.GetTraceId() == trace || len(resp.GetTraceId()) != 32 {
		t.Errorf("%v, %v", resp, err)
	}
}

// No byte of an answer can make the reply unencodable, once the effect has happened.
func TestBytesOutsideUTF8GoBothWays(t *testing.T) {
	up := scripted(t, say("HTTP/1.1 200 OK\r\nX-Raw: \xfe\xff\r\nX-Text: é\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n"+
		"2\r\n\x00\xff\r\n0\r\nX-End: \xfd\r\n\r\n"))
	r := start(t, setup{})
	req := post(up.url("/"), "")
	req.Request.Headers, req.Request.Body = []*pb.HttpHeader{{Name: "X-Raw", RawValue: []byte("\xfa\xfb")}}, []byte("\xff\x00")
	resp, err := r.calls.Call(within(t), req)
	if err != nil {
		t.Fatal(err)
	}
	if s := up.requests()[0]; s.Header.Get("X-Raw") != "\xfa\xfb" || s.body != "\xff\x00" {
		t.Errorf("the upstream saw %q and the body %q", s.Header.Get("X-Raw"), s.body)
	}
	got := map[string]string{}
	for _, h := range append(resp.GetResponse().GetHeaders(), resp.GetResponse().GetTrailers()...) {
		got[h.GetName()] = h.GetValue() + "|" + string(h.GetRawValue())
	}
	if got["X-Raw"] != "|\xfe\xff" || got["X-Text"] != "é|" || got["X-End"] != "|\xfd" || string(resp.GetResponse().GetBody()) != "\x00\xff" {
		t.Errorf("got %q and the body %q", got, resp.GetResponse().GetBody())
	}
}

// The caller is told no address and no rule about addresses; the operator reads both.
func TestDenialIsExplainedToTheOperatorOnly(t *testing.T) {
	r := start(t, setup{})
	resp, err := r.calls.Call(within(t), get("http://169.254.169.254/latest"))
	if err != nil || resp.GetDetail() != "egress rules forbid this destination" {
		t.Fatalf("%v, %v", resp, err)
	}
	for _, text := range []string{`"egress denied"`, `"rule":"hard_range: metadata service: 169.254.169.254:80"`, resp.GetTraceId()} {
		if !strings.Contains(r.log.String(), text) {
			t.Errorf("no %s in the log: %s", text, r.log)
		}
	}
}
