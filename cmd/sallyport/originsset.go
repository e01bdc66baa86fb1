package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// originQuestion is one of the RPCs that change an origin.
type originQuestion func(ctx context.Context, c *client.Client) (*pb.Origin, error)

// change asks it, and shows how the origin stands then.
func (f *adminFlags) change(cmd *cobra.Command, ask originQuestion) error {
	return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
		return ask(ctx, c)
	}, func(m proto.Message) {
		printStanding(cmd.OutOrStdout(), m.(*pb.Origin)) //nolint:forcetypeassert // asked for above
	})
}

// printStanding says in a line or two how an origin stands.
func printStanding(w io.Writer, o *pb.Origin) {
	if o.GetForced() != nil {
		sayf(w, "%s  %s\n", plain(o.GetOrigin()), plain(forcedText(o.GetForced())))
		return
	}
	text := stateText(o)
	if text == none {
		text = "nobody has called it yet"
	}
	sayf(w, "%s  %s; its breakers judge by themselves\n", plain(o.GetOrigin()), text)
}

func setBreaker(ctx context.Context, c *client.Client, req *pb.SetBreakerRequest) (*pb.Origin, error) {
	resp, err := c.Origins().SetBreaker(ctx, req)
	return resp.GetOrigin(), err
}

func newOriginsTrip() *cobra.Command {
	var f adminFlags
	var reason string
	var lasts time.Duration
	var closed bool
	cmd := &cobra.Command{
		Use:   "trip ORIGIN",
		Short: "Force the breakers of an origin open: nothing is sent there",
		Long: `Force the breakers of an origin open, under every policy: no attempt is sent there until --for has passed, or origins auto lets
them judge again. It lasts over restarts of the broker; an origin that nobody has called yet may be named. --closed forces them closed
instead: every attempt is sent, however many fail. It is done at once, without a question, and audited.
` + adminCodes,
		Example: `  sallyport origins trip https://api.example.com --reason 'they asked us to stop' --for 10m
  sallyport origins trip https://api.example.com --closed --reason 'false alarm of their load balancer' --for 1h
  sallyport origins auto https://api.example.com`,
		Args: exactly("ORIGIN"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usagef("--reason is missing: say why, for the audit and for whoever finds the breaker forced")
			}
			req := &pb.SetBreakerRequest{Origin: args[0], Mode: pb.BreakerMode_BREAKER_MODE_FORCED_OPEN, Reason: reason}
			if closed {
				req.Mode = pb.BreakerMode_BREAKER_MODE_FORCED_CLOSED
			}
			if cmd.Flags().Changed("for") {
				if lasts <= 0 {
					return usagef("--for %s: give a duration above zero, such as 10m", lasts)
				}
				req.ExpireTime = timestamppb.New(clock().Add(lasts))
			}
			return f.change(cmd, func(ctx context.Context, c *client.Client) (*pb.Origin, error) { return setBreaker(ctx, c, req) })
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why; required")
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long it lasts (default: until origins auto)")
	cmd.Flags().BoolVar(&closed, "closed", false, "force them closed")
	cmd.ValidArgsFunction = completeArgs(f.originNames())
	return cmd
}

func newOriginsAuto() *cobra.Command {
	var f adminFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "auto ORIGIN",
		Short: "Let the breakers of an origin judge by themselves again",
		Long: `Let the breakers of an origin judge by themselves again: the way back from origins trip. They begin closed, and know nothing.
` + adminCodes,
		Example: `  sallyport origins auto https://api.example.com --reason 'they are back'`,
		Args:    exactly("ORIGIN"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.change(cmd, func(ctx context.Context, c *client.Client) (*pb.Origin, error) {
				return setBreaker(ctx, c, &pb.SetBreakerRequest{Origin: args[0], Mode: pb.BreakerMode_BREAKER_MODE_AUTO, Reason: reason})
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	cmd.ValidArgsFunction = completeArgs(f.originNames())
	return cmd
}

func newOriginsReset() *cobra.Command {
	var f adminFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "reset ORIGIN",
		Short: "Forget what the breakers of an origin counted, and its holds",
		Long: `Forget what the breakers of an origin counted, and its holds: they are closed, unless they are forced. Budget and what is in
flight stay.
` + adminCodes,
		Example: `  sallyport origins reset https://api.example.com --reason 'they have deployed the fix'`,
		Args:    exactly("ORIGIN"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.change(cmd, func(ctx context.Context, c *client.Client) (*pb.Origin, error) {
				resp, err := c.Origins().ResetOrigin(ctx, &pb.ResetOriginRequest{Origin: args[0], Reason: reason})
				return resp.GetOrigin(), err
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	cmd.ValidArgsFunction = completeArgs(f.originNames())
	return cmd
}
