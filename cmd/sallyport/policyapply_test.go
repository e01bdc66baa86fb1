package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// Somebody writes between the differences and the yes: what they wrote stays, and what was written before it is named.
func TestApplyDoesNotOverwriteWhatChangedMeanwhile(t *testing.T) {
	wanted := func(names ...string) []*pb.Policy {
		var all []*pb.Policy
		for _, name := range names {
			all = append(all, &pb.Policy{Name: name, Match: &pb.Match{Hosts: []string{"a.example.com"}}, Retry: &pb.RetryPolicy{MaxAttempts: new(uint32(9))}})
		}
		return all
	}
	for _, tt := range []struct {
		name      string
		meanwhile string
		want      []string
	}{
		{"an update", "policies/b", []string{
			"ABORTED: policies/b has changed since you read it: read it again and repeat the change",
			"written before it, and nothing after it: updated policies/a@2",
		}},
		{"the first of them", "policies/a", []string{
			"ABORTED: policies/a has changed since you read it: read it again and repeat the change",
			"nothing was written before it, and nothing after it",
		}},
		{"a create", "policies/b2", []string{"ALREADY_EXISTS: policies/b2 exists; change it with UpdatePolicy"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := startTestNode(t, testSettings(t))
			defer func() {
				if err := n.stop(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			c := dialNode(t, n)
			put := func(name string, attempts uint32) {
				t.Helper()
				p := &pb.Policy{Name: name, Match: &pb.Match{Hosts: []string{"a.example.com"}}, Retry: &pb.RetryPolicy{MaxAttempts: &attempts}}
				_, err := c.Policies().CreatePolicy(t.Context(), &pb.CreatePolicyRequest{PolicyId: strings.TrimPrefix(name, policyPrefix), Policy: p})
				if err != nil {
					_, err = c.Policies().UpdatePolicy(t.Context(), &pb.UpdatePolicyRequest{Policy: p})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"policies/a", "policies/b", "policies/gone", "policies/z"} {
				put(name, 2)
			}
			f := applyFlags{adminFlags: adminFlags{output: formText}}
			standing, err := allPolicies(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := planOf(wanted("policies/a", "policies/b", "policies/b2", "policies/z"), standing, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.check(t.Context(), c, plan); err != nil {
				t.Fatal(err)
			}
			put(tt.meanwhile, 4)
			err = f.write(t.Context(), &strings.Builder{}, c, plan)
			exit, ok := errors.AsType[*exitError](err)
			if !ok || exit.code != exitGRPC || !strings.HasPrefix(err.Error(), strings.Join(tt.want, "\n")) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			z, err := getPolicy(t.Context(), c, "z")
			if err != nil || z.GetRevision() != 1 {
				t.Errorf("policies/z is %v, %v: written after the refusal", z, err)
			}
			if _, err := getPolicy(t.Context(), c, "gone"); err != nil {
				t.Errorf("deleted after the refusal: %v", err)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	policyOf := func(name string, revision uint64, attempts uint32, readOnly bool) *pb.Policy {
		p := &pb.Policy{Name: "policies/" + name, Revision: revision, Etag: name, ReadOnly: readOnly}
		p.Retry = &pb.RetryPolicy{MaxAttempts: &attempts}
		return p
	}
	standing := []*pb.Policy{
		policyOf("changed", 2, 1, false), policyOf("default", 0, 3, true), policyOf("file", 1, 1, true), policyOf("left", 4, 1, false), policyOf("same", 1, 1, false),
	}
	for _, tt := range []struct {
		name   string
		wanted []*pb.Policy
		prune  bool
		want   string
	}{
		{"nothing wanted", nil, false, ""},
		{"prune spares what nobody can write", nil, true, "delete changed, delete left, delete same"},
		{"each of them", []*pb.Policy{
			policyOf("changed", 0, 2, false), policyOf("default", 0, 4, false), policyOf("file", 0, 2, false), policyOf("new", 9, 1, true), policyOf("same", 7, 1, false),
		}, true, "update changed, create default, read-only file, create new, unchanged same, delete left"},
		{"what a broker wrote out", standing, true, "unchanged changed, unchanged default, unchanged file, unchanged left, unchanged same"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan, err := planOf(tt.wanted, standing, tt.prune)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range plan {
				got = append(got, s.what+" "+strings.TrimPrefix(s.name, policyPrefix))
				if s.what == stepUpdate && s.next.GetEtag() != s.now.GetEtag() {
					t.Errorf("%s goes without the etag of what was compared", s.name)
				}
				if s.what == stepCreate && (s.next.GetEtag() != "" || s.next.GetRevision() != 0 || s.next.GetReadOnly()) {
					t.Errorf("%s goes with what the broker sets: %v", s.name, s.next)
				}
			}
			if text := strings.Join(got, ", "); text != tt.want {
				t.Errorf("got %s, want %s", text, tt.want)
			}
		})
	}
}

// A question without a broker is over soon, and says so in one line.
func TestRefusalsAreLines(t *testing.T) {
	f := adminFlags{brokerFlags: brokerFlags{broker: "127.0.0.1:1"}, output: formText}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	err := f.with(cmd, func(ctx context.Context, c *client.Client) error {
		_, err := c.Policies().GetPolicy(ctx, &pb.GetPolicyRequest{})
		return err
	})
	want := "UNAVAILABLE: dial tcp 127.0.0.1:1: connect: connection refused; does a broker listen at 127.0.0.1:1 (--broker), and with TLS (--ca)?"
	if exit, ok := errors.AsType[*exitError](err); !ok || exit.code != exitGRPC || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
