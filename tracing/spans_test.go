package tracing_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
)

func TestCallIsOneServerSpanOverOneClientSpanPerAttempt(t *testing.T) {
	c := &collector{}
	o := observe(t, startCollector(t, c))
	up := startUpstream(t, 503, 503, 200)
	ask := asked(t, "GET", up.URL+"/orders?id=17&secret=s3cret")
	ask.Headers = []call.Header{{Name: "Authorization", Value: "Bearer s3cret"}}
	ask.Labels = map[string]string{"team": "checkout", "order": "17"}
	final := do(t, o, overHTTP(t, open()), open(), ask, sampled)
	spans := c.exported(t, o)
	if len(spans) != 4 || final.Outcome != call.OutcomeSuccess {
		t.Fatalf("%d spans of a call that ended %s", len(spans), final.Outcome)
	}
	server := spans[0]
	if server.GetKind() != tracepb.Span_SPAN_KIND_SERVER || server.GetName() != "sallyport.v1.CallService/Call" ||
		hex.EncodeToString(server.GetTraceId()) != callerTrace || hex.EncodeToString(server.GetParentSpanId()) != callerSpan {
		t.Errorf("the call's span: %v", server)
	}
	if server.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("the call's status: %v", server.GetStatus())
	}
	same(t, "the call", attributes(server.GetAttributes()), map[string]any{
		"rpc.system.name": "grpc", "rpc.method": "sallyport.v1.CallService/Call",
		"sallyport.outcome": "SUCCESS", "sallyport.effect": "ANSWERED", "sallyport.reason": "SUCCESS", "sallyport.sends": 3,
		"sallyport.caller": "checkout", "sallyport.origin": up.URL, "sallyport.policy": policyInTest,
		"sallyport.label.team": "checkout", "sallyport.label.order": "17",
	})
	for i, span := range spans[1:] {
		a := final.Attempts[i]
		if span.GetKind() != tracepb.Span_SPAN_KIND_CLIENT || span.GetName() != "GET" ||
			!reflect.DeepEqual(span.GetParentSpanId(), server.GetSpanId()) || !reflect.DeepEqual(span.GetTraceId(), server.GetTraceId()) {
			t.Errorf("attempt %d: %v", a.Number, span)
		}
		if got := time.Duration(span.GetEndTimeUnixNano() - span.GetStartTimeUnixNano()); got != a.Duration ||
			span.GetStartTimeUnixNano() != uint64(a.Start.UnixNano()) {
			t.Errorf("attempt %d lasts %s in its span, and lasted %s", a.Number, got, a.Duration)
		}
		same(t, fmt.Sprint("attempt ", a.Number), attributes(span.GetAttributes()), attemptAttributes(up, &a))
		id := hex.EncodeToString(span.GetSpanId())
		if sent := <-up.traceparents; len(sent) != 1 || sent[0] != "00-"+callerTrace+"-"+id+"-01" || a.SpanID != id {
			t.Errorf("attempt %d sent traceparent %q, its span is %s", a.Number, sent, id)
		}
		for name, values := range <-up.headers {
			if text := fmt.Sprint(name, values); strings.Contains(text, "checkout") || strings.Contains(strings.ToLower(name), "label") {
				t.Errorf("a label went upstream: %s", text)
			}
		}
	}
	for _, span := range spans {
		if strings.Contains(span.String(), "s3cret") {
			t.Errorf("a secret is in %v", span)
		}
	}
	waits(t, server, &final)
}

// budgetLeft after each of three attempts: 10 + 0.2 for the first one, less a token for each repeat. The one after the second was taken
// when the first ended.
var budgetLeft = []float64{9.2, 8.2, 8.2}

