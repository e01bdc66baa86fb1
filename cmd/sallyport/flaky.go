package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// reply is what the flaky upstream does with one request. A zero status takes the request and closes the connection without an
// answer: the work is done, the answer is lost.
type reply struct {
	status     int
	retryAfter string
	after      time.Duration
	// together, in the first reply of a script, holds all of them back until so many requests have come; 0: none.
	together int
	body     string
}

// flaky is a real HTTP server that fails by script: request n of a path gets reply n, later ones the last.
type flaky struct {
	url     string
	server  *http.Server
	served  chan struct{} // closed when the server has ended
	scripts map[string][]reply

	mu   sync.Mutex // protects the fields below
	seen map[string]*sightings
}

// sightings is what the upstream saw on one path.
type sightings struct {
	requests int
	keys     map[string]int // by Idempotency-Key, "" without one
	gathered chan struct{}  // closed by the request that makes them as many as the first reply waits for
}

// startFlaky serves the scripts on a loopback address until it is closed.
func startFlaky(ctx context.Context, addr string, scripts map[string][]reply) (*flaky, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("flaky upstream: %w", err)
	}
	f := &flaky{
		url: "http://" + l.Addr().String(), scripts: scripts,
		served: make(chan struct{}), seen: map[string]*sightings{},
	}
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(f.served)
		if err := f.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("flaky upstream: %v", err)) // a loopback listener of ours does not fail
		}
	}()
	return f, nil
}

// close ends the server and waits for it.
func (f *flaky) close() {
	_ = f.server.Close() // nothing of value is in flight
	<-f.served
}

// ServeHTTP answers by script (http.Handler).
func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a lost answer comes after the work: take the request whole
	next, gathered, known := f.next(r)
	if !known {
		http.NotFound(w, r)
		return
	}
	select {
	case <-gathered:
	case <-r.Context().Done():
		return
	}
	timer := time.NewTimer(next.after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	if next.status == 0 {
		panic(http.ErrAbortHandler) // net/http's way to close a connection without an answer
	}
	if next.retryAfter != "" {
		w.Header().Set("Retry-After", next.retryAfter)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(next.status)
	_, _ = io.WriteString(w, next.body+"\n")
}

// next counts the request and picks its reply, which waits for gathered.
func (f *flaky) next(r *http.Request) (answer reply, gathered <-chan struct{}, known bool) {
	script := f.scripts[r.URL.Path]
	if len(script) == 0 {
		return reply{}, nil, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen[r.URL.Path]
	if s == nil {
		s = &sightings{keys: map[string]int{}, gathered: make(chan struct{})}
		f.seen[r.URL.Path] = s
	}
	s.requests++
	s.keys[r.Header.Get("Idempotency-Key")]++
	if s.requests == max(1, script[0].together) {
		close(s.gathered)
	}
	return script[min(s.requests, len(script))-1], s.gathered, true
}

// saw tells how many requests came to a path, and under how many different keys.
func (f *flaky) saw(path string) (requests, keys int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen[path]
	if s == nil {
		return 0, 0
	}
	for key := range s.keys {
		if key != "" {
			keys++
		}
	}
	return s.requests, keys
}
