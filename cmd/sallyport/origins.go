package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newOrigins() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "origins",
		Short: "See how the upstreams of a broker are, and open or close their breakers",
		Long: `See how the origins that a broker calls are (breaker, budget, concurrency, holds, latency), and open or close their breakers by
hand. An origin is scheme://host:port; the port may be left out where it is the scheme's own.

` + adminHelp,
		Example: `  sallyport origins list --state open
  sallyport origins get https://api.example.com
  sallyport origins trip https://api.example.com --reason 'they asked us to stop' --for 10m
  sallyport origins auto https://api.example.com`,
		RunE: action(groupOnly),
	}
	cmd.AddCommand(newOriginsList(), newOriginsGet(), newOriginsWatch(), newOriginsTrip(), newOriginsAuto(), newOriginsReset())
	return cmd
}

func newOriginsList() *cobra.Command {
	var f adminFlags
	var state, host string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the origins of a broker, the one with the latest trouble first",
		Long: `List the origins of a broker, the one with the latest trouble first. Calls under different policies may have breaker, budget and
limit of their own at one origin; its line shows the worst of each, and origins get shows all.

  STATE         what an attempt would meet; "forced" where an operator said so; 1/2: in one of two
  SINCE         how long it has been so
  IN FLIGHT     attempts that run, of how many may
  BUDGET LEFT   retries and hedges that may be sent before the next is refused
  P95           95 of 100 successful answers took at most this
  HOLD          how long it asked to be left alone
  LAST TROUBLE  since a breaker opened, a hold began, or budget or limit refused
` + adminCodes,
		Example: `  sallyport origins list
  sallyport origins list --state open --host '*.example.com'
  sallyport origins list -o json | jq -r '.origins[].origin'`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			want, err := breakerState(state)
			if err != nil {
				return err
			}
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				return allOrigins(ctx, c, &pb.ListOriginsRequest{State: want, Host: host})
			}, func(m proto.Message) {
				printOrigins(cmd.OutOrStdout(), m.(*pb.ListOriginsResponse).GetOrigins()) //nolint:forcetypeassert // asked for above
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&state, "state", "", "only with a breaker in this state: closed | open | half-open")
	cmd.Flags().StringVar(&host, "host", "", "only of this host: exact, or *.example.com for all names below")
	completeFlag(cmd, "state", "closed", "open", "half-open")
	return cmd
}

// breakerState reads a state as people write it.
func breakerState(s string) (pb.BreakerState, error) {
	switch s {
	case "":
		return pb.BreakerState_BREAKER_STATE_UNSPECIFIED, nil
	case "closed":
		return pb.BreakerState_BREAKER_STATE_CLOSED, nil
	case "open":
		return pb.BreakerState_BREAKER_STATE_OPEN, nil
	case "half-open":
		return pb.BreakerState_BREAKER_STATE_HALF_OPEN, nil
	}
	return 0, oneOf("state", s, "closed", "open", "half-open")
}

// allOrigins reads all pages.
func allOrigins(ctx context.Context, c *client.Client, req *pb.ListOriginsRequest) (*pb.ListOriginsResponse, error) {
	all := &pb.ListOriginsResponse{}
	req.PageSize = pageOfAll
	for {
		resp, err := c.Origins().ListOrigins(ctx, req)
		if err != nil {
			return nil, err
		}
		all.Origins = append(all.Origins, resp.GetOrigins()...)
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return all, nil
		}
	}
}

func printOrigins(w io.Writer, all []*pb.Origin) {
	at := clock()
	rows := make([][]string, len(all))
	for i, o := range all {
		rows[i] = append([]string{o.GetOrigin()}, originCells(o, at)...)
	}
	printTable(w, []string{"ORIGIN", "STATE", "SINCE", "IN FLIGHT", "BUDGET LEFT", "P95", "HOLD", "LAST TROUBLE"}, rows)
}