// attemptAttributes are those of a GET to the upstream, row by row of the conventions.
func attemptAttributes(up *upstream, a *call.Attempt) map[string]any {
	host, port := up.Listener.Addr().(*net.TCPAddr).IP.String(), up.Listener.Addr().(*net.TCPAddr).Port
	want := map[string]any{
		"http.request.method": "GET", "server.address": host, "server.port": port,
		"url.full": up.URL + "/orders?id=REDACTED&secret=REDACTED", "http.response.status_code": a.Result.Status,
		"network.peer.address": host, "network.peer.port": port, "network.protocol.version": "1.1",
		"sallyport.attempt.kind": a.Kind.String(), "sallyport.evidence": "ANSWERED",
		"sallyport.decision": a.Decision.Verdict.String(), "sallyport.reason": a.Decision.Reason.String(),
		"sallyport.breaker.state": "CLOSED", "sallyport.budget.left": budgetLeft[a.Number-1],
	}
	if a.Number > 1 {
		want["http.request.resend_count"] = int(a.Number) - 1
	}
	if a.Result.Status >= 400 {
		want["error.type"] = fmt.Sprint(a.Result.Status)
	}
	return want
}

// waits: each wait between two attempts is an event of the call's span.
func waits(t *testing.T, server *tracepb.Span, final *call.Final) {
	t.Helper()
	if len(server.GetEvents()) != len(final.Attempts)-1 {
		t.Fatalf("events: %v", server.GetEvents())
	}
	for i, e := range server.GetEvents() {
		a := final.Attempts[i]
		ended := uint64(a.Start.Add(a.Duration).UnixNano())
		if e.GetName() != "wait" || e.GetTimeUnixNano() < ended {
			t.Errorf("event %v after an attempt that ended at %d", e, ended)
		}
		same(t, "wait", attributes(e.GetAttributes()), map[string]any{
			"sallyport.wait.seconds": a.Decision.Wait.Seconds(), "sallyport.reason": "STATUS_RETRYABLE",
			"sallyport.attempt.kind": "RETRY", "sallyport.breaker.state": "CLOSED", "sallyport.budget.left": budgetLeft[i],
		})
	}
}

func same(t *testing.T, what string, got, want map[string]any) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %s is %v, want %v", what, name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: has %s, which is %v", what, name, got[name])
		}
	}
}

func TestAttemptSpanSaysWhatCameOfIt(t *testing.T) {
	lost := call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureConnectionLost, RemoteAddress: "[2001:db8::7]:8443", Protocol: "HTTP/1.1"}
	for _, tt := range []struct {
		name, method string
		result       call.Result
		span         string
		status       int // 0: no attribute
		errorType    string
		version      string
	}{
		{"success", "GET", answered(204), "GET", 204, "", "1.1"},
		{"redirect", "GET", answered(304), "GET", 304, "", "1.1"},
		{"client error", "DELETE", answered(404), "DELETE", 404, "404", "1.1"},
		{"server error", "POST", answered(500), "POST", 500, "500", "1.1"},
		{"known method, seldom seen", "QUERY", answered(200), "QUERY", 200, "", "1.1"},
		{"unknown method", "PURGE", answered(200), "HTTP", 200, "", "1.1"},
		{"known method in lower case", "get", answered(200), "HTTP", 200, "", "1.1"},
		{"no answer", "POST", lost, "POST", 0, "connection_lost", "1.1"},
		{
			"no connection", "POST",
			call.Result{Evidence: call.EvidenceNotSent, Failure: call.FailureConnect, Terminal: true},
			"POST", 0, "connect", "",
		},
		{
			"time-out", "POST",
			call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureAttemptTimeout, TimedOut: true},
			"POST", 0, "attempt_timeout", "",
		},
		{
			"body that failed after 200", "POST",
			call.Result{Evidence: call.EvidencePartialResponse, Failure: call.FailureConnectionLost, Status: 200, Protocol: "HTTP/1.1"},
			"POST", 200, "connection_lost", "1.1",
		},
		{
			"caller went away", "POST",
			call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureCancelled},
			"POST", 0, "", "",
		},
		{"HTTP/2", "GET", call.Result{Evidence: call.EvidenceAnswered, Status: 200, Protocol: "HTTP/2", Response: &call.Response{Status: 200}}, "GET", 200, "", "2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &collector{}
			o := observe(t, startCollector(t, c))
			do(t, o, giving(tt.result), open(), asked(t, tt.method, "https://[2001:db8::1]/a"), "")
			spans := c.exported(t, o)
			if len(spans) != 2 {
				t.Fatalf("%d spans: %v", len(spans), spans)
			}
			span, got := spans[1], attributes(spans[1].GetAttributes())
			if span.GetName() != tt.span || got["server.address"] != "2001:db8::1" || got["server.port"] != 443 ||
				got["url.full"] != "https://[2001:db8::1]/a" {
				t.Errorf("span %q: %v", span.GetName(), got)
			}
			method, original := any(tt.method), any(nil)
			if tt.span == "HTTP" {
				method, original = "_OTHER", tt.method
			}
			if got["http.request.method"] != method || got["http.request.method_original"] != original {
				t.Errorf("method %v, original %v", got["http.request.method"], got["http.request.method_original"])
			}
			optional(t, got, "http.response.status_code", tt.status, tt.status != 0)
			optional(t, got, "error.type", tt.errorType, tt.errorType != "")
			optional(t, got, "network.protocol.version", tt.version, tt.version != "")
			optional(t, got, "http.request.resend_count", 0, false)
			wantStatus := tracepb.Status_STATUS_CODE_UNSET
			if tt.errorType != "" {
				wantStatus = tracepb.Status_STATUS_CODE_ERROR
			}
			if s := span.GetStatus(); s.GetCode() != wantStatus || s.GetMessage() != "" {
				t.Errorf("status %v", s)
			}
		})
	}
}

