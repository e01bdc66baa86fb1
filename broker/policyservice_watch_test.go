package broker

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/store/memory"
)

// watchedPolicies collects what a watch tells, until it has told that.
func watchedPolicies(t *testing.T, stream pb.PolicyService_WatchPoliciesClient, last string) (told []string) {
	t.Helper()
	for {
		resp, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %v: %v", told, err)
		}
		text := fmt.Sprintf("%s@%d", resp.GetPolicy().GetName(), resp.GetPolicy().GetRevision())
		switch {
		case resp.GetSynced():
			text = "synced"
		case resp.GetDeleted():
			text += " deleted"
		}
		if told = append(told, text); text == last {
			return told
		}
	}
}

func TestWatchTellsAllThenChanges(t *testing.T) {
	r := start(t, setup{store: onDisk(t)})
	r.make(t, "a", attempts(1))
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	stream, err := r.policies.WatchPolicies(ctx, &pb.WatchPoliciesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := watchedPolicies(t, stream, "synced"); !slices.Equal(got, []string{"policies/a@1", "policies/default@0", "synced"}) {
		t.Errorf("at first %v", got)
	}
	r.make(t, "b", attempts(1))
	if got := watchedPolicies(t, stream, "policies/b@1"); len(got) != 1 {
		t.Errorf("then %v", got)
	}
	if _, err := r.policies.DeletePolicy(within(t), &pb.DeletePolicyRequest{Name: "policies/a"}); err != nil {
		t.Fatal(err)
	}
	if got := watchedPolicies(t, stream, "policies/a@1 deleted"); len(got) != 1 {
		t.Errorf("then %v", got)
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("at the end %v", err)
	}
	// One that comes back begins with what stands.
	again, err := r.policies.WatchPolicies(within(t), &pb.WatchPoliciesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := watchedPolicies(t, again, "synced"); !slices.Equal(got, []string{"policies/b@1", "policies/default@0", "synced"}) {
		t.Errorf("again %v", got)
	}
}

// A watcher that reads nothing holds up no write, and in the end gets what stands and not every step.
func TestSlowWatcherHoldsUpNoWrite(t *testing.T) {
	r := start(t, setup{store: memory.New()})
	big := attempts(1)
	big.Egress = &pb.EgressPolicy{AllowCidrs: make([]string, 300)}
	for i := range big.GetEgress().GetAllowCidrs() {
		big.Egress.AllowCidrs[i] = fmt.Sprintf("10.%d.%d.0/24", i/100, i%100)
	}
	r.make(t, "a", big)
	stream, err := r.policies.WatchPolicies(within(t), &pb.WatchPoliciesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	const writes = 100 // of 4 KiB each, more than a stream holds
	for n := range uint32(writes) {
		if _, err := r.policies.UpdatePolicy(within(t), &pb.UpdatePolicyRequest{Policy: &pb.Policy{Name: "policies/a", Retry: attempts(n + 2).GetRetry()}}); err != nil {
			t.Fatal(err)
		}
	}
	got := watchedPolicies(t, stream, fmt.Sprintf("policies/a@%d", writes+1))
	if len(got) >= writes {
		t.Errorf("%d messages", len(got))
	}
}

// A drain does not wait for watchers, and tells them why they end.
func TestDrainEndsWatches(t *testing.T) {
	r := start(t, setup{store: memory.New()})
	stream, err := r.policies.WatchPolicies(within(t), &pb.WatchPoliciesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	watchedPolicies(t, stream, "synced")
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.server.Drain(within(t))
	}()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
		t.Errorf("%v", err)
	}
	<-drained
}

