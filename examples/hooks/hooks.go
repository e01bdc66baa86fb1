package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

// failures is how often a hook fails before it is taken.
const failures = 3

// hooks takes what is sent to it, after it has failed as often as its path says.
//
//	POST /hooks/{id}       503 three times, then 200
//	POST /down/{id}        503, until the hooks are mended
//	POST /mend             mends them: from then on /down answers 200
//	POST /sms/{id}         200
//	POST /lost/{id}        does its work and closes the connection without an answer
//	GET /lost/{id}         200 when that was done, else 404
//	GET /seen              how many requests each path had
type hooks struct {
	http.Handler

	mu     sync.Mutex // protects the fields below
	seen   map[string]int
	mended bool
}

func newHooks() *hooks {
	h := &hooks{seen: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hooks/{id}", func(w http.ResponseWriter, r *http.Request) { h.answer(w, r, h.count(r) > failures) })
	mux.HandleFunc("POST /down/{id}", func(w http.ResponseWriter, r *http.Request) {
		h.count(r)
		h.answer(w, r, h.isMended())
	})
	mux.HandleFunc("POST /mend", func(w http.ResponseWriter, _ *http.Request) { h.mend(w) })
	mux.HandleFunc("POST /sms/{id}", func(w http.ResponseWriter, r *http.Request) {
		h.count(r)
		h.answer(w, r, true)
	})
	mux.HandleFunc("POST /lost/{id}", func(_ http.ResponseWriter, r *http.Request) {
		h.count(r)
		panic(http.ErrAbortHandler) // net/http's way to close a connection without an answer
	})
	mux.HandleFunc("GET /lost/{id}", func(w http.ResponseWriter, r *http.Request) {
		if !h.has(r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		h.answer(w, r, true)
	})
	mux.HandleFunc("GET /seen", h.tell)
	h.Handler = mux
	return h
}

// count counts a request, and gives its number on its path.
func (h *hooks) count(r *http.Request) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[r.URL.Path]++
	return h.seen[r.URL.Path]
}

func (h *hooks) has(path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[path] > 0
}

func (h *hooks) isMended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mended
}

func (h *hooks) mend(w http.ResponseWriter) {
	h.mu.Lock()
	h.mended = true
	h.mu.Unlock()
	_, _ = fmt.Fprintln(w, "mended") // whoever asked has gone: nothing to do
}

func (h *hooks) answer(w http.ResponseWriter, r *http.Request, well bool) {
	if !well {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "took %s\n", r.PathValue("id")) //nolint:gosec // text/plain, as said above
}

func (h *hooks) tell(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	text, err := json.Marshal(h.seen)
	h.mu.Unlock()
	if err != nil { // texts and numbers
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, "%s\n", text) // as above
}
