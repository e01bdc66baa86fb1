package main

import (
	"context"
	"io"
	"strings"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// The words of a plan.
const (
	stepCreate    = "create"
	stepUpdate    = "update"
	stepDelete    = "delete"
	stepUnchanged = "unchanged"
	// stepReadOnly is for a policy that the broker's own file has, and that should be another one.
	stepReadOnly = "read-only"
)

// step is what is to become of one policy.
type step struct {
	what      string
	name      string
	now, next *pb.Policy // nil: it is not there, or is to go
	changes   []policy.Change
	// What the broker says of it once it was asked.
	warnings []string
	revision uint64
}

// planOf compares what is to be with what is. With prune what is in no file goes, but for what nobody can write.
func planOf(wanted, standing []*pb.Policy, prune bool) ([]*step, error) {
	rest, builtIn := make(map[string]*pb.Policy, len(standing)), map[string]*pb.Policy{}
	for _, p := range standing {
		if p.GetRevision() > 0 {
			rest[p.GetName()] = p
		} else {
			builtIn[p.GetName()] = p
		}
	}
	var plan []*step
	for _, next := range wanted {
		s := &step{what: stepCreate, name: next.GetName(), now: rest[next.GetName()], next: bare(next)}
		delete(rest, s.name)
		var err error
		if s.changes, err = changesBetween(s.now, s.next); err != nil {
			return nil, err
		}
		switch {
		case s.now == nil:
			// What is built in gives way to a policy of its name, unless that is what was once written out of a broker.
			if same, err := changesBetween(builtIn[s.name], s.next); err == nil && len(same) == 0 && builtIn[s.name] != nil {
				s.what, s.now, s.changes = stepUnchanged, builtIn[s.name], nil
			}
		case len(s.changes) == 0:
			s.what = stepUnchanged
		case s.now.GetReadOnly():
			s.what = stepReadOnly
		default:
			s.what, s.next.Etag = stepUpdate, s.now.GetEtag()
		}
		plan = append(plan, s)
	}
	for _, p := range standing { // in the order of their names
		if _, left := rest[p.GetName()]; left && prune && !p.GetReadOnly() {
			plan = append(plan, &step{what: stepDelete, name: p.GetName(), now: p})
		}
	}
	return plan, nil
}

// writes tells whether the step is one of the broker's to do.
func (s *step) writes() bool {
	return s.what == stepCreate || s.what == stepUpdate || s.what == stepDelete
}

// do has the broker check the step, or do it. Etags keep it from what was written since the plan was made.
func (s *step) do(ctx context.Context, c *client.Client, reason string, checkOnly bool) error {
	ctx, cancel := context.WithTimeout(ctx, adminTime)
	defer cancel()
	var made *pb.Policy
	var err error
	switch s.what {
	case stepCreate:
		var resp *pb.CreatePolicyResponse
		resp, err = c.Policies().CreatePolicy(ctx, &pb.CreatePolicyRequest{
			PolicyId: strings.TrimPrefix(s.name, policyPrefix), Policy: s.next, Reason: reason, ValidateOnly: checkOnly,
		})
		made, s.warnings = resp.GetPolicy(), resp.GetWarnings()
	case stepUpdate:
		var resp *pb.UpdatePolicyResponse
		resp, err = c.Policies().UpdatePolicy(ctx, &pb.UpdatePolicyRequest{
			Policy: s.next, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"*"}}, Reason: reason, ValidateOnly: checkOnly,
		})
		made, s.warnings = resp.GetPolicy(), resp.GetWarnings()
	case stepDelete:
		var resp *pb.DeletePolicyResponse
		resp, err = c.Policies().DeletePolicy(ctx, &pb.DeletePolicyRequest{
			Name: s.name, Etag: s.now.GetEtag(), Reason: reason, ValidateOnly: checkOnly,
		})
		made, s.warnings = resp.GetPolicy(), resp.GetWarnings()
	}
	s.revision = made.GetRevision()
	return err
}

// print shows the step field by field. What goes is shown by its name: its fields are in its history.
func (s *step) print(w io.Writer) {
	switch s.what {
	case stepCreate:
		sayf(w, "create %s\n", plain(s.name))
	case stepReadOnly:
		sayf(w, "read-only %s: differs, and comes from the broker's own file: change it there\n", plain(revisionText(s.now)))
	case stepUnchanged:
		sayf(w, "unchanged %s\n", plain(revisionText(s.now)))
	default:
		sayf(w, "%s %s\n", s.what, plain(revisionText(s.now)))
	}
	printChanges(w, s.changes)
	printWarnings(w, s.name, s.warnings)
}

// done is the step in the past tense.
func (s *step) done() string {
	if s.what == stepDelete {
		return "deleted " + s.name
	}
	return s.what + "d " + revisionText(&pb.Policy{Name: s.name, Revision: s.revision})
}
