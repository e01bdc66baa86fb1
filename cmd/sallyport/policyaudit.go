package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

func newPolicyAudit() *cobra.Command {
	var f adminFlags
	var target, principal string
	var limit int
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed what, when and why: policies and breakers",
		Long: `Show the audit of a broker, the latest record first: every write of a policy and every breaker that was forced or reset, with who
did it, why, and what changed field by field. Values that may be secrets are told by their length only.
` + adminCodes,
		Example: `  sallyport policy audit
  sallyport policy audit --target policies/payments
  sallyport policy audit --target https://api.example.com:443 --limit 5
  sallyport policy audit --principal ops -o json`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit %d: give how many, or 0 for all", limit)
			}
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				records, err := auditOf(ctx, c, &pb.ListAuditRecordsRequest{Target: target, Principal: principal}, limit)
				if limit > 0 && len(records) > limit {
					records = records[:limit]
				}
				return &pb.ListAuditRecordsResponse{Records: records}, err
			}, func(m proto.Message) {
				printAudit(cmd.OutOrStdout(), m.(*pb.ListAuditRecordsResponse).GetRecords()) //nolint:forcetypeassert // made above
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&target, "target", "", "only what was done to this: policies/NAME, or an origin scheme://host:port")
	cmd.Flags().StringVar(&principal, "principal", "", "only what this identity did")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many at most; 0: all")
	completeFlagBy(cmd, "target", f.targets())
	return cmd
}

// auditOf reads pages until there are so many; 0 reads all.
func auditOf(ctx context.Context, c *client.Client, req *pb.ListAuditRecordsRequest, most int) ([]*pb.AuditRecord, error) {
	var all []*pb.AuditRecord
	req.PageSize = pageFor(most)
	for {
		resp, err := c.Policies().ListAuditRecords(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetRecords()...)
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" || most > 0 && len(all) >= most {
			return all, nil
		}
	}
}

func printAudit(w io.Writer, records []*pb.AuditRecord) {
	for _, r := range records {
		parts := []string{instant(r.GetCreateTime()), r.GetTarget(), whoAndWhy(r)}
		sayf(w, "%s\n", fitted(plain(strings.Join(parts, "  ")), columns(w)))
		changes := make([]policy.Change, len(r.GetChanges()))
		for i, c := range r.GetChanges() {
			changes[i] = policy.Change{Path: c.GetPath(), Before: c.GetBefore(), After: c.GetAfter()}
		}
		printChanges(w, changes)
	}
}
