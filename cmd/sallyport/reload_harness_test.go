package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// replaceFile puts a file in place whole, as a careful program does.
func replaceFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".next", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
}

// reread has the files read again and waits for it, as SIGHUP does without waiting.
func reread(t *testing.T, n *node) {
	t.Helper()
	told := make(chan struct{})
	n.files.asked <- told
	<-told
}

// logOf starts a node whose log can be read once it has stopped.
func logOf(t *testing.T, s *settings) (*node, func() string) {
	t.Helper()
	var text lockedText
	n, err := startNode(t.Context(), s, slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return n, text.String
}

type lockedText struct {
	mu   sync.Mutex // protects the fields below
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// marked is a policy file whose calls bear a mark. Half of all attempts fail at echo, which neither breaker nor budget shall mind.
func marked(mark string) string {
	return fmt.Sprintf(`policies:
  - name: policies/all
    retry: { backoff: { base: 1ms, jitter: JITTER_NONE } }
    breaker: { consecutive_failures: 0, min_requests: 1000000 }
    budget: { window: { ratio: 1, period: 10s, min_per_second: 1000 } }
    headers: { set: { X-Mark: "%s" } }
  - name: policies/other
    match: { hosts: [other.example.com] }
`, mark)
}

// echo is an upstream that answers a GET with the marks of all attempts of that id, and every first one with 503.
func echo(t *testing.T) string {
	t.Helper()
	var mu sync.Mutex
	marks := map[string]string{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		id := r.URL.Path
		first := marks[id] == ""
		marks[id] += "," + r.Header.Get("X-Mark")
		text := marks[id]
		mu.Unlock()
		if first {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, strings.Trim(text, ","))
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
