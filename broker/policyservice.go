package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// PolicyService shows and changes the policies in force.
type PolicyService struct {
	pb.UnimplementedPolicyServiceServer
	policies *admin.Policies
	audit    Audit
	table    func() *policy.Table
}

// Audit is where the records of writes are read.
type Audit interface {
	Records(ctx context.Context, target, principal string, before int64, n int) ([]admin.Record, error)
}

// NewPolicyService makes the service. The table is the one in force.
func NewPolicyService(policies *admin.Policies, audit Audit, table func() *policy.Table) *PolicyService {
	return &PolicyService{policies: policies, audit: audit, table: table}
}

const (
	// maxReason bounds what somebody says of a write, in bytes.
	maxReason = 1024
	// maxPolicyBytes bounds what is kept for ever with each revision, and twice in an audit record, which must fit into the 4 MiB of a stock
	// client.
	maxPolicyBytes = 1 << 20
)

// CreatePolicy creates a policy.
func (s *PolicyService) CreatePolicy(ctx context.Context, req *pb.CreatePolicyRequest) (*pb.CreatePolicyResponse, error) {
	d := decoder{}
	name := "policies/" + req.GetPolicyId()
	if req.GetPolicyId() == "" {
		d.add("policy_id", "missing; name the policy")
	}
	p := req.GetPolicy()
	switch {
	case p == nil:
		d.add("policy", "missing")
	case p.GetName() != "" && p.GetName() != name:
		d.add("policy.name", "is not that of policy_id; leave it out")
	}
	w := d.write(ctx, name, "CreatePolicy", req)
	if err := invalid(d.violations); err != nil {
		return nil, err
	}
	p.Name = name
	draft, err := s.draft(p)
	if err != nil {
		return nil, err
	}
	made, err := s.policies.Create(ctx, w, draft)
	if err != nil {
		return nil, adminError(ctx, name, err)
	}
	return &pb.CreatePolicyResponse{Policy: policyMessage(&made), Warnings: s.warnings(&made)}, nil
}

// GetPolicy gives one policy.
func (s *PolicyService) GetPolicy(ctx context.Context, req *pb.GetPolicyRequest) (*pb.GetPolicyResponse, error) {
	p, err := s.policies.Get(req.GetName())
	if err != nil {
		return nil, adminError(ctx, req.GetName(), err)
	}
	return &pb.GetPolicyResponse{Policy: policyMessage(&p)}, nil
}

// ListPolicies lists policies by name.
func (s *PolicyService) ListPolicies(_ context.Context, req *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	page, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	all, _ := s.policies.All()
	resp := &pb.ListPoliciesResponse{}
	for i := range all {
		if all[i].Rule.Name <= page.after && page.after != "" {
			continue
		}
		p := policyMessage(&all[i])
		if !page.takes(p) {
			resp.NextPageToken = pageToken(all[i-1].Rule.Name)
			break
		}
		resp.Policies = append(resp.Policies, p)
	}
	return resp, nil
}

// UpdatePolicy changes the fields of a policy that the mask names.
func (s *PolicyService) UpdatePolicy(ctx context.Context, req *pb.UpdatePolicyRequest) (*pb.UpdatePolicyResponse, error) {
	d := decoder{}
	p := req.GetPolicy()
	if p.GetName() == "" {
		d.add("policy.name", "missing; name the policy")
	}
	d.mask(req.GetUpdateMask())
	w := d.write(ctx, p.GetName(), "UpdatePolicy", req)
	if err := invalid(d.violations); err != nil {
		return nil, err
	}
	w.Etag = p.GetEtag()
	made, err := s.policies.Update(ctx, w, func(current *admin.Policy) (admin.Draft, error) {
		next := policyMessage(current)
		applyMask(next, p, req.GetUpdateMask())
		return s.draft(next)
	})
	if err != nil {
		return nil, adminError(ctx, p.GetName(), err)
	}
	return &pb.UpdatePolicyResponse{Policy: policyMessage(&made), Warnings: s.warnings(&made)}, nil
}

// DeletePolicy deletes a policy.
func (s *PolicyService) DeletePolicy(ctx context.Context, req *pb.DeletePolicyRequest) (*pb.DeletePolicyResponse, error) {
	d := decoder{}
	w := d.write(ctx, req.GetName(), "DeletePolicy", req)
	if err := invalid(d.violations); err != nil {
		return nil, err
	}
	w.Etag = req.GetEtag()
	gone, err := s.policies.Delete(ctx, w)
	if err != nil {
		return nil, adminError(ctx, req.GetName(), err)
	}
	return &pb.DeletePolicyResponse{Policy: policyMessage(&gone)}, nil
}