// optional: the attribute is there exactly when it must be.
func optional(t *testing.T, got map[string]any, name string, want any, present bool) {
	t.Helper()
	v, ok := got[name]
	if ok != present || ok && v != want {
		t.Errorf("%s is %v (there: %t), want %v (there: %t)", name, v, ok, want, present)
	}
}

func TestRefusedCallHasNoClientSpanAndTellsWhy(t *testing.T) {
	c := &collector{}
	o := observe(t, startCollector(t, c))
	closed := guard.New(guard.Config{})
	do(t, o, giving(answered(200)), closed, asked(t, "GET", "https://10.1.2.3/"), "")
	_, invalid := o.Begin(t.Context(), "", "")
	invalid.Refuse("INVALID_REQUEST")
	late := asked(t, "GET", "https://api.example.com/")
	late.Deadline = late.Arrived
	do(t, o, giving(answered(200)), open(), late, "")
	spans := c.exported(t, o)
	if len(spans) != 3 {
		t.Fatalf("%d spans: %v", len(spans), spans)
	}
	for i, reason := range []string{"EGRESS_DENIED", "INVALID_REQUEST", "DEADLINE"} {
		events := spans[i].GetEvents()
		if spans[i].GetKind() != tracepb.Span_SPAN_KIND_SERVER || attributes(spans[i].GetAttributes())["sallyport.reason"] != reason ||
			spans[i].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET || // a no of ours is no error of ours
			len(events) != 1 || events[0].GetName() != "refused" || attributes(events[0].GetAttributes())["sallyport.reason"] != reason {
			t.Errorf("%s: %v", reason, spans[i])
		}
	}
}

func TestUnsampledParentExportsNothing(t *testing.T) {
	c := &collector{}
	o := observe(t, startCollector(t, c))
	up := startUpstream(t, 200)
	final := do(t, o, overHTTP(t, open()), open(), asked(t, "GET", up.URL), unsampled)
	if sent := <-up.traceparents; len(sent) != 1 || sent[0] != "00-"+callerTrace+"-"+final.Attempts[0].SpanID+"-00" {
		t.Errorf("traceparent %q", sent)
	}
	if spans := c.exported(t, o); len(spans) != 0 {
		t.Errorf("exported %v", spans)
	}
}

