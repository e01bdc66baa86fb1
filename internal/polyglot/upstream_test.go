package polyglot

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// upstream is a server that does what the client programs expect of theirs, and counts.
type upstream struct {
	server *httptest.Server

	mu   sync.Mutex // protects the fields below
	seen map[string]int
}

func startUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{seen: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	mux.HandleFunc("POST /lost", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }) // closes, without a word
	mux.HandleFunc("GET /slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("GET /echo", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Echo", r.Header.Get("X-Echo")) })
	u.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.seen[r.Method+" "+r.URL.Path]++
		u.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(u.server.Close)
	return u
}

// saw is how many requests of that method and path came.
func (u *upstream) saw(request string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[request]
}
