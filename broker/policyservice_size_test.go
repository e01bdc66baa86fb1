package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/admin"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// wide is a policy of about that many bytes.
func wide(bytes int) *pb.Policy {
	const host = ".example.com"
	p := &pb.Policy{Match: &pb.Match{}}
	for i := range bytes / 200 {
		name := fmt.Sprintf("%s%d", strings.Repeat("a.", 50), i)
		p.Match.Hosts = append(p.Match.Hosts, strings.Repeat("b.", (198-len(name)-len(host))/2)+name+host)
	}
	return p
}

// A stock client takes messages of 4 MiB.
func TestPagesFitAStockClient(t *testing.T) {
	r := start(t, setup{store: onDisk(t)})
	for i := range 6 {
		r.make(t, fmt.Sprint("a", i), wide(900<<10))
	}
	for i := range 5 {
		p := wide(900 << 10)
		p.Name, p.Description = "policies/a0", fmt.Sprint(i)
		if _, err := r.policies.UpdatePolicy(within(t), &pb.UpdatePolicyRequest{Policy: p}); err != nil {
			t.Fatal(err)
		}
	}
	var names, revisions []string
	for token, more := "", true; more; more = token != "" {
		resp, err := r.policies.ListPolicies(within(t), &pb.ListPoliciesRequest{PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.GetPolicies() {
			names = append(names, strings.TrimPrefix(p.GetName(), "policies/"))
		}
		token = resp.GetNextPageToken()
	}
	if want := []string{"a0", "a1", "a2", "a3", "a4", "a5", "default"}; !slices.Equal(names, want) {
		t.Errorf("the policies are %v", names)
	}
	for token, more := "", true; more; more = token != "" {
		resp, err := r.policies.ListPolicyRevisions(within(t), &pb.ListPolicyRevisionsRequest{Name: "policies/a0", PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.GetPolicies() {
			revisions = append(revisions, fmt.Sprint(p.GetRevision()))
		}
		token = resp.GetNextPageToken()
	}
	if want := []string{"6", "5", "4", "3", "2", "1"}; !slices.Equal(revisions, want) {
		t.Errorf("the revisions are %v", revisions)
	}
	records := 0
	for token, more := "", true; more; more = token != "" {
		resp, err := r.policies.ListAuditRecords(within(t), &pb.ListAuditRecordsRequest{PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		records += len(resp.GetRecords())
		token = resp.GetNextPageToken()
	}
	if records != 11 {
		t.Errorf("%d records, want 11", records)
	}
}

func TestPolicyThatIsTooLargeIsRefused(t *testing.T) {
	r := start(t, setup{store: onDisk(t)})
	_, err := r.policies.CreatePolicy(within(t), &pb.CreatePolicyRequest{PolicyId: "a", Policy: wide(1100 << 10)})
	if path, text := field(err); status.Code(err) != codes.InvalidArgument || path != "policy" || !strings.Contains(text, "more than the 1048576") {
		t.Errorf("got %s: %s, %.200v", path, text, err)
	}
}

// Thousands of watchers tell thousands of policies: what a change costs each must not be a copy of them all.
func TestTellingAChangeCostsThatChange(t *testing.T) {
	before := make([]admin.Policy, 10_000)
	for i := range before {
		name := fmt.Sprintf("policies/%05d", i)
		before[i] = admin.Policy{Rule: policy.Rule{Name: name, Revision: 1}, Document: []byte("{}"), Etag: name}
	}
	after := slices.Delete(slices.Clone(before), 7000, 7001)
	after[3].Etag = "another"
	after = slices.Insert(after, 9000, admin.Policy{Rule: policy.Rule{Name: "policies/08999x", Revision: 1}, Document: []byte("{}"), Etag: "new"})
	slices.SortFunc(after, func(a, b admin.Policy) int { return strings.Compare(a.Rule.Name, b.Rule.Name) })
	var told []string
	allocs := testing.AllocsPerRun(1, func() {
		told = nil
		err := tell(before, after, func(m *pb.WatchPoliciesResponse) error {
			told = append(told, fmt.Sprint(m.GetPolicy().GetName(), m.GetDeleted()))
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	if want := []string{"policies/00003false", "policies/08999xfalse", "policies/07000true"}; !slices.Equal(told, want) {
		t.Errorf("told %v", told)
	}
	if allocs > 500 {
		t.Errorf("%v allocations for three changes among 10 000 policies", allocs)
	}
}
