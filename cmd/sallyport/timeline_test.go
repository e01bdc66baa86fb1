package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func ms(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Millisecond) }

func request(method, url string) *pb.CallRequest {
	return &pb.CallRequest{Request: &pb.HttpRequest{Method: method, Url: url}}
}

func TestTimelineReadsAsWritten(t *testing.T) {
	for _, tt := range []struct {
		name string
		req  *pb.CallRequest
		resp *pb.CallResponse
	}{
		{"retried", request("POST", "http://127.0.0.1:8080/orders"), &pb.CallResponse{
			Outcome: pb.Outcome_OUTCOME_SUCCESS, Effect: pb.Effect_EFFECT_ANSWERED, Policy: "policies/default@0",
			Elapsed: ms(82), Sends: 2, Next: pb.NextStep_NEXT_STEP_DONE,
			Attempts: []*pb.Attempt{
				{
					Number: 1, Kind: pb.AttemptKind_ATTEMPT_KIND_PRIMARY, Offset: ms(0), Duration: ms(18), Status: 503,
					Evidence: pb.Evidence_EVIDENCE_ANSWERED,
					Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_RETRY, Reason: pb.Reason_REASON_STATUS_RETRYABLE, Wait: ms(50)},
				},
				{
					Number: 2, Kind: pb.AttemptKind_ATTEMPT_KIND_RETRY, Offset: ms(69), Duration: ms(12), Status: 201,
					Evidence: pb.Evidence_EVIDENCE_ANSWERED,
					Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_STOP, Reason: pb.Reason_REASON_SUCCESS},
				},
			},
			Response: &pb.HttpResponse{
				Status: 201, Protocol: "HTTP/1.1", Body: []byte("{\"id\": 17}"),
				Headers: []*pb.HttpHeader{{Name: "content-type", Value: "application/json"}},
			},
		}},
		{"hedged", request("GET", "http://127.0.0.1:8080/quotes"), &pb.CallResponse{
			Outcome: pb.Outcome_OUTCOME_SUCCESS, Effect: pb.Effect_EFFECT_ANSWERED, Policy: "policies/quotes@1",
			Elapsed: ms(316), Sends: 3, Next: pb.NextStep_NEXT_STEP_DONE, Detail: "answered 200 at attempt 3",
			Attempts: []*pb.Attempt{
				{
					Number: 1, Kind: pb.AttemptKind_ATTEMPT_KIND_PRIMARY, Offset: ms(0), Duration: ms(316),
					Evidence: pb.Evidence_EVIDENCE_SENT_NO_RESPONSE, Failure: pb.Failure_FAILURE_CANCELLED,
					Detail:   "another attempt was answered first",
					Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_NONE, Reason: pb.Reason_REASON_SUPERSEDED},
				},
				{
					Number: 2, Kind: pb.AttemptKind_ATTEMPT_KIND_HEDGE, Offset: ms(150), Duration: ms(12), Status: 503,
					Evidence: pb.Evidence_EVIDENCE_ANSWERED,
					Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_NONE, Reason: pb.Reason_REASON_STATUS_RETRYABLE},
				},
				{
					Number: 3, Kind: pb.AttemptKind_ATTEMPT_KIND_HEDGE, Offset: ms(300), Duration: ms(16), Status: 200,
					Evidence: pb.Evidence_EVIDENCE_ANSWERED,
					Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_STOP, Reason: pb.Reason_REASON_SUCCESS},
				},
			},
		}},
		{"unknown", request("POST", "http://127.0.0.1:8080/transfers"), &pb.CallResponse{
			Outcome: pb.Outcome_OUTCOME_UNKNOWN, Effect: pb.Effect_EFFECT_UNKNOWN, Policy: "policies/default@0",
			Elapsed: ms(1), Sends: 1, Next: pb.NextStep_NEXT_STEP_RECONCILE,
			Detail: "the connection was lost before the answer was complete; POST without an idempotency contract must not be repeated",
			Attempts: []*pb.Attempt{{
				Number: 1, Kind: pb.AttemptKind_ATTEMPT_KIND_PRIMARY, Offset: ms(0), Duration: ms(1),
				Evidence: pb.Evidence_EVIDENCE_SENT_NO_RESPONSE, Failure: pb.Failure_FAILURE_CONNECTION_LOST, Detail: "the peer closed it",
				Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_STOP, Reason: pb.Reason_REASON_NOT_REPEATABLE},
			}},
		}},
		{"throttled", request("GET", "http://127.0.0.1:8080/"+strings.Repeat("long/", 40)+"end"), &pb.CallResponse{
			Outcome: pb.Outcome_OUTCOME_THROTTLED, Effect: pb.Effect_EFFECT_UNKNOWN, Policy: "policies/default@0", Elapsed: ms(12_345),
			Sends: 1, Next: pb.NextStep_NEXT_STEP_RETRY_SAME_ID, OperationId: "order-4711", RetryAfter: ms(30_000), Replayed: true,
		}},
		{"hostile", request("GET", "http://127.0.0.1:8080/"), &pb.CallResponse{
			Outcome: pb.Outcome_OUTCOME_SUCCESS, Effect: pb.Effect_EFFECT_ANSWERED, Policy: "policies/\x1b]0;x\x07@1", Sends: 1,
			Next: pb.NextStep_NEXT_STEP_DONE, Detail: "a\x1b[2Jb\r\nc\u009b31m\u202ed",
			Attempts: []*pb.Attempt{{
				Number: 1, Kind: pb.AttemptKind_ATTEMPT_KIND_PRIMARY, Status: 200, Evidence: pb.Evidence_EVIDENCE_PARTIAL_RESPONSE,
				Failure: pb.Failure_FAILURE_PROTOCOL, Detail: "\x1b[31mred",
				Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_STOP, Reason: pb.Reason_REASON_MALFORMED_RESPONSE},
			}},
			Response: &pb.HttpResponse{
				Status: 200, Protocol: "HTTP/1.1", Body: []byte("\x1b[31mred"),
				Headers: []*pb.HttpHeader{{Name: "Content-Type", Value: "text/\x1b[0mplain"}},
			},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := timeline(tt.req, tt.resp) + answer(tt.resp.GetResponse())
			path := filepath.Join("testdata", "timeline", tt.name+".txt")
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
		})
	}
}

