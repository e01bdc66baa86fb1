package main

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// counted counts what reaches a service, before the service does anything with it, and tells it at GET /seen.
type counted struct {
	service http.Handler

	mu   sync.Mutex // protects the field below
	seen map[string]int
}

func newCounted(service http.Handler) *counted {
	return &counted{service: service, seen: map[string]int{}}
}

// ServeHTTP counts and hands on (http.Handler).
func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/seen" {
		c.mu.Lock()
		defer c.mu.Unlock()
		answer(w, http.StatusOK, c.seen)
		return
	}
	c.mu.Lock()
	c.seen[r.Method+" "+r.URL.Path]++
	c.mu.Unlock()
	c.service.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, code int, message any) {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // strings and whole numbers
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // whoever is gone needs no answer
}

// hang answers when nobody listens any more.
func hang(r *http.Request) { <-r.Context().Done() }

// delay takes 0.4 seconds.
func delay(r *http.Request) {
	timer := time.NewTimer(400 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// lose closes the connection without an answer, in net/http's way.
func lose() { panic(http.ErrAbortHandler) }
