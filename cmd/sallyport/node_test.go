package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func testSettings(t *testing.T) *settings {
	t.Helper()
	return &settings{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Data: filepath.Join(t.TempDir(), "data"), Dev: true}
}

func startTestNode(t *testing.T, s *settings) *node {
	t.Helper()
	n, err := startNode(t.Context(), s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func dialNode(t *testing.T, n *node) *client.Client {
	t.Helper()
	c, err := client.Dial(address(n.grpc), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func callFor(t *testing.T, c *client.Client, url string) (*pb.CallResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return c.Call(ctx, request("GET", url))
}

// get asks the HTTP port for a path.
func get(t *testing.T, n *node, method, path string) (status int, body string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address(n.http)+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestCallGoesThroughTheWholeBroker(t *testing.T) {
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 503}, {status: 200, body: "hello"}}})
	s := testSettings(t)
	n := startTestNode(t, s)
	resp, err := callFor(t, dialNode(t, n), upstream.url+"/")
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || resp.GetSends() != 2 || string(resp.GetResponse().GetBody()) != "hello\n" {
		t.Errorf("got %v", resp)
	}
	if requests, _ := upstream.saw("/"); requests != 2 {
		t.Errorf("the upstream saw %d requests", requests)
	}
	if !strings.HasSuffix(resp.GetBrokerId(), "@1") {
		t.Errorf("broker_id %q is not of the first boot", resp.GetBrokerId())
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	again := startTestNode(t, s)
	second, err := callFor(t, dialNode(t, again), upstream.url+"/")
	if err != nil {
		t.Fatal(err)
	}
	if first := strings.TrimSuffix(resp.GetBrokerId(), "1"); second.GetBrokerId() != first+"2" {
		t.Errorf("broker_id %q after %q", second.GetBrokerId(), resp.GetBrokerId())
	}
	if err := again.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBrokerNeverCallsItself(t *testing.T) {
	n := startTestNode(t, testSettings(t))
	c := dialNode(t, n)
	for _, addr := range []net.Addr{n.grpc, n.http} {
		resp, err := callFor(t, c, "http://"+address(addr)+"/healthz")
		if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_DENIED || resp.GetSends() != 0 {
			t.Errorf("%s: outcome %v, error %v", addr, resp.GetOutcome(), err)
		}
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStateIsForItsOwnerAlone(t *testing.T) {
	s := testSettings(t)
	n := startTestNode(t, s)
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]os.FileMode{s.Data: 0o700, filepath.Join(s.Data, "broker.json"): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: mode %o, want %o", path, got, want)
		}
	}
}

func TestHealthPortTellsNothingElse(t *testing.T) {
	n := startTestNode(t, testSettings(t))
	for _, tt := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/healthz", 200, "ok\n"},
		{"GET", "/readyz", 200, "ok\n"},
		{"HEAD", "/healthz", 200, ""},
		{"POST", "/healthz", 405, "use GET\n"},
		{"GET", "/", 404, "not found\n"},
		{"GET", "/healthz/", 404, "not found\n"},
		{"GET", "//healthz", 404, "not found\n"},
		{"GET", "/debug/pprof/", 404, "not found\n"},
	} {
		if status, body := get(t, n, tt.method, tt.path); status != tt.status || body != tt.body {
			t.Errorf("%s %s: %d %q, want %d %q", tt.method, tt.path, status, body, tt.status, tt.body)
		}
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}
