package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newDeferredList() *cobra.Command {
	var f adminFlags
	var pick pickFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List your deferred calls, the newest first, and count them by state",
		Long: `List your deferred calls, the newest first, and below them how many you have in each state, whatever the filter.

  STATE     pending, retrying, sending, completed, failed, unknown or cancelled; "perhaps twice": it may have been sent twice
  STATUS    of the last complete answer
  ATTEMPTS  how many were made, and how many there may be since it was submitted or redriven
  NEXT      when the next attempt is due
  CREATED   how long ago it was accepted

` + deferredHelp + "\n" + adminCodes,
		Example: `  sallyport deferred list
  sallyport deferred list --state failed --origin https://hooks.example.com --limit 0
  sallyport deferred list --created-after 1h --label team=billing -o json | jq -r '.deferredCalls[].name'`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			filter, err := pick.filter(deferredStates()...)
			if err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit %d: give how many, or 0 for all", limit)
			}
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				return deferredOf(ctx, c, filter, limit)
			}, func(m proto.Message) {
				printDeferredList(cmd.OutOrStdout(), m.(*pb.ListDeferredCallsResponse)) //nolint:forcetypeassert // made above
			})
		}),
	}
	f.declare(cmd)
	pick.declare(cmd, deferredStates()...)
	cmd.Flags().IntVar(&limit, "limit", 20, "how many at most; 0: all")
	completeFlagBy(cmd, "origin", f.originNames())
	return cmd
}

// deferredOf reads pages until there are so many; 0 reads all. The counts are those of the first page.
func deferredOf(ctx context.Context, c *client.Client, p *pb.DeferredCallFilter, most int) (*pb.ListDeferredCallsResponse, error) {
	req := &pb.ListDeferredCallsRequest{
		State: p.GetState(), Origin: p.GetOrigin(), Labels: p.GetLabels(), CreatedAfter: p.GetCreatedAfter(), CreatedBefore: p.GetCreatedBefore(),
		PageSize: pageFor(most),
	}
	all := &pb.ListDeferredCallsResponse{}
	for {
		resp, err := c.ListDeferredCalls(ctx, req)
		if err != nil {
			return nil, err
		}
		if all.Counts == nil {
			all.Counts = resp.GetCounts()
		}
		all.DeferredCalls = append(all.DeferredCalls, resp.GetDeferredCalls()...)
		switch req.PageToken = resp.GetNextPageToken(); {
		case most > 0 && len(all.GetDeferredCalls()) >= most:
			all.DeferredCalls = all.GetDeferredCalls()[:most]
			return all, nil
		case req.GetPageToken() == "":
			return all, nil
		}
	}
}

func printDeferredList(w io.Writer, all *pb.ListDeferredCallsResponse) {
	at := clock()
	rows := make([][]string, len(all.GetDeferredCalls()))
	for i, d := range all.GetDeferredCalls() {
		rows[i] = deferredCells(d, at)
	}
	printTable(w, deferredColumns(), rows)
	sayf(w, "\nall of yours: %s\n", countsText(all.GetCounts()))
}

func deferredColumns() []string {
	return []string{"ID", "STATE", "STATUS", "ATTEMPTS", "NEXT", "CREATED", "CALL"}
}
