// Package upstream is a server that does what the client programs expect of theirs: it answers, loses, stalls and fails by path.
package upstream

import (
	"bytes"
	"net/http"
	"sync"
)

// LargeBytes is the size of the answer to /large.
const LargeBytes = 64 << 10

// Upstream is the handler, which counts what it sees. It is safe for concurrent use.
type Upstream struct {
	mux *http.ServeMux

	mu   sync.Mutex // protects the fields below
	seen map[string]int
}

// New makes one that has seen nothing.
func New() *Upstream {
	u := &Upstream{mux: http.NewServeMux(), seen: map[string]int{}}
	u.mux.HandleFunc("GET /ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	// Takes the request and closes without a word.
	u.mux.HandleFunc("POST /lost", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	// Answers when nobody listens any more.
	u.mux.HandleFunc("GET /slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	// Sends a header field back, byte by byte as it came.
	u.mux.HandleFunc("GET /echo", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Echo", r.Header.Get("X-Echo")) })
	u.mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), LargeBytes)) })
	u.mux.HandleFunc("GET /broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	return u
}

// ServeHTTP counts and answers.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.seen[r.Method+" "+r.URL.Path]++
	u.mu.Unlock()
	u.mux.ServeHTTP(w, r)
}

// Saw is how many requests of that method and path came, "GET /ok" for example.
func (u *Upstream) Saw(request string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[request]
}
