package jaeger

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// upstream fails on demand: request n of a path gets habit n, later ones the last.
type upstream struct {
	*httptest.Server

	mu   sync.Mutex // protects the fields below
	seen map[string][]http.Header
}

// habit is what the upstream does with one request.
type habit func(w http.ResponseWriter, r *http.Request)

func answer(code int) habit {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// say answers with that text in a field and in the body.
func say(text string, code int) habit {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Said", text)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// hangUp takes the request whole and closes the connection without a word.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// silence lasts until the broker gives up.
func silence(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// cut promises more than it sends.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, "the first of it")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// startUpstream serves these paths.
func startUpstream(t *testing.T, paths map[string][]habit) *upstream {
	t.Helper()
	u := &upstream{seen: map[string][]http.Header{}}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		u.mu.Lock()
		u.seen[r.URL.Path] = append(u.seen[r.URL.Path], r.Header.Clone())
		n := len(u.seen[r.URL.Path])
		u.mu.Unlock()
		habits := paths[r.URL.Path]
		habits[min(n, len(habits))-1](w, r)
	}))
	t.Cleanup(u.Close)
	return u
}

// saw is the header of every request of a path, in order.
func (u *upstream) saw(path string) []http.Header {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.seen[path])
}