// A panic in mid-attempt leaves no span open, and none that ends twice.
func TestSpansOfACallThatPanicsEndOnce(t *testing.T) {
	c := &collector{}
	o := observe(t, startCollector(t, c))
	ctx, span := o.Begin(t.Context(), sampled, "")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
			span.Refuse("INTERNAL")
		}()
		ask := asked(t, "GET", "https://api.example.com/")
		engine.New(senderFunc(func(context.Context, call.Attempt) call.Result { panic("of the test") }), o, open(), engine.NewOrigins()).Do(ctx, ask, rules(t, ask))
	}()
	span.Refuse("INTERNAL") // ended already
	spans := c.exported(t, o)
	if len(spans) != 2 {
		t.Fatalf("%d spans: %v", len(spans), spans)
	}
	if spans[0].GetEndTimeUnixNano() < spans[1].GetEndTimeUnixNano() {
		t.Error("the call's span ended before its attempt's")
	}
	if got := attributes(spans[0].GetAttributes()); spans[0].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || got["error.type"] != "INTERNAL" ||
		got["sallyport.reason"] != "INTERNAL" || len(spans[0].GetEvents()) != 0 {
		t.Errorf("status %v, %v, events %v", spans[0].GetStatus(), got, spans[0].GetEvents())
	}
}

// One string that is not UTF-8 would lose the batch it is in.
func TestTextThatCannotBeEncodedLosesNoSpan(t *testing.T) {
	c := &collector{}
	o := observe(t, startCollector(t, c))
	ask := asked(t, "GET", "https://api.example.com/")
	ask.Caller = "caf\xe9"
	ask.Labels = map[string]string{"te\xffam": "a\x00b\xfe", "ok": "fine"}
	do(t, o, giving(answered(200)), open(), ask, "")
	do(t, o, giving(answered(200)), open(), asked(t, "GET", "https://api.example.com/"), "")
	spans := c.exported(t, o)
	if len(spans) != 4 {
		t.Fatalf("%d spans", len(spans))
	}
	got := attributes(spans[0].GetAttributes())
	if got["sallyport.caller"] != "caf\uFFFD" || got["sallyport.label.te\uFFFDam"] != "a\uFFFDb\uFFFD" || got["sallyport.label.ok"] != "fine" {
		t.Errorf("got %v", got)
	}
}

// An attempt that outlives its call ends its span when it ends, once, under the call's, which is over by then.
func TestSpanOfALateAttemptEndsWithIt(t *testing.T) {
	c := &collector{}
	o := observe(t, startCollector(t, c))
	ask := asked(t, "POST", "https://api.example.com/")
	now := time.Now()
	ask.Arrived, ask.Deadline, ask.OperationID, ask.MayRunOn = now, now.Add(60*time.Millisecond), "order-1", true
	answer := make(chan struct{})
	e := engine.New(senderFunc(func(_ context.Context, a call.Attempt) call.Result {
		a.Departure.Depart()
		<-answer
		return call.Result{Evidence: call.EvidenceAnswered, Status: 201, Response: &call.Response{Status: 201}}
	}), o, open(), engine.NewOrigins())
	ctx, span := o.Begin(t.Context(), sampled, "")
	f := e.Do(ctx, ask, rules(t, ask))
	span.End(ask, &f, policyInTest)
	close(answer)
	late := <-f.Late
	e.Wait(t.Context())
	spans := c.exported(t, o)
	if len(spans) != 2 || late.Outcome != call.OutcomeSuccess {
		t.Fatalf("%d spans, %s", len(spans), late.Outcome)
	}
	whole, attempt := spans[0], spans[1]
	if hex.EncodeToString(attempt.GetSpanId()) != late.Attempts[0].SpanID {
		whole, attempt = attempt, whole
	}
	if got := attributes(attempt.GetAttributes()); got["http.response.status_code"] != 201 || got["sallyport.evidence"] != "ANSWERED" ||
		!bytes.Equal(attempt.GetParentSpanId(), whole.GetSpanId()) || attempt.GetEndTimeUnixNano() < whole.GetEndTimeUnixNano() {
		t.Errorf("the attempt: %v", got)
	}
	if got := attributes(whole.GetAttributes()); got["sallyport.outcome"] != "UNKNOWN" {
		t.Errorf("the call: %v", got)
	}
}
