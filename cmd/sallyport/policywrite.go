package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newPolicyDelete() *cobra.Command {
	var f adminFlags
	var etag, reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a policy",
		Long: `Delete a policy, after a question; where there is no terminal to ask at, say --yes. Calls it matched are then ruled by the others.
Its revisions stay: policy rollback brings it back.

Exit codes: 0 done · 1 you said no · 2 usage · 3 a gRPC error.`,
		Example: `  sallyport policy delete payments --reason 'moved to policies/billing'
  sallyport policy delete payments --yes`,
		Args: exactly("NAME"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.with(cmd, func(ctx context.Context, c *client.Client) error {
				asking, cancel := context.WithTimeout(ctx, adminTime)
				defer cancel()
				p, err := getPolicy(asking, c, args[0])
				if err != nil {
					return err
				}
				if etag == "" {
					etag = p.GetEtag() // what is deleted is what was shown
				}
				return f.delete(ctx, cmd, c, p, &pb.DeletePolicyRequest{Name: p.GetName(), Etag: etag, Reason: reason}, yes)
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&etag, "etag", "", "delete it only if its etag is still this (default: as it is when you are asked)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.ValidArgsFunction = completeArgs(f.policyNames())
	return cmd
}

func (f *adminFlags) delete(ctx context.Context, cmd *cobra.Command, c *client.Client, p *pb.Policy, req *pb.DeletePolicyRequest, yes bool) error {
	if !p.GetReadOnly() { // the broker says why one cannot be deleted; nobody is asked about it
		if err := confirmed(cmd, yes, fmt.Sprintf("Delete %s (%s)?", plain(revisionText(p)), plain(matchText(p.GetMatch())))); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, adminTime) // whoever was asked took their time
	defer cancel()
	resp, err := c.Policies().DeletePolicy(ctx, req)
	if err != nil {
		return err
	}
	printWarnings(cmd.ErrOrStderr(), p.GetName(), resp.GetWarnings())
	if f.output != formText {
		return printMessage(cmd.OutOrStdout(), f.output, resp.GetPolicy())
	}
	sayf(cmd.OutOrStdout(), "deleted %s\n", plain(revisionText(resp.GetPolicy())))
	return nil
}

func newPolicyRollback() *cobra.Command {
	var f adminFlags
	var etag, reason string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "rollback NAME REVISION",
		Short: "Make a policy what it was at a revision",
		Long: `Make a policy, a deleted one too, what it was at a revision. This is a new revision; policy history lists those there are. It is
done at once, and what it changes is shown; --dry-run shows only.
` + adminCodes,
		Example: `  sallyport policy history payments
  sallyport policy rollback payments 3 --reason 'revision 4 retries too much'`,
		Args: exactly("NAME", "REVISION"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			revision, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil || revision == 0 {
				return usagef("REVISION %q: give a number such as 3; policy history lists them", args[1])
			}
			return f.with(cmd, func(ctx context.Context, c *client.Client) error {
				ctx, cancel := context.WithTimeout(ctx, adminTime)
				defer cancel()
				now, _ := getPolicy(ctx, c, args[0]) // one that is gone has no fields to compare
				if now.GetRevision() == 0 {
					now = nil
				}
				resp, err := c.Policies().RollbackPolicy(ctx, &pb.RollbackPolicyRequest{
					Name: policyName(args[0]), Revision: revision, Etag: etag, Reason: reason, ValidateOnly: dryRun,
				})
				if err != nil {
					return err
				}
				return f.rolledBack(cmd.OutOrStdout(), now, resp, dryRun)
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&etag, "etag", "", "only if the etag of the policy is still this")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and stop")
	cmd.ValidArgsFunction = completeArgs(f.policyNames(), f.revisions())
	return cmd
}

// rolledBack shows what became of a policy.
func (f *adminFlags) rolledBack(w io.Writer, now *pb.Policy, resp *pb.RollbackPolicyResponse, dryRun bool) error {
	if f.output != formText {
		return printMessage(w, f.output, resp)
	}
	changes, err := changesBetween(now, resp.GetPolicy())
	if err != nil {
		return err
	}
	printChanges(w, changes)
	printWarnings(w, resp.GetPolicy().GetName(), resp.GetWarnings())
	switch {
	case dryRun && len(changes) == 0:
		sayf(w, "nothing would change\n")
	case dryRun:
		sayf(w, "nothing was written\n")
	case now != nil && now.GetRevision() == resp.GetPolicy().GetRevision():
		sayf(w, "%s is what it was then; nothing was written\n", plain(revisionText(now)))
	default:
		sayf(w, "rolled back: it is now %s\n", plain(revisionText(resp.GetPolicy())))
	}
	return nil
}

// revisions completes the revisions of the policy named before.
func (f *adminFlags) revisions() cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return f.names(func(ctx context.Context, c *client.Client) []cobra.Completion {
			resp, err := c.Policies().ListPolicyRevisions(ctx, &pb.ListPolicyRevisionsRequest{Name: policyName(args[0])})
			if err != nil {
				return nil
			}
			numbers := make([]cobra.Completion, len(resp.GetPolicies()))
			for i, p := range resp.GetPolicies() {
				numbers[i] = cobra.CompletionWithDesc(strconv.FormatUint(p.GetRevision(), 10), instant(p.GetUpdateTime()))
			}
			return numbers
		})(cmd, args, typed)
	}
}
