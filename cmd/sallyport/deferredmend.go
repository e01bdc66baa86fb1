package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const (
	wordFailed  = "failed"
	wordUnknown = "unknown"
)

func newDeferredRedrive() *cobra.Command {
	var f adminFlags
	var pick pickFlags
	var rate float64
	states := []string{wordFailed, wordUnknown}
	cmd := &cobra.Command{
		Use:   "redrive (NAME... | --state failed ...)",
		Short: "Send dead letters again, under the same key and with their history",
		Long: `Send deferred calls again that failed, once what stopped them is mended: those that are named, or those that a filter picks. They
get as many attempts as before and keep their key, their operation id and the record of every attempt. So many a second become due
(--per-second), so that an upstream that has just come back is not run over.

An unknown one may have happened. It is sent again only when it is named, or with --state unknown: find out first.

` + deferredHelp + "\n" + adminCodes,
		Example: `  sallyport deferred redrive deferredCalls/0193b0c7-52f1-7a37-9f0e-8a3d5c1e7b42
  sallyport deferred redrive --state failed --origin https://hooks.example.com --per-second 5
  sallyport deferred redrive --state failed --created-after 24h --label team=billing`,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			names, filter, err := pick.named(args, states...)
			if err != nil {
				return err
			}
			if filter != nil && filter.GetState() == 0 {
				filter.State = pb.DeferredState_DEFERRED_STATE_FAILED // what may have happened is picked by nobody who did not say so
			}
			if cmd.Flags().Changed("per-second") && rate <= 0 {
				return usagef("--per-second %v: give a number above zero", rate)
			}
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				return c.RedriveDeferredCalls(ctx, &pb.RedriveDeferredCallsRequest{Names: names, Filter: filter, MaxPerSecond: rate})
			}, func(m proto.Message) {
				sayCount(cmd.OutOrStdout(), m.(*pb.RedriveDeferredCallsResponse).GetCount(), "to be sent again") //nolint:forcetypeassert // asked for above
			})
		}),
	}
	f.declare(cmd)
	pick.declare(cmd, states...)
	cmd.Flags().Float64Var(&rate, "per-second", 0, "how many become due in a second (default 10)")
	cmd.ValidArgsFunction = f.deferredNames(dead)
	completeFlagBy(cmd, "origin", f.originNames())
	return cmd
}

func newDeferredPurge() *cobra.Command {
	var f adminFlags
	var pick pickFlags
	var yes bool
	var states []string
	for _, s := range deferredStates() {
		if ended(deferredStateOf(s)) {
			states = append(states, s)
		}
	}
	cmd := &cobra.Command{
		Use:   "purge (NAME... | --state completed ...)",
		Short: "Delete finished deferred calls for good",
		Long: `Delete finished deferred calls for good, with all their attempts: those that are named, or those that a filter picks. What is not
finished stays; cancel it first. A dead letter goes in no other way.

It asks before it deletes; --yes answers beforehand, and is needed where there is no terminal.

` + deferredHelp + "\n" + adminCodes,
		Example: `  sallyport deferred purge deferredCalls/0193b0c7-52f1-7a37-9f0e-8a3d5c1e7b42
  sallyport deferred purge --state failed --created-before 720h --yes`,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			names, filter, err := pick.named(args, states...)
			if err != nil {
				return err
			}
			question := fmt.Sprintf("delete %s for good?", countOf(uint64(len(names))))
			if filter != nil {
				question = fmt.Sprintf("delete for good every finished deferred call of yours with %s?", plain(pick.text()))
			}
			if err := confirmed(cmd, yes, question); err != nil {
				return err
			}
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				return c.PurgeDeferredCalls(ctx, &pb.PurgeDeferredCallsRequest{Names: names, Filter: filter})
			}, func(m proto.Message) {
				sayCount(cmd.OutOrStdout(), m.(*pb.PurgeDeferredCallsResponse).GetCount(), "deleted") //nolint:forcetypeassert // asked for above
			})
		}),
	}
	f.declare(cmd)
	pick.declare(cmd, states...)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.ValidArgsFunction = f.deferredNames(ended)
	completeFlagBy(cmd, "origin", f.originNames())
	return cmd
}

func countOf(n uint64) string {
	if n == 1 {
		return "1 deferred call"
	}
	return fmt.Sprintf("%d deferred calls", n)
}

func sayCount(w io.Writer, n uint64, what string) { sayf(w, "%s %s\n", countOf(n), what) }
