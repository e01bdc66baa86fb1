package jaeger

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// nobody is an origin where no connection can be had.
func nobody(t *testing.T) string {
	t.Helper()
	return "http://" + freePorts(t, 1)[0]
}

func TestEachAttemptIsASpanThatSaysWhatCameOfIt(t *testing.T) {
	j := startJaeger(t)
	up := startUpstream(t, map[string][]habit{
		"/ok": {answer(200)}, "/missing": {answer(404)}, "/lost": {hangUp}, "/cut": {cut}, "/tides": {silence},
		"/thrice": {answer(503), answer(502), answer(200)},
	})
	b := startBroker(t, j.otlp["grpc"])
	for i, tt := range []struct {
		name, method, path string
		origin             string // other than the upstream
		outcome            pb.Outcome
		attempts           []string // evidence, decision, reason of each
	}{
		{name: "success", method: "GET", path: "/ok", outcome: pb.Outcome_OUTCOME_SUCCESS, attempts: []string{"ANSWERED STOP SUCCESS"}},
		{name: "no such thing", method: "GET", path: "/missing", outcome: pb.Outcome_OUTCOME_HTTP_ERROR, attempts: []string{"ANSWERED STOP STATUS_NOT_RETRYABLE"}},
		{name: "success at last", method: "GET", path: "/thrice", outcome: pb.Outcome_OUTCOME_SUCCESS, attempts: []string{
			"ANSWERED RETRY STATUS_RETRYABLE", "ANSWERED RETRY STATUS_RETRYABLE", "ANSWERED STOP SUCCESS",
		}},
		{name: "lost answer", method: "POST", path: "/lost", outcome: pb.Outcome_OUTCOME_UNKNOWN, attempts: []string{"SENT_NO_RESPONSE STOP NOT_REPEATABLE"}},
		{name: "half an answer", method: "POST", path: "/cut", outcome: pb.Outcome_OUTCOME_UNKNOWN, attempts: []string{"PARTIAL_RESPONSE STOP NOT_REPEATABLE"}},
		{name: "no answer in time", method: "GET", path: "/tides", outcome: pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, attempts: []string{"SENT_NO_RESPONSE STOP ATTEMPTS_EXHAUSTED"}},
		{name: "no connection", method: "POST", path: "/orders", origin: nobody(t), outcome: pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, attempts: []string{
			"NOT_SENT RETRY FAILURE_RETRYABLE", "NOT_SENT RETRY FAILURE_RETRYABLE", "NOT_SENT STOP ATTEMPTS_EXHAUSTED",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			origin := up.URL
			if tt.origin != "" {
				origin = tt.origin
			}
			from := caller(i)
			resp := b.call(t, from.sampled(), request(tt.method, origin+tt.path))
			call, attempts := j.tree(t, from, resp)
			if resp.GetOutcome() != tt.outcome {
				t.Errorf("outcome %v", resp)
			}
			same(t, "the call", call.tags(t), map[string]any{"sallyport.origin": origin})
			traceparents(t, from, attempts[:resp.GetSends()], up.saw(tt.path))
			var told []string
			for i := range attempts {
				tags := attempts[i].tags(t)
				told = append(told, tags["sallyport.evidence"].(string)+" "+tags["sallyport.decision"].(string)+" "+tags["sallyport.reason"].(string))
				same(t, tt.name, tags, wireTags(t, tt.method, origin+tt.path, tags["sallyport.evidence"] != "NOT_SENT"))
			}
			if !slices.Equal(told, tt.attempts) {
				t.Errorf("attempts %q", told)
			}
			waits(t, &call, attempts)
		})
	}
}

// wireTags tell where an attempt went.
func wireTags(t *testing.T, method, address string, connected bool) map[string]any {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseFloat(u.Port(), 64)
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]any{
		"http.request.method": method, "url.full": address, "server.address": u.Hostname(), "server.port": port,
		"network.peer.address": nil, "network.peer.port": nil, "network.protocol.version": nil, "sallyport.breaker.state": "CLOSED",
	}
	if connected {
		maps.Copy(tags, map[string]any{"network.peer.address": u.Hostname(), "network.peer.port": port, "network.protocol.version": "1.1"})
	}
	return tags
}

// waits: between two attempts stands an event that tells how long the wait is.
func waits(t *testing.T, call *span, attempts []span) {
	t.Helper()
	if len(call.Events) != len(attempts)-1 {
		t.Fatalf("%d events between %d attempts", len(call.Events), len(attempts))
	}
	for i, e := range call.Events {
		same(t, "the event", byKey(t, e.Fields), map[string]any{
			"event": "wait", "sallyport.reason": attempts[i].tags(t)["sallyport.reason"], "sallyport.attempt.kind": "RETRY",
			"sallyport.wait.seconds": []float64{0.02, 0.04}[i], "sallyport.breaker.state": "CLOSED",
		})
		if e.Time < attempts[i].ends() || e.Time+int64(1e6*[]float64{0.02, 0.04}[i]) > attempts[i+1].Start {
			t.Errorf("the wait at %d is not between %d and %d", e.Time, attempts[i].ends(), attempts[i+1].Start)
		}
	}
}

// What can be asked for in Jaeger's page, over both protocols: health and reflection leave no trace.
func TestCallsAreFoundByServiceAndTags(t *testing.T) {
	j := startJaeger(t)
	for i, protocol := range []string{"grpc", "http/protobuf"} {
		service := "broker-" + strconv.Itoa(i)
		up := startUpstream(t, map[string][]habit{"/ok": {answer(200)}, "/flaky": {answer(503), answer(200)}, "/missing": {answer(404)}})
		b := startBroker(t, j.otlp[protocol], "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_SERVICE_NAME="+service)
		if _, err := healthpb.NewHealthClient(b.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		want := map[string]place{}
		for n, path := range []string{"/ok", "/flaky", "/missing"} {
			from := caller(10*i + n)
			want[path] = from
			resp := b.call(t, from.sampled(), &pb.CallRequest{
				Request: &pb.HttpRequest{Method: "GET", Url: up.URL + path}, Labels: map[string]string{"path": path},
			})
			j.trace(t, from.trace, 1+len(resp.GetAttempts()))
		}
		for _, ask := range []struct {
			tags map[string]string
			path string
		}{
			{map[string]string{"http.request.resend_count": "1"}, "/flaky"},
			{map[string]string{"error.type": "503"}, "/flaky"},
			{map[string]string{"sallyport.outcome": "HTTP_ERROR"}, "/missing"},
			{map[string]string{"error": "true", "http.response.status_code": "404"}, "/missing"},
			{map[string]string{"sallyport.label.path": "/ok"}, "/ok"},
		} {
			if found := j.search(t, service, ask.tags); len(found) != 1 || found[0].TraceID != want[ask.path].trace {
				t.Errorf("%s: %v finds %d traces, want that of %s", protocol, ask.tags, len(found), ask.path)
			}
		}
		b.Terminate(t) // whatever it has is there now
		if names := j.names(t, "/services/"+service+"/operations"); !slices.Equal(names, []string{"GET", callName}) {
			t.Errorf("%s: operations %q", protocol, names)
		}
	}
	if names := j.names(t, "/services"); !slices.Equal(names, []string{"broker-0", "broker-1"}) {
		t.Errorf("services %q", names)
	}
}
