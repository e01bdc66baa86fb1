package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// TestAnOldBrokerIDDoesNotMakeAnotherProcessesSendsOurs: broker.json comes back from a backup, so that two processes have one broker_id. What
// the first was sending when it was killed may have happened.
func TestAnOldBrokerIDDoesNotMakeAnotherProcessesSendsOurs(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	backup := func() {
		t.Helper()
		if err := os.WriteFile(filepath.Join(data, "broker.json"), []byte(`{"id":"0123456789abcdef","boots":6}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	url, arrived, _ := slowUpstream(t)
	charge := request("POST", url)
	charge.OperationId = "charge-1"
	backup()
	p := startProcess(t, "--data", data)
	ended := make(chan struct{}) // closed by the goroutine below
	go func() {
		defer close(ended)
		_, _ = p.client.Call(t.Context(), charge) // the broker goes away in the middle
	}()
	<-arrived
	p.signal(t, syscall.SIGKILL)
	p.end(t)
	<-ended
	backup()
	again := startProcess(t, "--data", data)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	resp, err := again.client.Call(ctx, charge)
	for client.Explain(err).Reason == "LEDGER_UNAVAILABLE" && ctx.Err() == nil { // what the first one left is not in order yet
		resp, err = again.client.Call(ctx, charge)
	}
	if err != nil || resp.GetBrokerId() != "0123456789abcdef@7" || resp.GetOutcome() != pb.Outcome_OUTCOME_UNKNOWN || resp.GetEffect() != pb.Effect_EFFECT_UNKNOWN || resp.GetSends() != 0 || !resp.GetReplayed() {
		t.Errorf("got %v, %v", resp, err)
	}
	again.signal(t, syscall.SIGKILL)
	again.end(t)
}
