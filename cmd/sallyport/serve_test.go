package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// slowUpstream answers when it is told to.
func slowUpstream(t *testing.T) (url string, arrived <-chan struct{}, release chan<- struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in, out := make(chan struct{}, 8), make(chan struct{}, 8) // closed by nobody
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		in <- struct{}{}
		select {
		case <-out:
		case <-r.Context().Done():
		}
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
	return "http://" + l.Addr().String() + "/", in, out
}

type called struct {
	resp *pb.CallResponse
	err  error
}

// inFlight starts a call and returns once the upstream has it.
func inFlight(t *testing.T, c *client.Client, url string, arrived <-chan struct{}) <-chan called {
	t.Helper()
	result := make(chan called, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		resp, err := c.Call(ctx, request("GET", url))
		result <- called{resp, err}
	}()
	<-arrived
	return result
}

// startServe runs serve and returns a client once the broker answers.
func startServe(t *testing.T, signals <-chan os.Signal) (*client.Client, <-chan error) {
	t.Helper()
	s := testSettings(t)
	s.GRPC = "unix:" + filepath.Join(t.TempDir(), "s")
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(context.Background(), s, writer, signals, nil) //nolint:usetesting // it ends by its signals, not by the test
		_ = writer.Close()
		ended <- err
	}()
	buf := make([]byte, 4096)
	for text := ""; !strings.Contains(text, "msg=serving"); {
		k, err := reader.Read(buf)
		if err != nil {
			t.Fatalf("serve did not start: %v %v", err, <-ended)
		}
		text += string(buf[:k])
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, reader)
	}()
	t.Cleanup(func() { <-read })
	c, err := client.Dial(s.GRPC, client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, ended
}

func TestFirstSignalLetsCallsFinish(t *testing.T) {
	signals := make(chan os.Signal, 2)
	url, arrived, release := slowUpstream(t)
	c, ended := startServe(t, signals)
	result := inFlight(t, c, url, arrived)
	signals <- syscall.SIGTERM
	for { // until the drain has begun, calls go through and must be let go
		_, err := callForDraining(t, c)
		if r := client.Explain(err); r.Reason == "DRAINING" && r.NothingSent {
			break
		} else if err != nil && r.Code == codes.Unavailable {
			break // the connection is going away, which a drain does too
		}
	}
	release <- struct{}{}
	if got := <-result; got.err != nil || got.resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("the call in flight: %v, %v", got.resp.GetOutcome(), got.err)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// callForDraining asks for something that sends nothing, so that it answers at once.
func callForDraining(t *testing.T, c *client.Client) (*pb.CallResponse, error) {
	t.Helper()
	return callFor(t, c, "http://169.254.1.1/")
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	signals := make(chan os.Signal, 2)
	url, arrived, _ := slowUpstream(t)
	c, ended := startServe(t, signals)
	result := inFlight(t, c, url, arrived)
	signals <- syscall.SIGTERM
	signals <- syscall.SIGTERM
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
	if got := <-result; got.err != nil || got.resp.GetOutcome() != pb.Outcome_OUTCOME_CANCELLED {
		t.Errorf("the call in flight: %v, %v", got.resp.GetOutcome(), got.err)
	}
}

func TestReadyTellsThatTheBrokerDrains(t *testing.T) {
	url, arrived, release := slowUpstream(t)
	n := startTestNode(t, testSettings(t))
	result := inFlight(t, dialNode(t, n), url, arrived)
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop(context.Background()) }() //nolint:usetesting // the drain ends by the release below
	for !n.server.Draining() {
		select {
		case err := <-stopped:
			t.Fatalf("stopped with a call in flight: %v", err)
		default:
		}
	}
	if status, body := get(t, n, "GET", "/readyz"); status != 503 || body != "draining\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	if status, _ := get(t, n, "GET", "/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	release <- struct{}{}
	if got := <-result; got.err != nil {
		t.Error(got.err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
