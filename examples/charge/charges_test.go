package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ask sends one request to the handler; lost: it closed the connection.
func ask(c *charges, method, target, body string) (code int, text string, lost bool) {
	w := httptest.NewRecorder()
	defer func() {
		if recover() == http.ErrAbortHandler { //nolint:errorlint // the very value
			lost = true
		}
	}()
	c.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w.Code, w.Body.String(), false
}

func TestAnswerIsLostAfterTheCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCharges()
		for _, tt := range []struct {
			name, method, target, body string
			wait                       time.Duration // before it
			code                       int
			lost                       bool
			answer                     string
			took                       time.Duration
		}{
			{name: "unknown order", method: "GET", target: "/charges/1001", code: 404, answer: `{"order":"1001","status":"never charged","times":0}`},
			{name: "no order", method: "POST", target: "/charges", body: "{}", code: 400, answer: `write {"order": "1001", "amount": 4200}`},
			{name: "no JSON", method: "POST", target: "/charges", body: "order=1", code: 400, answer: `write {"order": "1001", "amount": 4200}`},
			{name: "lost", method: "POST", target: "/charges?answer=lost", body: `{"order": "1001", "amount": 1}`, lost: true},
			{name: "pending", method: "GET", target: "/charges/1001", wait: pending - 1, code: 202, answer: `{"order":"1001","status":"pending","times":1}`},
			{name: "booked", method: "GET", target: "/charges/1001", wait: 1, code: 200, answer: `{"order":"1001","status":"charged","times":1}`},
			{name: "sent again", method: "POST", target: "/charges", body: `{"order": "1001", "amount": 1}`, code: 201, answer: `{"order":"1001","status":"charged","times":2}`},
			{name: "late", method: "POST", target: "/charges?answer=late", body: `{"order": "1002", "amount": 1}`, code: 201, answer: `{"order":"1002","status":"charged","times":1}`, took: late},
		} {
			time.Sleep(tt.wait)
			began := time.Now()
			code, text, lost := ask(c, tt.method, tt.target, tt.body)
			if lost != tt.lost || !lost && (code != tt.code || strings.TrimSpace(text) != tt.answer) || time.Since(began) != tt.took {
				t.Errorf("%s: %d %q, lost %t, took %s", tt.name, code, text, lost, time.Since(began))
			}
		}
	})
}
