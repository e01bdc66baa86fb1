package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/store/sqlite"
)

// onDisk is a store as brokers have it.
func onDisk(t testing.TB) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sallyport.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func attempts(n uint32) *pb.Policy {
	return &pb.Policy{Retry: &pb.RetryPolicy{MaxAttempts: new(n)}}
}

func (r *running) make(t testing.TB, id string, p *pb.Policy) *pb.Policy {
	t.Helper()
	resp, err := r.policies.CreatePolicy(within(t), &pb.CreatePolicyRequest{PolicyId: id, Policy: p})
	if err != nil {
		t.Fatalf("create %s: %v", id, err)
	}
	return resp.GetPolicy()
}

// field is the first field that an error names, with its reason.
func field(err error) (path, text string) {
	for _, d := range status.Convert(err).Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			return bad.GetFieldViolations()[0].GetField(), bad.GetFieldViolations()[0].GetDescription()
		}
	}
	return "", ""
}

func TestPolicyOverTheWireHoldsForTheNextCall(t *testing.T) {
	r := start(t, setup{store: onDisk(t), sender: senderFunc(func(context.Context, *call.Call) call.Result { return answered(503) })})
	tries := func(url string) string {
		t.Helper()
		resp, err := r.calls.Call(within(t), get(url))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(len(resp.GetAttempts()), " ", resp.GetPolicy())
	}
	quick := &pb.Backoff{Base: durationpb.New(time.Millisecond)}
	const url = "http://127.0.0.1/late/x"
	p := &pb.Policy{Match: &pb.Match{PathPrefix: new("/late")}, Retry: &pb.RetryPolicy{MaxAttempts: new(uint32(1)), Backoff: quick, Hold: new(false)}}
	checked, err := r.policies.CreatePolicy(within(t), &pb.CreatePolicyRequest{PolicyId: "late", Policy: p, ValidateOnly: true})
	if err != nil || checked.GetPolicy().GetRevision() != 1 {
		t.Fatalf("%v, %v", checked, err)
	}
	if _, err := r.policies.GetPolicy(within(t), &pb.GetPolicyRequest{Name: "policies/late"}); status.Code(err) != codes.NotFound || unsent(err) != "NOT_FOUND" {
		t.Errorf("after a check: %v", err)
	}
	made := r.make(t, "late", p)
	if made.GetName() != "policies/late" || made.GetRevision() != 1 || made.GetEtag() == "" || made.GetCreateTime() == nil || made.GetReadOnly() {
		t.Errorf("made %v", made)
	}
	if got := tries(url); got != "1 policies/late@1" {
		t.Errorf("a call has %s", got)
	}
	updated, err := r.policies.UpdatePolicy(within(t), &pb.UpdatePolicyRequest{
		Policy:     &pb.Policy{Name: "policies/late", Etag: made.GetEtag(), Retry: &pb.RetryPolicy{MaxAttempts: new(uint32(2))}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retry.max_attempts"}},
	})
	if err != nil || !proto.Equal(updated.GetPolicy().GetRetry().GetBackoff(), quick) {
		t.Fatalf("%v, %v", updated, err)
	}
	if got := tries(url); got != "2 policies/late@2" {
		t.Errorf("a call has %s", got)
	}
	if _, err := r.policies.RollbackPolicy(within(t), &pb.RollbackPolicyRequest{Name: "policies/late", Revision: 1}); err != nil {
		t.Fatal(err)
	}
	if got := tries(url); got != "1 policies/late@3" {
		t.Errorf("a call has %s", got)
	}
	if _, err := r.policies.DeletePolicy(within(t), &pb.DeletePolicyRequest{Name: "policies/late", Etag: updated.GetPolicy().GetEtag()}); status.Code(err) != codes.Aborted || unsent(err) != "ETAG_MISMATCH" {
		t.Errorf("with an old etag: %v", err)
	}
	if _, err := r.policies.DeletePolicy(within(t), &pb.DeletePolicyRequest{Name: "policies/late"}); err != nil {
		t.Fatal(err)
	}
	if got := tries(url); !strings.HasSuffix(got, " policies/default@0") {
		t.Errorf("a call has %s", got)
	}
}

func TestBadPolicyWritesNameTheField(t *testing.T) {
	store := onDisk(t)
	r := start(t, setup{store: store, rules: []policy.Rule{{Name: "policies/file", Revision: 1, File: true}}})
	r.make(t, "a", attempts(1))
	create := func(id string, p *pb.Policy) error {
		_, err := r.policies.CreatePolicy(within(t), &pb.CreatePolicyRequest{PolicyId: id, Policy: p})
		return err
	}
	update := func(p *pb.Policy, paths ...string) error {
		_, err := r.policies.UpdatePolicy(within(t), &pb.UpdatePolicyRequest{Policy: p, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return err
	}
	long := strings.Repeat("x", maxReason+1)
	for _, row := range []struct {
		name  string
		err   error
		code  codes.Code
		field string // of a BadRequest; otherwise the reason
	}{
		{"no id", create("", attempts(1)), codes.InvalidArgument, "policy_id"},
		{"an id that is none", create("a b", attempts(1)), codes.InvalidArgument, "policy.name"},
		{"no policy", create("x", nil), codes.InvalidArgument, "policy"},
		{"another name", create("x", &pb.Policy{Name: "policies/y"}), codes.InvalidArgument, "policy.name"},
		{"a negative duration", create("x", &pb.Policy{Retry: &pb.RetryPolicy{Backoff: &pb.Backoff{Base: durationpb.New(-1)}}}), codes.InvalidArgument, "policy.retry.backoff.base"},
		{"no attempt", create("x", attempts(0)), codes.InvalidArgument, "policy.retry.max_attempts"},
		{"a cap below the base", create("x", &pb.Policy{Retry: &pb.RetryPolicy{Backoff: &pb.Backoff{
			Base: durationpb.New(2 * time.Second), Cap: durationpb.New(time.Second),
		}}}), codes.InvalidArgument, "policy.retry.backoff.cap"},
		{"a path that no call has", create("x", &pb.Policy{Match: &pb.Match{PathPrefix: new("/a/../b")}}), codes.InvalidArgument, "policy.match.path_prefix"},
		{"an impossible CIDR", create("x", &pb.Policy{Egress: &pb.EgressPolicy{AllowCidrs: []string{"10.0.0.1/33"}}}), codes.InvalidArgument, "policy.egress.allow_cidrs[0]"},
		{"a match of policies/default", create("default", &pb.Policy{Match: &pb.Match{PathPrefix: new("/a")}}), codes.InvalidArgument, "policy.match"},
		{"a name that is taken", create("a", attempts(1)), codes.AlreadyExists, "ALREADY_EXISTS"},
		{"a name that a file has", create("file", attempts(1)), codes.AlreadyExists, "ALREADY_EXISTS"},
		{"no name", update(attempts(1)), codes.InvalidArgument, "policy.name"},
		{"a name that is not there", update(&pb.Policy{Name: "policies/none"}), codes.NotFound, "NOT_FOUND"},
		{"a file's", update(&pb.Policy{Name: "policies/file"}), codes.FailedPrecondition, "POLICY_READ_ONLY"},
		{"built in", update(&pb.Policy{Name: "policies/default"}), codes.FailedPrecondition, "POLICY_READ_ONLY"},
		{"a mask of no field", update(&pb.Policy{Name: "policies/a"}, "retry", "retry.attempts"), codes.InvalidArgument, "update_mask.paths[1]"},
		{"a mask into a value", update(&pb.Policy{Name: "policies/a"}, "retry.backoff.base.seconds"), codes.InvalidArgument, "update_mask.paths[0]"},
		{"a mask of the name", update(&pb.Policy{Name: "policies/a"}, "name"), codes.InvalidArgument, "update_mask.paths[0]"},
		{"a mask of all and more", update(&pb.Policy{Name: "policies/a"}, "*", "retry"), codes.InvalidArgument, "update_mask.paths[0]"},
		{"an update that breaks it", update(&pb.Policy{Name: "policies/a", Retry: &pb.RetryPolicy{MaxAttempts: new(uint32(0))}}), codes.InvalidArgument, "policy.retry.max_attempts"},
		{"a long reason", func() error {
			_, err := r.policies.DeletePolicy(within(t), &pb.DeletePolicyRequest{Name: "policies/a", Reason: long})
			return err
		}(), codes.InvalidArgument, "reason"},
		{"no revision", func() error {
			_, err := r.policies.RollbackPolicy(within(t), &pb.RollbackPolicyRequest{Name: "policies/a"})
			return err
		}(), codes.InvalidArgument, "revision"},
		{"a revision that never was", func() error {
			_, err := r.policies.RollbackPolicy(within(t), &pb.RollbackPolicyRequest{Name: "policies/a", Revision: 7})
			return err
		}(), codes.NotFound, "NOT_FOUND"},
		{"a negative page", func() error {
			_, err := r.policies.ListPolicies(within(t), &pb.ListPoliciesRequest{PageSize: -1})
			return err
		}(), codes.InvalidArgument, "page_size"},
		{"a token of somebody's own", func() error {
			_, err := r.policies.ListPolicies(within(t), &pb.ListPoliciesRequest{PageToken: "policies/a"})
			return err
		}(), codes.InvalidArgument, "page_token"},
		{"a token of another list", func() error {
			_, err := r.policies.ListAuditRecords(within(t), &pb.ListAuditRecordsRequest{PageToken: pageToken("policies/a")})
			return err
		}(), codes.InvalidArgument, "page_token"},
		{"no method", func() error {
			_, err := r.policies.ResolvePolicy(within(t), &pb.ResolvePolicyRequest{Url: "http://a.example.com/"})
			return err
		}(), codes.InvalidArgument, "method"},
		{"no URL", func() error {
			_, err := r.policies.ResolvePolicy(within(t), &pb.ResolvePolicyRequest{Method: "GET"})
			return err
		}(), codes.InvalidArgument, "url"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if status.Code(row.err) != row.code {
				t.Fatalf("%v", row.err)
			}
			if row.code != codes.InvalidArgument {
				if got := unsent(row.err); got != row.field {
					t.Errorf("the reason is %s", got)
				}
				return
			}
			if got, text := field(row.err); got != row.field || text == "" || unsent(row.err) != "INVALID_REQUEST" {
				t.Errorf("the field is %s: %s", got, text)
			}
		})
	}
	if all, err := store.Records(t.Context(), "", "", 0, 10); err != nil || len(all) != 1 {
		t.Errorf("%d records of what was refused, %v", len(all)-1, err)
	}
}

func TestUpdateMasks(t *testing.T) {
	const name = "policies/a"
	whole := &pb.Policy{
		Description: "old",
		Match:       &pb.Match{PathPrefix: new("/a"), Ports: []uint32{80}},
		Retry:       &pb.RetryPolicy{MaxAttempts: new(uint32(5)), Backoff: &pb.Backoff{Base: durationpb.New(time.Second), Cap: durationpb.New(time.Minute)}},
		Hedge:       &pb.HedgePolicy{MaxHedges: new(uint32(2))},
	}
	cases := map[string]struct {
		paths  []string
		change *pb.Policy
		want   func(*pb.Policy)
	}{
		"a block":                   {[]string{"retry"}, attempts(1), func(p *pb.Policy) { p.Retry = attempts(1).GetRetry() }},
		"a field":                   {[]string{"retry.max_attempts"}, attempts(1), func(p *pb.Policy) { p.Retry.MaxAttempts = new(uint32(1)) }},
		"a nested field is cleared": {[]string{"retry.backoff.cap"}, nil, func(p *pb.Policy) { p.Retry.Backoff.Cap = nil }},
		"a block is cleared":        {[]string{"hedge"}, nil, func(p *pb.Policy) { p.Hedge = nil }},
		"a list is one value":       {[]string{"match.ports"}, &pb.Policy{Match: &pb.Match{Ports: []uint32{443, 8443}}}, func(p *pb.Policy) { p.Match.Ports = []uint32{443, 8443} }},
		"what is absent on both sides stays away, with its block": {[]string{"idempotency.key_ttl"}, nil, func(*pb.Policy) {}},
		"what is cleared makes no block, whatever else the change has": {
			[]string{"idempotency.key_ttl", "retry.verdict_header.stop_values", "budget.token_bucket.rule"}, &pb.Policy{
				Idempotency: &pb.IdempotencyPolicy{Header: new("X-Key")}, Retry: &pb.RetryPolicy{VerdictHeader: &pb.VerdictHeader{Name: new("X-Verdict")}},
				Budget: &pb.BudgetPolicy{Kind: &pb.BudgetPolicy_TokenBucket{TokenBucket: &pb.TokenBucketBudget{MaxTokens: new(3.0)}}},
			}, func(*pb.Policy) {},
		},
		"several": {[]string{"description", "hedge.max_hedges"}, &pb.Policy{Description: "new"}, func(p *pb.Policy) { p.Description, p.Hedge.MaxHedges = "new", nil }},
		"all":     {[]string{"*"}, attempts(1), func(p *pb.Policy) { proto.Reset(p); proto.Merge(p, attempts(1)) }},
		"no mask": {nil, &pb.Policy{Match: &pb.Match{PathPrefix: new("/b")}}, func(p *pb.Policy) { p.Match.PathPrefix = new("/b") }},
		"what the broker sets is not the writer's": {[]string{"revision", "create_time", "read_only"}, &pb.Policy{Revision: 99, ReadOnly: true}, func(*pb.Policy) {}},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			r := start(t, setup{store: memory.New()})
			r.make(t, "a", proto.CloneOf(whole))
			change := &pb.Policy{}
			if c.change != nil {
				change = proto.CloneOf(c.change)
			}
			change.Name = name
			if _, err := r.policies.UpdatePolicy(within(t), &pb.UpdatePolicyRequest{Policy: change, UpdateMask: &fieldmaskpb.FieldMask{Paths: c.paths}}); err != nil {
				t.Fatal(err)
			}
			got, err := r.policies.GetPolicy(within(t), &pb.GetPolicyRequest{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			want := proto.CloneOf(whole)
			c.want(want)
			p := got.GetPolicy()
			want.Name, want.Etag, want.Revision, want.CreateTime, want.UpdateTime = name, p.GetEtag(), p.GetRevision(), p.GetCreateTime(), p.GetUpdateTime()
			if !proto.Equal(p, want) || p.GetRevision() > 2 {
				t.Errorf("%v\nwant %v", p, want)
			}
		})
	}
}

// Pages begin after the last thing of the page before, whatever was inserted meanwhile.
func TestPagesSurviveInserts(t *testing.T) {
	r := start(t, setup{store: onDisk(t)})
	for _, id := range []string{"b", "d", "f"} {
		r.make(t, id, attempts(1))
	}
	var names []string
	token := ""
	for page := 0; page == 0 || token != ""; page++ {
		resp, err := r.policies.ListPolicies(within(t), &pb.ListPoliciesRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.GetPolicies() {
			names = append(names, strings.TrimPrefix(p.GetName(), "policies/"))
		}
		token = resp.GetNextPageToken()
		if page == 0 {
			r.make(t, "a", attempts(1)) // before what was read
			r.make(t, "e", attempts(1)) // after it
		}
	}
	if want := []string{"b", "d", "default", "e", "f"}; !slices.Equal(slices.Compact(slices.Clone(names)), names) || !slices.Equal(sorted(names), sorted(want)) {
		t.Errorf("%v, want %v", names, want)
	}

	for n := range uint32(batch + 20) { // more than are read at once
		if _, err := r.policies.UpdatePolicy(within(t), &pb.UpdatePolicyRequest{Policy: &pb.Policy{Name: "policies/b", Retry: attempts(n + 2).GetRetry()}}); err != nil {
			t.Fatal(err)
		}
	}
	var revisions []uint64
	for token = ""; ; {
		resp, err := r.policies.ListPolicyRevisions(within(t), &pb.ListPolicyRevisionsRequest{Name: "policies/b", PageSize: batch + 3, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.GetPolicies() {
			revisions = append(revisions, p.GetRevision())
		}
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(revisions) != batch+21 || !slices.IsSortedFunc(revisions, func(a, b uint64) int { return cmp.Compare(b, a) }) || revisions[batch+20] != 1 {
		t.Errorf("revisions %v", revisions)
	}
	for _, name := range []string{"policies/default", "policies/none"} {
		resp, err := r.policies.ListPolicyRevisions(within(t), &pb.ListPolicyRevisionsRequest{Name: name})
		if known := name == "policies/default"; known != (len(resp.GetPolicies()) == 1) || known == (status.Code(err) == codes.NotFound) {
			t.Errorf("revisions of %s: %v, %v", name, resp, err)
		}
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestResolveTellsWhatSetEachValue(t *testing.T) {
	r := start(t, setup{store: onDisk(t)})
	r.make(t, "wide", &pb.Policy{Retry: &pb.RetryPolicy{MaxAttempts: new(uint32(7))}, Redirects: &pb.RedirectsPolicy{MaxHops: new(uint32(3))}})
	r.make(t, "narrow", &pb.Policy{Match: &pb.Match{Hosts: []string{"api.example.com"}, Callers: []string{"checkout"}}, Retry: &pb.RetryPolicy{MaxAttempts: new(uint32(1))}})
	resp, err := r.policies.ResolvePolicy(within(t), &pb.ResolvePolicyRequest{Method: "GET", Url: "https://api.example.com/x", Caller: "checkout"})
	if err != nil {
		t.Fatal(err)
	}
	p := resp.GetPolicy()
	if p.GetName() != "policies/narrow" || p.GetRevision() != 1 || p.GetRetry().GetMaxAttempts() != 1 || p.GetRedirects().GetMaxHops() != 3 || p.GetAttempt().GetTimeout().AsDuration() != 10*time.Second {
		t.Errorf("%v", p)
	}
	sources := map[string]string{}
	for _, s := range resp.GetSources() {
		sources[s.GetPath()] = fmt.Sprintf("%s@%d", s.GetPolicy(), s.GetRevision())
	}
	for path, want := range map[string]string{
		"retry.max_attempts": "policies/narrow@1", "redirects.max_hops": "policies/wide@1", "attempt.timeout": "policies/default@0",
	} {
		if sources[path] != want {
			t.Errorf("%s is set by %s, want %s", path, sources[path], want)
		}
	}
	if len(sources) != len(policy.LeafPaths()) {
		t.Errorf("%d sources of %d fields", len(sources), len(policy.LeafPaths()))
	}
	// Without a caller it is who asks: not checkout.
	resp, err = r.policies.ResolvePolicy(within(t), &pb.ResolvePolicyRequest{Method: "GET", Url: "https://api.example.com/x"})
	if err != nil || resp.GetPolicy().GetName() != "policies/wide" {
		t.Errorf("%v, %v", resp.GetPolicy().GetName(), err)
	}
}

func TestAuditTellsWhoDidWhat(t *testing.T) {
	r := start(t, setup{store: onDisk(t), identities: known(map[string][]Role{"olivia": {RoleOperator}, "vera": {RoleViewer}})})
	as := func(who string) context.Context {
		return metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer "+who)
	}
	made, err := r.policies.CreatePolicy(as("olivia"), &pb.CreatePolicyRequest{PolicyId: "a", Policy: attempts(2), Reason: "fragile"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.policies.DeletePolicy(as("vera"), &pb.DeletePolicyRequest{Name: "policies/a"}); status.Code(err) != codes.PermissionDenied || unsent(err) != "ROLE_REQUIRED" {
		t.Errorf("a viewer deletes: %v", err)
	}
	resp, err := r.policies.ListAuditRecords(as("vera"), &pb.ListAuditRecordsRequest{Target: "policies/a", Principal: "olivia"})
	if err != nil || len(resp.GetRecords()) != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	got := resp.GetRecords()[0]
	want := &pb.AuditRecord{
		CreateTime: got.GetCreateTime(), Principal: "olivia", Action: "CreatePolicy", Target: "policies/a", Reason: "fragile",
		Changes: []*pb.Change{{Path: "retry.max_attempts", After: "2"}}, EtagAfter: made.GetPolicy().GetEtag(),
	}
	if !proto.Equal(got, want) || time.Since(got.GetCreateTime().AsTime()) > time.Minute {
		t.Errorf("%v, want %v", got, want)
	}
	if resp, err := r.policies.ListAuditRecords(as("vera"), &pb.ListAuditRecordsRequest{Principal: "vera"}); err != nil || len(resp.GetRecords()) != 0 {
		t.Errorf("of vera: %v, %v", resp, err)
	}
}

// brokenStore is a store that fails, which a real one does when its disk is full or gone.
type brokenStore struct {
	admin.Store
	err error
}

func (b *brokenStore) WritePolicy(ctx context.Context, before admin.Version, next *admin.Stored, r *admin.Record) error {
	if b.err != nil {
		return b.err
	}
	return b.Store.WritePolicy(ctx, before, next, r)
}

func TestStoreThatFailsRefusesWritesAndNoCalls(t *testing.T) {
	store := &brokenStore{Store: memory.New()}
	r := start(t, setup{store: store, sender: senderFunc(func(context.Context, *call.Call) call.Result { return answered(200) })})
	r.make(t, "a", attempts(1))
	store.err = errors.Join(io.ErrShortWrite, errors.New("disk full"))
	if _, err := r.policies.CreatePolicy(within(t), &pb.CreatePolicyRequest{PolicyId: "b", Policy: attempts(1)}); status.Code(err) != codes.Unavailable || unsent(err) != "STORE_UNAVAILABLE" {
		t.Errorf("%v", err)
	}
	if resp, err := r.calls.Call(within(t), get("http://127.0.0.1/")); err != nil || resp.GetPolicy() != "policies/a@1" {
		t.Errorf("%v, %v", resp, err)
	}
	store.err = nil
	r.make(t, "b", attempts(1))
}