// Whatever comes back, the timeline is plain text and fits its width.
func TestNoAnswerReachesTheTerminalsControls(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	number := func(most int32) *rapid.Generator[int32] { return rapid.Int32Range(0, most) }
	rapid.Check(t, func(t *rapid.T) {
		resp := &pb.CallResponse{
			Outcome: pb.Outcome(number(20).Draw(t, "outcome")), Effect: pb.Effect(number(4).Draw(t, "effect")),
			Next: pb.NextStep(number(8).Draw(t, "next")), Sends: rapid.Uint32().Draw(t, "sends"),
			Policy: text.Draw(t, "policy"), Detail: text.Draw(t, "detail"), OperationId: text.Draw(t, "id"),
			Elapsed:    durationpb.New(time.Duration(rapid.Int64().Draw(t, "elapsed"))),
			RetryAfter: durationpb.New(time.Duration(rapid.Int64().Draw(t, "after"))),
			Response: &pb.HttpResponse{
				Status: 200, Protocol: text.Draw(t, "protocol"), Body: []byte(text.Draw(t, "body")),
				Headers: []*pb.HttpHeader{{Name: "Content-Type", Value: text.Draw(t, "type")}},
			},
		}
		for range rapid.IntRange(0, 3).Draw(t, "attempts") {
			resp.Attempts = append(resp.Attempts, &pb.Attempt{
				Number: rapid.Uint32().Draw(t, "number"), Kind: pb.AttemptKind(number(7).Draw(t, "kind")),
				Status: rapid.Uint32Range(0, 999).Draw(t, "status"), Evidence: pb.Evidence(number(7).Draw(t, "evidence")),
				Failure: pb.Failure(number(12).Draw(t, "failure")), Detail: text.Draw(t, "said"),
				Offset: durationpb.New(time.Duration(rapid.Int64().Draw(t, "offset"))),
				Decision: &pb.Decision{
					Verdict: pb.Verdict(number(6).Draw(t, "verdict")), Reason: pb.Reason(number(30).Draw(t, "reason")),
					Wait: durationpb.New(time.Duration(rapid.Int64().Draw(t, "wait"))),
				},
			})
		}
		shown := timeline(request(text.Draw(t, "method"), text.Draw(t, "url")), resp)
		for line := range strings.Lines(shown) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Fatalf("%d columns: %q", n, line)
			}
		}
		for _, r := range shown + answer(resp.GetResponse()) {
			if r != '\n' && r != '\t' && r != '\r' && unicode.IsControl(r) || r == '\u202e' {
				t.Fatalf("%q in %q", r, shown)
			}
		}
	})
}

// Nothing was decided after an attempt that another one ran beside: the words say why.
func TestWordsOfAnAttemptThatDecidedNothing(t *testing.T) {
	for reason, want := range map[pb.Reason]string{
		pb.Reason_REASON_SUPERSEDED:        "another won",
		pb.Reason_REASON_CANCELLED:         "stop",
		pb.Reason_REASON_STATUS_RETRYABLE:  "wait for other",
		pb.Reason_REASON_FAILURE_RETRYABLE: "wait for other",
	} {
		if got := decisionWord(&pb.Decision{Verdict: pb.Verdict_VERDICT_NONE, Reason: reason}); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

func TestLongOperationIDIsShownWhole(t *testing.T) {
	id := strings.Repeat("0123456789", 25) + "abcde"
	got := timeline(request("POST", "http://127.0.0.1/"), &pb.CallResponse{Next: pb.NextStep_NEXT_STEP_RETRY_SAME_ID, OperationId: id})
	if joined := strings.ReplaceAll(got, "\n      ", ""); !strings.Contains(joined, id) {
		t.Errorf("got:\n%s", got)
	}
}

func TestBodyIsPrintedOnlyWhenItIsText(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       bool
	}{
		{"plain", "hello\n\tworld\r\n", true},
		{"other letters", "grüße, γειά, 👩\u200d💻", true},
		{"escape", "\x1b[31m", false},
		{"bell", "\a", false},
		{"NUL", "a\x00b", false},
		{"lone carriage return", "password ok\rhidden", false},
		{"backspace", "a\bb", false},
		{"C1 control sequence", "\u009b31m", false},
		{"no UTF-8", "\xff\xfe", false},
		{"text turned round", "abc\u202edef", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := isText([]byte(tt.body)); got != tt.want {
				t.Errorf("isText(%q) = %v", tt.body, got)
			}
		})
	}
}

func TestJSONShowsNoControls(t *testing.T) {
	var b strings.Builder
	if err := printJSON(&b, &pb.CallResponse{Detail: "a\u009bb\x7fc\u202ed<é"}); err != nil {
		t.Fatal(err)
	}
	const want = "{\n  \"detail\": \"a\\u009bb\\u007fc\\u202ed\\u003cé\"\n}\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
