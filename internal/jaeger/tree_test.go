package jaeger

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const callName = "sallyport.v1.CallService/Call"

// tree waits for the whole trace of a call, and checks what holds of every one: the call's span under the caller's, and under it one for
// each attempt in the reply, in order of time. Events stand in order of time, between the begin and the end of the call.
func (j *jaeger) tree(t *testing.T, from place, resp *pb.CallResponse) (call span, attempts []span) {
	t.Helper()
	found := j.trace(t, from.trace, 1+len(resp.GetAttempts()))
	call, attempts = found.Spans[0], found.Spans[1:]
	if resp.GetTraceId() != from.trace {
		t.Errorf("the reply names trace %s", resp.GetTraceId())
	}
	isCall(t, &found, &call, from)
	same(t, "the call", call.tags(t), map[string]any{
		"sallyport.outcome": strings.TrimPrefix(resp.GetOutcome().String(), "OUTCOME_"),
		"sallyport.effect":  strings.TrimPrefix(resp.GetEffect().String(), "EFFECT_"),
		"sallyport.reason":  strings.TrimPrefix(resp.GetReason().String(), "REASON_"),
		"sallyport.policy":  resp.GetPolicy(),
		"sallyport.sends":   float64(resp.GetSends()),
		"sallyport.caller":  "local", "rpc.system.name": "grpc", "rpc.method": callName,
		"error": nil, "error.type": nil, // a typed outcome is an answer
	})
	for i, a := range resp.GetAttempts() {
		s := &attempts[i]
		if s.ID != a.GetSpanId() || s.TraceID != from.trace || a.GetTraceId() != from.trace {
			t.Errorf("attempt %d is span %s of trace %s, the reply says %s of %s", i+1, s.ID, s.TraceID, a.GetSpanId(), a.GetTraceId())
		}
		childOf(t, s, place{from.trace, call.ID})
		if s.Start < call.Start || s.ends() > call.ends()+1 || a.GetStartTime().AsTime().UnixMicro() != s.Start ||
			a.GetDuration().AsDuration().Microseconds() != s.Duration {
			t.Errorf("attempt %d lasts from %d to %d in a call from %d to %d; in the reply: %v", i+1, s.Start, s.ends(), call.Start, call.ends(), a)
		}
		same(t, fmt.Sprint("attempt ", i+1), s.tags(t), attemptTags(s.Name, i, a))
	}
	return call, attempts
}

// attemptTags are those that the reply foretells; budget and error are looked at where they are made.
func attemptTags(method string, before int, a *pb.Attempt) map[string]any {
	tags := map[string]any{
		"span.kind": "client", "http.request.method": method,
		"sallyport.attempt.kind":    strings.TrimPrefix(a.GetKind().String(), "ATTEMPT_KIND_"),
		"sallyport.evidence":        strings.TrimPrefix(a.GetEvidence().String(), "EVIDENCE_"),
		"sallyport.decision":        strings.TrimPrefix(a.GetDecision().GetVerdict().String(), "VERDICT_"),
		"sallyport.reason":          strings.TrimPrefix(a.GetDecision().GetReason().String(), "REASON_"),
		"http.request.resend_count": nil, "http.response.status_code": nil,
		"error": nil, "error.type": nil, "otel.status_code": nil, "otel.status_description": nil,
	}
	if before > 0 {
		tags["http.request.resend_count"] = float64(before)
	}
	if a.GetStatus() != 0 {
		tags["http.response.status_code"] = float64(a.GetStatus())
	}
	failed := ""
	switch {
	case a.GetFailure() == pb.Failure_FAILURE_CANCELLED:
	case a.GetFailure() != pb.Failure_FAILURE_UNSPECIFIED:
		failed = strings.ToLower(strings.TrimPrefix(a.GetFailure().String(), "FAILURE_"))
	case a.GetStatus() >= 400:
		failed = fmt.Sprint(a.GetStatus())
	}
	if failed != "" {
		maps.Copy(tags, map[string]any{"error": true, "error.type": failed, "otel.status_code": "ERROR"})
	}
	return tags
}

// isCall checks the span of a call, whatever came of it.
func isCall(t *testing.T, found *trace, call *span, from place) {
	t.Helper()
	if call.Name != callName || found.Processes[call.Process].Name != "sallyport" {
		t.Errorf("the call is %q of service %q", call.Name, found.Processes[call.Process].Name)
	}
	childOf(t, call, from)
	same(t, "the call", call.tags(t), map[string]any{"span.kind": "server", "otel.status_code": nil})
	before := call.Start
	for _, e := range call.Events {
		if e.Time < before || e.Time > call.ends()+1 {
			t.Errorf("an event at %d after %d, in a call from %d to %d", e.Time, before, call.Start, call.ends())
		}
		before = e.Time
	}
}

func childOf(t *testing.T, s *span, parent place) {
	t.Helper()
	if len(s.References) != 1 || s.References[0].Kind != "CHILD_OF" || s.References[0].TraceID != parent.trace || s.References[0].SpanID != parent.span {
		t.Errorf("span %s has references %v, want CHILD_OF %v", s.ID, s.References, parent)
	}
}

// events are the names and the reasons of the call's events, in order.
func events(t *testing.T, call *span) (told []string) {
	t.Helper()
	for _, e := range call.Events {
		f := byKey(t, e.Fields)
		told = append(told, fmt.Sprint(f["event"], " ", f["sallyport.reason"]))
	}
	return told
}

// same: these fields have these values; nil: there is none.
func same(t *testing.T, what string, got, want map[string]any) {
	t.Helper()
	for name, value := range want {
		if v := got[name]; v != value {
			t.Errorf("%s: %s is %v, want %v", what, name, v, value)
		}
	}
}

// traceparents: every request of the attempts bore the id of its attempt's span, and nothing else.
func traceparents(t *testing.T, from place, attempts []span, sent []http.Header) {
	t.Helper()
	if len(sent) != len(attempts) {
		t.Errorf("%d requests came of %d attempts", len(sent), len(attempts))
	}
	for i, header := range sent {
		if got := header.Values("Traceparent"); len(got) != 1 || got[0] != (place{from.trace, attempts[i].ID}).sampled() {
			t.Errorf("request %d has traceparent %q, its span is %s", i+1, got, attempts[i].ID)
		}
	}
}
