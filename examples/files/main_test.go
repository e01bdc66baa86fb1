package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

func TestFiles(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }() // read by now
	s := httptest.NewServer(newFiles(root, time.Millisecond))
	defer s.Close()
	for _, tt := range []struct {
		method, path string
		body         io.Reader
		status       int
		want         string
	}{
		{"GET", "/a", nil, 404, "404 page not found\n"},
		{"PUT", "/a", strings.NewReader("first"), 201, "5 bytes kept\n"},
		{"PUT", "/a", strings.NewReader("2nd"), 201, "3 bytes kept\n"},
		{"GET", "/a", nil, 200, "2nd"},
		{"PUT", "/..%2Fa", strings.NewReader("x"), 500, "openat ../a.part: path escapes from parent\n"},
		{"POST", "/a", nil, 405, "Method Not Allowed\n"},
		{"GET", "/events", nil, 200, "data: event 1\n\ndata: event 2\n\ndata: event 3\n\ndata: event 4\n\ndata: event 5\n\n"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, s.URL+tt.path, tt.body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // read whole
		if resp.StatusCode != tt.status || string(got) != tt.want || err != nil {
			t.Errorf("%s %s: %d %q, %v", tt.method, tt.path, resp.StatusCode, got, err)
		}
	}
}

// A body that breaks off leaves the file that was there.
func TestKeepIsWhole(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }() // read by now
	if _, err := keep(root, "a", strings.NewReader("whole")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if _, err := keep(root, "a", io.MultiReader(strings.NewReader("par"), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	got, err := root.ReadFile("a")
	if string(got) != "whole" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := root.Stat("a.part"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a part is left: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
