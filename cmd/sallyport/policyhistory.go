package main

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newPolicyHistory() *cobra.Command {
	var f adminFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Show what a policy once was: when, by whom, why, and what changed",
		Long: `Show the revisions of a policy, the latest first, of a deleted one too: when it was written, by whom and why (from the audit), and
what changed with it. -o json and yaml have the whole policy of each revision; who and why is in policy audit --target NAME.
` + adminCodes,
		Example: `  sallyport policy history payments
  sallyport policy history payments -o json | jq '.policies[0]'`,
		Args: exactly("NAME"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("--limit %d: give how many, or 0 for all", limit)
			}
			name := policyName(args[0])
			var records []*pb.AuditRecord
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				// One more than is shown, to tell what the last of them changed.
				revisions, err := revisionsOf(ctx, c, name, oneMore(limit))
				if err == nil && f.output == formText {
					records, err = auditOf(ctx, c, &pb.ListAuditRecordsRequest{Target: name}, oneMore(limit))
				}
				if err == nil && f.output != formText && limit > 0 && len(revisions) > limit {
					revisions = revisions[:limit]
				}
				return &pb.ListPolicyRevisionsResponse{Policies: revisions}, err
			}, func(m proto.Message) {
				printHistory(cmd.OutOrStdout(), m.(*pb.ListPolicyRevisionsResponse).GetPolicies(), records, limit) //nolint:forcetypeassert // made above
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().IntVar(&limit, "limit", 20, "how many at most; 0: all")
	cmd.ValidArgsFunction = completeArgs(f.policyNames())
	return cmd
}

func oneMore(limit int) int {
	if limit == 0 {
		return 0
	}
	return limit + 1
}

// revisionsOf reads pages until there are so many; 0 reads all.
func revisionsOf(ctx context.Context, c *client.Client, name string, most int) ([]*pb.Policy, error) {
	var all []*pb.Policy
	req := &pb.ListPolicyRevisionsRequest{Name: name, PageSize: pageFor(most)}
	for {
		resp, err := c.Policies().ListPolicyRevisions(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetPolicies()...)
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" || most > 0 && len(all) >= most {
			return all, nil
		}
	}
}

func pageFor(most int) int32 {
	if most == 0 {
		return pageOfAll
	}
	return int32(min(most, pageOfAll)) //nolint:gosec // at most 200
}

// event is a line of the history: a revision, or a deletion, which makes none.
type event struct {
	at       time.Time
	revision *pb.Policy // nil: it was deleted
	before   *pb.Policy // nil: the first one, or not asked for
	record   *pb.AuditRecord
}

// historyOf joins revisions with the audit: the etag of a revision names the write that made it.
func historyOf(revisions []*pb.Policy, records []*pb.AuditRecord) []event {
	writes := make(map[string]*pb.AuditRecord, len(records))
	var events []event
	for _, r := range records {
		if r.GetEtagAfter() == "" {
			events = append(events, event{at: r.GetCreateTime().AsTime(), record: r})
			continue
		}
		writes[r.GetEtagAfter()] = r
	}
	for i, p := range revisions {
		e := event{at: p.GetUpdateTime().AsTime(), revision: p, record: writes[p.GetEtag()]}
		if i+1 < len(revisions) {
			e.before = revisions[i+1]
		}
		events = append(events, e)
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(b.at.UnixNano(), a.at.UnixNano()) })
	return events
}

func printHistory(w io.Writer, revisions []*pb.Policy, records []*pb.AuditRecord, limit int) {
	for i, e := range historyOf(revisions, records) {
		if limit > 0 && i == limit {
			return
		}
		if e.revision == nil {
			sayf(w, "deleted  %s  %s\n", instant(e.record.GetCreateTime()), plain(whoAndWhy(e.record)))
			continue
		}
		sayf(w, "%s", plain(revisionText(e.revision)))
		if e.revision.GetUpdateTime() != nil {
			sayf(w, "  %s", instant(e.revision.GetUpdateTime()))
		} else {
			sayf(w, "  %s", sourceText(e.revision))
		}
		if e.record != nil {
			sayf(w, "  %s", plain(whoAndWhy(e.record)))
		}
		sayf(w, "\n")
		if changes, err := changesBetween(e.before, e.revision); err == nil { // else of a later version
			printChanges(w, changes)
		}
	}
}

func whoAndWhy(r *pb.AuditRecord) string {
	text := r.GetAction() + " by " + r.GetPrincipal()
	if r.GetReason() != "" {
		text += ": " + r.GetReason()
	}
	return text
}