// ResolvePolicy tells which values hold for a call.
func (s *PolicyService) ResolvePolicy(ctx context.Context, req *pb.ResolvePolicyRequest) (*pb.ResolvePolicyResponse, error) {
	d := decoder{}
	if !call.ValidToken(req.GetMethod()) {
		d.add("method", "not a token (RFC 9110 §9.1); use letters such as GET")
	}
	target, err := call.ParseTarget(req.GetUrl())
	if v, ok := errors.AsType[*call.InvalidError](err); ok {
		d.add("url", v.Problem)
	}
	if err := invalid(d.violations); err != nil {
		return nil, err
	}
	caller := req.GetCaller()
	if caller == "" {
		caller = callerOf(ctx)
	}
	e := s.table().Resolve(&call.Call{Method: req.GetMethod(), Target: target, Caller: caller})
	merged := e.Merged()
	resp := &pb.ResolvePolicyResponse{Policy: ruleMessage(merged)}
	resp.Policy.Revision = merged.Revision
	for _, l := range e.Leaves() {
		resp.Sources = append(resp.Sources, &pb.FieldSource{Path: l.Path, Policy: l.Source.Policy, Revision: l.Source.Revision})
	}
	return resp, nil
}

// ListPolicyRevisions lists what a policy once was.
func (s *PolicyService) ListPolicyRevisions(ctx context.Context, req *pb.ListPolicyRevisionsRequest) (*pb.ListPolicyRevisionsResponse, error) {
	page, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListPolicyRevisionsResponse{}
	resp.NextPageToken, err = fillPage(&page, func(before uint64, n int) ([]admin.Policy, error) {
		some, err := s.policies.Revisions(ctx, req.GetName(), before, n)
		if err != nil {
			return nil, adminError(ctx, req.GetName(), err)
		}
		return some, nil
	}, func(p *admin.Policy) uint64 { return p.Rule.Revision }, func(p *admin.Policy) bool {
		m := policyMessage(p)
		ok := page.takes(m)
		if ok {
			resp.Policies = append(resp.Policies, m)
		}
		return ok
	})
	if err != nil {
		return nil, err
	}
	if len(resp.GetPolicies()) == 0 && req.GetPageToken() == "" {
		// Files and the built-in policy have the one revision that is in force.
		p, err := s.policies.Get(req.GetName())
		if err != nil {
			return nil, adminError(ctx, req.GetName(), err)
		}
		resp.Policies = append(resp.Policies, policyMessage(&p))
	}
	return resp, nil
}

// RollbackPolicy makes a policy what it was at a revision.
func (s *PolicyService) RollbackPolicy(ctx context.Context, req *pb.RollbackPolicyRequest) (*pb.RollbackPolicyResponse, error) {
	d := decoder{}
	if req.GetRevision() == 0 {
		d.add("revision", "missing; ListPolicyRevisions lists them")
	}
	w := d.write(ctx, req.GetName(), "RollbackPolicy", req)
	if err := invalid(d.violations); err != nil {
		return nil, err
	}
	w.Etag = req.GetEtag()
	made, err := s.policies.Rollback(ctx, w, req.GetRevision())
	if err != nil {
		return nil, adminError(ctx, fmt.Sprintf("%s@%d", req.GetName(), req.GetRevision()), err)
	}
	return &pb.RollbackPolicyResponse{Policy: policyMessage(&made), Warnings: s.warnings(&made)}, nil
}

