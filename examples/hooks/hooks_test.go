package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// ask sends one request to the handler; lost: it closed the connection.
func ask(h *hooks, method, target string) (code int, text string, lost bool) {
	w := httptest.NewRecorder()
	defer func() {
		if recover() == http.ErrAbortHandler { //nolint:errorlint // the very value
			lost = true
		}
	}()
	h.ServeHTTP(w, httptest.NewRequest(method, target, http.NoBody))
	return w.Code, w.Body.String(), false
}

func TestHookFailsThreeTimesAndIsTaken(t *testing.T) {
	h := newHooks()
	for i, tt := range []struct {
		method, target string
		code           int
		text           string
		lost           bool
	}{
		{method: "POST", target: "/hooks/a", code: 503, text: "not now\n"},
		{method: "POST", target: "/hooks/a", code: 503, text: "not now\n"},
		{method: "POST", target: "/hooks/b", code: 503, text: "not now\n"}, // each has its own count
		{method: "POST", target: "/hooks/a", code: 503, text: "not now\n"},
		{method: "POST", target: "/hooks/a", code: 200, text: "took a\n"},
		{method: "POST", target: "/hooks/a", code: 200, text: "took a\n"},
		{method: "POST", target: "/down/a", code: 503, text: "not now\n"},
		{method: "POST", target: "/mend", code: 200, text: "mended\n"},
		{method: "POST", target: "/down/a", code: 200, text: "took a\n"},
		{method: "POST", target: "/sms/17", code: 200, text: "took 17\n"},
		{method: "GET", target: "/lost/17", code: 404, text: "404 page not found\n"},
		{method: "POST", target: "/lost/17", lost: true},
		{method: "GET", target: "/lost/17", code: 200, text: "took 17\n"},
		{method: "GET", target: "/seen", code: 200, text: `{"/down/a":2,"/hooks/a":5,"/hooks/b":1,"/lost/17":1,"/sms/17":1}` + "\n"},
	} {
		code, text, lost := ask(h, tt.method, tt.target)
		if lost != tt.lost || !lost && (code != tt.code || text != tt.text) {
			t.Errorf("%d %s %s: %d %q, lost %v", i, tt.method, tt.target, code, text, lost)
		}
	}
}
