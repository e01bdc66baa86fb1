package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// deferredHelp is what the help of the commands about deferred calls ends with.
const deferredHelp = `The broker is that of --broker or SALLYPORT_BROKER, at the address where calls are made (not that of serve --admin). Who you are is
told by SALLYPORT_TOKEN, or by --client-cert and --client-key; you see your own deferred calls and nobody else's. The whole story is in
docs/deferred.md.`

func newDeferred() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deferred",
		Short: "Have calls kept until they are done: submit, list, watch, cancel, redrive, purge",
		Long: `Have a broker keep calls until they are done. A call that was accepted is on its disk, is tried again over restarts until it
succeeds or may not go on, and one that must not be repeated is never sent twice.

  pending    waits for its first attempt        completed  answered with a success
  retrying   waits for its next attempt         failed     a dead letter: permanent, exhausted or expired
  sending    an attempt is under way            unknown    may have happened, must not be repeated: for a person
                                                cancelled  by you

` + deferredHelp,
		Example: `  sallyport deferred submit POST https://hooks.example.com/orders -d @order.json --operation-id order-4711 --at-least-once
  sallyport deferred list --state failed
  sallyport deferred watch
  sallyport deferred redrive --state failed --origin https://hooks.example.com --per-second 5`,
		RunE: action(groupOnly),
	}
	cmd.AddCommand(newDeferredSubmit(), newDeferredGet(), newDeferredList(), newDeferredWatch(), newDeferredCancel(), newDeferredRedrive(),
		newDeferredPurge())
	return cmd
}

// deferredPrefix begins the names of deferred calls.
const deferredPrefix = "deferredCalls/"

// deferredName is the name of what a person gave: a name, or the id in it.
func deferredName(text string) string {
	if strings.HasPrefix(text, deferredPrefix) {
		return text
	}
	return deferredPrefix + text
}

func newDeferredGet() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "get ID|NAME",
		Short: "Show one deferred call: state, every attempt, answer, and what to do",
		Long: `Show a deferred call by its name, as submit printed it, or by the id in it: where it stands, every attempt with what was proved of
it and what was decided after it, when the next one is due, and the last answer. "perhaps twice" stands beside the state of one that may
have been sent twice.

` + deferredHelp + "\n" + adminCodes,
		Example: `  sallyport deferred get deferredCalls/0193b0c7-52f1-7a37-9f0e-8a3d5c1e7b42
  sallyport deferred get 0193b0c7-52f1-7a37-9f0e-8a3d5c1e7b42 -o json | jq -r .state`,
		Args: exactly("ID"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				resp, err := c.GetDeferredCall(ctx, &pb.GetDeferredCallRequest{Name: deferredName(args[0])})
				return resp.GetDeferredCall(), err
			}, func(m proto.Message) {
				printDeferred(cmd.OutOrStdout(), m.(*pb.DeferredCall), clock()) //nolint:forcetypeassert // asked for above
			})
		}),
	}
	f.declare(cmd)
	cmd.ValidArgsFunction = completeArgs(f.deferredNames(nil))
	return cmd
}

func newDeferredCancel() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "cancel ID|NAME",
		Short: "End a deferred call that is not finished",
		Long: `End a deferred call that is not finished. An attempt that is under way is cancelled, and the effect tells what is known of it: it
may have happened. A finished one is refused.

` + deferredHelp + "\n" + adminCodes,
		Example: `  sallyport deferred cancel deferredCalls/0193b0c7-52f1-7a37-9f0e-8a3d5c1e7b42`,
		Args:    exactly("ID"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				resp, err := c.CancelDeferredCall(ctx, &pb.CancelDeferredCallRequest{Name: deferredName(args[0])})
				return resp.GetDeferredCall(), err
			}, func(m proto.Message) {
				printDeferred(cmd.OutOrStdout(), m.(*pb.DeferredCall), clock()) //nolint:forcetypeassert // asked for above
			})
		}),
	}
	f.declare(cmd)
	cmd.ValidArgsFunction = completeArgs(f.deferredNames(func(s pb.DeferredState) bool { return !ended(s) }))
	return cmd
}

// ended: it is finished, and nothing more happens to it by itself.
func ended(s pb.DeferredState) bool { return s >= pb.DeferredState_DEFERRED_STATE_COMPLETED }

// dead: it can be redriven.
func dead(s pb.DeferredState) bool {
	return s == pb.DeferredState_DEFERRED_STATE_FAILED || s == pb.DeferredState_DEFERRED_STATE_UNKNOWN
}

// deferredNames completes the newest deferred calls of the caller that are of use; nil: all are.
func (f *adminFlags) deferredNames(of func(s pb.DeferredState) bool) cobra.CompletionFunc {
	return f.names(func(ctx context.Context, c *client.Client) []cobra.Completion {
		resp, err := c.ListDeferredCalls(ctx, &pb.ListDeferredCallsRequest{PageSize: pageOfAll})
		if err != nil {
			return nil
		}
		var names []cobra.Completion
		for _, d := range resp.GetDeferredCalls() {
			if of == nil || of(d.GetState()) {
				names = append(names, cobra.CompletionWithDesc(d.GetName(), plain(deferredStateText(d)+", "+deferredCallText(d))))
			}
		}
		return names
	})
}
