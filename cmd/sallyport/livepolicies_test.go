package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// policiesOf is the PolicyService of a broker.
func policiesOf(t *testing.T, address string) pb.PolicyServiceClient {
	t.Helper()
	c, err := client.Dial(address, client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Policies()
}

// marks is a policy whose calls bear a mark; what else it says is as in [marked].
func marks(mark string) *pb.Policy {
	return &pb.Policy{
		Retry:   &pb.RetryPolicy{Backoff: &pb.Backoff{Base: durationpb.New(time.Millisecond), Jitter: pb.Jitter_JITTER_NONE}},
		Breaker: &pb.BreakerPolicy{ConsecutiveFailures: new(uint32(0)), MinRequests: new(uint32(1000000))},
		Budget:  &pb.BudgetPolicy{Kind: &pb.BudgetPolicy_Window{Window: &pb.WindowBudget{Ratio: new(1.0), MinPerSecond: new(1000.0)}}},
		Headers: &pb.HeadersPolicy{Set: map[string]string{"X-Mark": mark}},
	}
}

// Fifty writes a second meet several hundred calls a second, each of two attempts: every call has one revision from its first attempt
// to its reply, and none is lost.
func TestPoliciesWrittenUnderLoadMixInNoCall(t *testing.T) {
	n := startTestNode(t, testSettings(t))
	defer stopNode(t, n)
	url, c, policies := echo(t), dialNode(t, n), policiesOf(t, address(n.grpc))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := policies.CreatePolicy(ctx, &pb.CreatePolicyRequest{PolicyId: "all", Policy: marks("1")}); err != nil {
		t.Fatal(err)
	}
	const writes = 100
	var calls atomic.Uint64
	var wrong sync.Map // problems by the id of the call
	over := make(chan struct{})
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				id := fmt.Sprintf("/%d-%d", caller, i)
				resp, err := callFor(t, c, url+id)
				if err != nil {
					wrong.Store(id, err.Error())
					return
				}
				_, revision, _ := strings.Cut(resp.GetPolicy(), "@")
				if got := string(resp.GetResponse().GetBody()); resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || got != revision+","+revision {
					wrong.Store(id, fmt.Sprintf("%s, revision %s, marks %q: %s", resp.GetOutcome(), revision, got, resp.GetDetail()))
				}
				calls.Add(1)
			}
		})
	}
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for i := range writes {
		<-pace.C
		p := marks(strconv.Itoa(i + 2))
		p.Name = "policies/all"
		if _, err := policies.UpdatePolicy(ctx, &pb.UpdatePolicyRequest{Policy: p}); err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	callers.Wait()
	wrong.Range(func(id, problem any) bool {
		t.Errorf("%s: %s", id, problem)
		return true
	})
	if calls.Load() < writes {
		t.Errorf("only %d calls", calls.Load())
	}
	t.Logf("%d calls, %d writes", calls.Load(), writes)
}

func stopNode(t *testing.T, n *node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	if err := n.stop(ctx); err != nil {
		t.Error(err)
	}
}

// A write that was answered is there after a kill that leaves no time for anything.
func TestWritesSurviveSIGKILL(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	policyID := func(p *pb.Policy) string { return fmt.Sprintf("%s@%d", p.GetName(), p.GetRevision()) }
	var want []string
	for round := range 3 {
		p := startProcess(t, "--data", data)
		policies := policiesOf(t, p.address)
		resp, err := policies.ListPolicies(t.Context(), &pb.ListPoliciesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, q := range resp.GetPolicies() {
			if !q.GetReadOnly() {
				got = append(got, policyID(q))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
		for i := range 5 {
			made, err := policies.CreatePolicy(t.Context(), &pb.CreatePolicyRequest{PolicyId: fmt.Sprintf("p%d-%d", round, i), Policy: marks("x")})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, policyID(made.GetPolicy()))
		}
		p.signal(t, syscall.SIGKILL)
		p.end(t)
	}
	p := startProcess(t, "--data", data)
	records, err := policiesOf(t, p.address).ListAuditRecords(t.Context(), &pb.ListAuditRecordsRequest{})
	if err != nil || len(records.GetRecords()) != len(want) {
		t.Errorf("%d records of %d writes, %v", len(records.GetRecords()), len(want), err)
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.end(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A store that cannot be opened keeps a broker from starting, says why, and names what it can be started with instead: the policies
// that were last in force.
func TestDamagedStoreNamesTheLastGoodPolicies(t *testing.T) {
	s := testSettings(t)
	n := startTestNode(t, s)
	if _, err := policiesOf(t, address(n.grpc)).CreatePolicy(t.Context(), &pb.CreatePolicyRequest{PolicyId: "kept", Policy: marks("7")}); err != nil {
		t.Fatal(err)
	}
	stopNode(t, n)
	database, lastGood := filepath.Join(s.Data, storeName), filepath.Join(s.Data, lastGoodName)
	content := bytes.Repeat([]byte("no database "), 1000)
	if err := os.WriteFile(database, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := startNode(t.Context(), s, n.log)
	if err == nil || !strings.Contains(err.Error(), database) || !strings.Contains(err.Error(), lastGood) {
		t.Fatalf("with a damaged store: %v", err)
	}
	if rules, err := broker.LoadPolicyFile(lastGood); err != nil || len(rules) != 1 || rules[0].Name != "policies/kept" {
		t.Errorf("%v, %v", rules, err)
	}
	other := testSettings(t)
	other.Policies = lastGood
	n = startTestNode(t, other)
	defer stopNode(t, n)
	resp, err := callFor(t, dialNode(t, n), echo(t)+"/x")
	if err != nil || string(resp.GetResponse().GetBody()) != "7,7" {
		t.Errorf("%v, %v", resp, err)
	}
}

// A secret that only a written policy needs keeps nothing else from being reloaded, and is told as what it is.
func TestSecretOfAWrittenPolicyThatIsLostHoldsUpNoFile(t *testing.T) {
	dir := t.TempDir()
	s := testSettings(t)
	s.Policies, s.Secrets = filepath.Join(dir, "policies.yaml"), filepath.Join(dir, "secrets")
	key := filepath.Join(s.Secrets, "key")
	if err := os.Mkdir(s.Secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	replaceFile(t, key, "k1\n")
	replaceFile(t, s.Policies, "policies: [{ name: policies/file }]\n")
	n, log := logOf(t, s)
	policies := policiesOf(t, address(n.grpc))
	if _, err := policies.CreatePolicy(t.Context(), &pb.CreatePolicyRequest{PolicyId: "needs", Policy: &pb.Policy{
		Credentials: []*pb.Credential{{Header: new("X-Mark"), Secret: new("key"), Hosts: []string{"127.0.0.1"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	replaceFile(t, s.Policies, "policies: [{ name: policies/file, description: another }]\n")
	reread(t, n)
	if resp, err := policies.GetPolicy(t.Context(), &pb.GetPolicyRequest{Name: "policies/file"}); err != nil || resp.GetPolicy().GetDescription() != "another" {
		t.Errorf("the file's policy is %v, %v", resp, err)
	}
	if resp, err := callFor(t, dialNode(t, n), echo(t)+"/x"); err != nil || string(resp.GetResponse().GetBody()) != "k1,k1" {
		t.Errorf("a call with the secret: %v, %v", resp, err)
	}
	stopNode(t, n)
	if want := `what=secrets error="policies/needs@1: credentials[0].secret: secret \"key\" is no file`; strings.Count(log(), "reload refused") != 1 || !strings.Contains(log(), want) {
		t.Errorf("the log has no %s:\n%s", want, log())
	}
}
