package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// pageOfAll is how many things a command asks for at once when it wants all of them.
const pageOfAll = 200

func newPolicyList() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the policies of a broker",
		Long: `List the policies of a broker by name: those of the store, which these commands change; those of the file that the broker was
started with, which are read-only; and policies/default, which is built in. With -o yaml or json it is a policy file.
` + adminCodes,
		Example: `  sallyport policy list
  sallyport policy list -o yaml > policies.yaml`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				all, err := allPolicies(ctx, c)
				return &pb.PolicyFile{Policies: all}, err
			}, func(m proto.Message) {
				printPolicies(cmd.OutOrStdout(), m.(*pb.PolicyFile).GetPolicies()) //nolint:forcetypeassert // made above
			})
		}),
	}
	f.declare(cmd)
	return cmd
}

// allPolicies reads all pages.
func allPolicies(ctx context.Context, c *client.Client) ([]*pb.Policy, error) {
	var all []*pb.Policy
	req := &pb.ListPoliciesRequest{PageSize: pageOfAll}
	for {
		resp, err := c.Policies().ListPolicies(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetPolicies()...)
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return all, nil
		}
	}
}

func printPolicies(w io.Writer, all []*pb.Policy) {
	at := clock()
	rows := make([][]string, len(all))
	for i, p := range all {
		changed := none
		if p.GetUpdateTime() != nil {
			changed = age(p.GetUpdateTime(), at) + " ago"
		}
		rows[i] = []string{revisionText(p), sourceText(p), modeText(p.GetMode()), matchText(p.GetMatch()), changed, p.GetDescription()}
	}
	printTable(w, []string{"POLICY", "FROM", "MODE", "MATCHES", "CHANGED", "DESCRIPTION"}, rows)
}

func newPolicyGet() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Show a policy: every field that it sets",
		Long: `Show a policy: every field that it sets. What it does not set it inherits; policy resolve shows what holds for a call. With
-o yaml or json it is a policy file that holds this policy. policies/ may be left out of NAME.
` + adminCodes,
		Example: `  sallyport policy get payments
  sallyport policy get payments -o yaml > payments.yaml`,
		Args: exactly("NAME"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				p, err := getPolicy(ctx, c, args[0])
				return &pb.PolicyFile{Policies: []*pb.Policy{p}}, err
			}, func(m proto.Message) {
				printPolicy(cmd.OutOrStdout(), m.(*pb.PolicyFile).GetPolicies()[0]) //nolint:forcetypeassert // made above
			})
		}),
	}
	f.declare(cmd)
	cmd.ValidArgsFunction = completeArgs(f.policyNames())
	return cmd
}

// getPolicy asks for a policy.
func getPolicy(ctx context.Context, c *client.Client, name string) (*pb.Policy, error) {
	resp, err := c.Policies().GetPolicy(ctx, &pb.GetPolicyRequest{Name: policyName(name)})
	return resp.GetPolicy(), err
}

func printPolicy(w io.Writer, p *pb.Policy) {
	sayf(w, "%s  %s, %s", plain(revisionText(p)), sourceText(p), modeText(p.GetMode()))
	if p.GetUpdateTime() != nil {
		sayf(w, ", changed %s", instant(p.GetUpdateTime()))
	}
	sayf(w, "\n")
	changes, err := changesBetween(nil, p)
	if err != nil { // of a later version: what is known of it still shows as JSON
		sayf(w, "  %s\n", plain(err.Error()))
		return
	}
	rows := make([][]string, len(changes))
	for i, c := range changes {
		rows[i] = []string{"  " + c.Path, c.After}
	}
	if len(rows) == 0 {
		rows = [][]string{{"  sets nothing"}}
	}
	writeTable(w, columns(w), rows)
}
