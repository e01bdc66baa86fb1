package polyglot

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/polyglot/upstream"
)

// want is what the program "calls" must report, whatever its language.
const want = `{
	"success": {"outcome": "OUTCOME_SUCCESS", "effect": "EFFECT_ANSWERED", "next": "NEXT_STEP_DONE", "reason": "REASON_SUCCESS",
		"sends": 1, "status": 200, "advice": "done", "delay_known": false, "body": "hello", "attempts": 1},
	"unknown": {"outcome": "OUTCOME_UNKNOWN", "effect": "EFFECT_UNKNOWN", "next": "NEXT_STEP_RECONCILE",
		"reason": "REASON_NOT_REPEATABLE", "sends": 1, "status": 0, "advice": "reconcile", "delay_known": false},
	"deadline": {"outcome": "OUTCOME_DEADLINE_EXCEEDED", "effect": "EFFECT_UNKNOWN", "next": "NEXT_STEP_RETRY",
		"reason": "REASON_DEADLINE", "sends": 1, "status": 0, "advice": "retry", "delay_known": false, "in_time": true},
	"too_large": {"outcome": "OUTCOME_RESPONSE_REJECTED", "effect": "EFFECT_UNKNOWN", "next": "NEXT_STEP_RETRY",
		"reason": "REASON_RESPONSE_TOO_LARGE", "sends": 1, "status": 0, "advice": "retry", "delay_known": false},
	"refused": {"code": "INVALID_ARGUMENT", "reason": "INVALID_REQUEST", "nothing_sent": true, "fields": ["request.url"],
		"advice": "fix"},
	"raw_value": {"outcome": "OUTCOME_SUCCESS", "effect": "EFFECT_ANSWERED", "next": "NEXT_STEP_DONE", "reason": "REASON_SUCCESS",
		"sends": 1, "status": 200, "advice": "done", "delay_known": false, "values": [["", "636166e9"]]},
	"breaker_open": {"outcome": "OUTCOME_BREAKER_OPEN", "effect": "EFFECT_NONE", "next": "NEXT_STEP_RETRY",
		"reason": "REASON_BREAKER_OPEN", "sends": 0, "status": 0, "advice": "retry", "delay_known": true, "failures": 5}
}`

// seen is how many requests of each kind reach the upstream. One too many is one sent twice.
var seen = map[string]int{
	"GET /ok": 1, "POST /lost": 1, "GET /slow": 1, "GET /large": 1, "GET /echo": 1, "GET /broken": 5,
}

func TestClients(t *testing.T) {
	broker := startBroker(t)
	for _, language := range []struct {
		name    string
		prepare func(*testing.T) program
	}{
		{"Go", golang}, {"Python", python}, {"TypeScript", typescript}, {"Java", java},
	} {
		t.Run(language.name, func(t *testing.T) {
			run := language.prepare(t)
			t.Run("usage", func(t *testing.T) { checkUsage(t, run) })
			t.Run("calls", func(t *testing.T) { checkCalls(t, broker, run) })
			t.Run("vectors", func(t *testing.T) { checkVectors(t, run) })
		})
	}
}

// checkCalls runs the program with an upstream of its own, and judges its report and what the upstream saw.
func checkCalls(t *testing.T, broker string, run program) {
	t.Helper()
	up := upstream.New()
	server := httptest.NewServer(up)
	t.Cleanup(server.Close)
	report := output(t, run("calls", broker, server.URL))
	var got, expected map[string]map[string]any
	if err := json.Unmarshal(report, &got); err != nil {
		t.Fatalf("%v in the report\n%s", err, report)
	}
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	for name := range expected {
		if !reflect.DeepEqual(got[name], expected[name]) {
			t.Errorf("%s: got %v\nwant %v", name, got[name], expected[name])
		}
	}
	if len(got) != len(expected) {
		t.Errorf("%d calls are reported, want %d", len(got), len(expected))
	}
	for request, want := range seen {
		if n := up.Saw(request); n != want {
			t.Errorf("%s: the upstream saw %d requests, want %d", request, n, want)
		}
	}
}

// checkUsage runs the program with nothing said, as a newcomer does first.
func checkUsage(t *testing.T, run program) {
	t.Helper()
	text, err := run("calls").CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); !ended || !strings.Contains(strings.ToLower(string(text)), "usage: calls") {
		t.Errorf("%v: %s", err, text)
	}
}