// WatchPolicies gives all policies, then what changes. What a slow reader has not taken yet is not kept for it: it gets the policies as
// they stand when it is ready.
func (s *PolicyService) WatchPolicies(_ *pb.WatchPoliciesRequest, stream grpc.ServerStreamingServer[pb.WatchPoliciesResponse]) error {
	var told []admin.Policy // shared with all other readers: thousands of them cost no copy of the policies each
	for first := true; ; first = false {
		all, changed := s.policies.All()
		if err := tell(told, all, stream.Send); err != nil {
			return err
		}
		told = all
		if first {
			if err := stream.Send(&pb.WatchPoliciesResponse{Synced: true}); err != nil {
				return err //nolint:wrapcheck // it is the status of the RPC
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err() //nolint:wrapcheck // as above
		}
	}
}

// tell says what is new or another one in after, then what is gone from before. Both are sorted by name.
func tell(before, after []admin.Policy, send func(*pb.WatchPoliciesResponse) error) error {
	var gone []*admin.Policy
	for i := range after {
		p := &after[i]
		for len(before) > 0 && before[0].Rule.Name < p.Rule.Name {
			gone, before = append(gone, &before[0]), before[1:]
		}
		if len(before) > 0 && before[0].Rule.Name == p.Rule.Name {
			same := before[0].Etag == p.Etag
			if before = before[1:]; same {
				continue
			}
		}
		if err := send(&pb.WatchPoliciesResponse{Policy: policyMessage(p)}); err != nil {
			return err
		}
	}
	for i := range before {
		gone = append(gone, &before[i])
	}
	for _, p := range gone {
		if err := send(&pb.WatchPoliciesResponse{Policy: policyMessage(p), Deleted: true}); err != nil {
			return err
		}
	}
	return nil
}

// ListAuditRecords lists who changed what.
func (s *PolicyService) ListAuditRecords(ctx context.Context, req *pb.ListAuditRecordsRequest) (*pb.ListAuditRecordsResponse, error) {
	page, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListAuditRecordsResponse{}
	resp.NextPageToken, err = fillPage(&page, func(before uint64, n int) ([]admin.Record, error) {
		some, err := s.audit.Records(ctx, req.GetTarget(), req.GetPrincipal(), int64(before), n) //nolint:gosec // a number that the store gave
		if err != nil {
			return nil, adminError(ctx, "audit", &admin.StoreError{Err: err})
		}
		return some, nil
	}, func(r *admin.Record) uint64 { return uint64(r.ID) }, func(r *admin.Record) bool { //nolint:gosec // from 1
		m := recordMessage(r)
		ok := page.takes(m)
		if ok {
			resp.Records = append(resp.Records, m)
		}
		return ok
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func recordMessage(r *admin.Record) *pb.AuditRecord {
	m := &pb.AuditRecord{
		CreateTime: timestamppb.New(r.Time), Principal: r.Principal, Action: r.Action, Target: r.Target, Reason: r.Reason,
		EtagBefore: r.EtagBefore, EtagAfter: r.EtagAfter,
	}
	for _, c := range r.Changes {
		m.Changes = append(m.Changes, &pb.Change{Path: c.Path, Before: c.Before, After: c.After})
	}
	return m
}

// draft checks a policy by itself and gives it the form in which it is written.
func (s *PolicyService) draft(p *pb.Policy) (admin.Draft, error) {
	found := decoder{}
	if size := proto.Size(p); size > maxPolicyBytes {
		found.add("policy", fmt.Sprintf("%d bytes, more than the %d that one policy may have; make several of it", size, maxPolicyBytes))
		return admin.Draft{}, invalid(found.violations)
	}
	var broken *protovalidate.ValidationError
	if err := protovalidate.Validate(p); errors.As(err, &broken) {
		for _, v := range broken.Violations {
			if v.Proto.GetRuleId() != "proxy.syntax" { // policy.Check says what of it is to be mended
				found.add("policy."+violationPath(v, p.ProtoReflect().Descriptor()), v.Proto.GetMessage())
			}
		}
	} else if err != nil {
		found.add("policy", err.Error())
	}
	if err := invalid(found.violations); err != nil {
		return admin.Draft{}, err
	}
	return draft(p)
}

// warnings are those of a policy among all that are in force; of a check the policy is not.
func (s *PolicyService) warnings(p *admin.Policy) []string {
	rules := []policy.Rule{p.Rule}
	for _, r := range s.policies.Rules() {
		if r.Name != p.Rule.Name {
			rules = append(rules, r)
		}
	}
	return policy.Warnings(rules, p.Rule.Name)
}

// written is what every write has.
type written interface {
	GetReason() string
	GetValidateOnly() bool
}

// write reads what every write has.
func (d *decoder) write(ctx context.Context, name, action string, req written) *admin.Write {
	d.violations = append(d.violations, problems(reasonProblem(req.GetReason()))...)
	return &admin.Write{Name: name, Principal: callerOf(ctx), Action: action, Reason: req.GetReason(), ValidateOnly: req.GetValidateOnly()}
}

// adminError tells what became of a read or write of what name names.
func adminError(ctx context.Context, name string, err error) error {
	if invalidPolicy, ok := errors.AsType[*policy.InvalidError](err); ok {
		d := decoder{}
		for _, p := range invalidPolicy.Problems {
			d.add("policy."+p.Path, p.Text)
		}
		return invalid(d.violations)
	}
	_, unavailable := errors.AsType[*admin.StoreError](err)
	switch {
	case errors.Is(err, admin.ErrExists):
		return refusal(codes.AlreadyExists, reasonAlreadyExists, name+" exists; change it with UpdatePolicy")
	case errors.Is(err, admin.ErrReadOnly):
		return refusal(codes.FailedPrecondition, reasonPolicyReadOnly, name+" comes from a file or is built in: change the file, or create a policy of your own")
	case errors.Is(err, admin.ErrEtag):
		return refusal(codes.Aborted, reasonEtagMismatch, name+" has changed since you read it: read it again and repeat the change")
	case unavailable:
		return refusal(codes.Unavailable, reasonStoreUnavailable, "the store cannot be used now, nothing has changed: "+strings.TrimPrefix(err.Error(), "store: "))
	case errors.Is(err, admin.ErrNotFound):
		return refusal(codes.NotFound, reasonNotFound, name+" is not known")
	case ctx.Err() != nil:
		return refusal(codes.Unavailable, reasonStoreUnavailable, "others were writing for as long as this RPC had; nothing has changed")
	}
	return err
}
