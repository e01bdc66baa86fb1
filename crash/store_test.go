package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/crash/victim"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// broken is a broker whose store is broken in turn.
type broken struct {
	*stage

	program  string
	calls    pb.CallServiceClient
	deferred pb.DeferredServiceClient
	up       string
	accepted map[string]bool
}

// What becomes of the store of the real program: somebody locks it, it is overwritten, a second broker wants it. Submissions are refused
// then, what was acknowledged is there afterwards, and direct calls are made as ever.
func TestBrokenStoreRefusesAndLosesNothing(t *testing.T) {
	b := newBroken(t)
	b.submitted(t, "before")
	b.secondBroker(t)

	lock, err := lockStore(t.Context(), b.store())
	if err != nil {
		t.Fatal(err)
	}
	b.refused(t, "while it is locked")
	if err := lock.close(); err != nil {
		t.Fatal(err)
	}
	b.submitted(t, "after it was locked")

	// The log beside the file has what was acknowledged last; nobody may touch it as long as the file is damaged.
	var sound []byte
	b.restart(t, func() (err error) {
		if sound, err = os.ReadFile(b.store()); err != nil {
			return err
		}
		return os.WriteFile(b.store(), bytes.Repeat([]byte("no store "), 1000), 0o600)
	})
	b.refused(t, "when it is overwritten")
	b.restart(t, func() error { return os.WriteFile(b.store(), sound, 0o600) })
	b.submitted(t, "when it is back")
}

func newBroken(t *testing.T) *broken {
	t.Helper()
	dir := t.TempDir()
	b := &broken{program: filepath.Join(dir, "sallyport"), accepted: map[string]bool{}}
	if err := victim.Build(t.Context(), b.program); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.stage, err = openStage(t.Context(), b.program, 1, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(nil); err != nil {
			t.Error(err)
		}
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	t.Cleanup(s.Close)
	b.up = s.URL
	conn, err := grpc.NewClient(b.broker.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.calls, b.deferred = pb.NewCallServiceClient(conn), pb.NewDeferredServiceClient(conn)
	return b
}

func (b *broken) submit(t *testing.T, id string) error {
	t.Helper()
	const ample, tomorrow = 20 * time.Second, 23 * time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	_, err := b.deferred.SubmitDeferredCall(ctx, &pb.SubmitDeferredCallRequest{
		Call:          &pb.CallRequest{OperationId: id, Request: &pb.HttpRequest{Method: "GET", Url: b.up}},
		NotBeforeTime: timestamppb.New(time.Now().Add(tomorrow)),
	})
	return err
}

// submitted: it is accepted, and all that were are there.
func (b *broken) submitted(t *testing.T, when string) {
	t.Helper()
	id := strings.ReplaceAll(when, " ", "-")
	if err := b.submit(t, id); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	b.accepted[id] = true
	list, err := b.deferred.ListDeferredCalls(t.Context(), &pb.ListDeferredCallsRequest{})
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	there := map[string]bool{}
	for _, d := range list.GetDeferredCalls() {
		there[d.GetOperationId()] = true
	}
	for id := range b.accepted {
		if !there[id] {
			t.Errorf("%s: %s was acknowledged and is lost", when, id)
		}
	}
}

// refused: a submission is refused, and a direct call is made meanwhile.
func (b *broken) refused(t *testing.T, when string) {
	t.Helper()
	refused := make(chan error, 1)
	go func() { refused <- b.submit(t, "refused-"+strings.ReplaceAll(when, " ", "-")) }()
	for range 3 {
		const ample = 3 * time.Second // less than the store waits for a lock
		ctx, cancel := context.WithTimeout(t.Context(), ample)
		resp, err := b.calls.Call(ctx, &pb.CallRequest{Request: &pb.HttpRequest{Method: "GET", Url: b.up}})
		cancel()
		if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
			t.Errorf("%s: a direct call: %v %v", when, resp.GetOutcome(), err)
		}
	}
	if err := <-refused; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "store") {
		t.Errorf("%s: a submission: %v, want UNAVAILABLE and that it is the store", when, err)
	}
}

// secondBroker wants the same data.
func (b *broken) secondBroker(t *testing.T) {
	t.Helper()
	const ample = 20 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.program, "serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", filepath.Dir(b.store())).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "in use by another broker") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("a second broker: %v, %q", err, out)
	}
}

func (b *broken) restart(t *testing.T, between func() error) {
	t.Helper()
	if err := b.kill(t.Context(), true, between); err != nil {
		t.Fatal(err)
	}
}
