package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// operationHelp is what the help of the commands about operations ends with.
const operationHelp = `The broker is that of --broker or SALLYPORT_BROKER, at the address where calls are made (not that of serve --admin). Who you are is
told by SALLYPORT_TOKEN, or by --client-cert and --client-key; an id means nothing without the caller whose it is. Operators see the
operations of another caller with --caller.`

func newOperation() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "operation",
		Short: "See what became of operation ids, and settle unknown ones",
		Long: `See what a broker's ledger knows of operation ids: the calls made with --operation-id, also those whose caller gave up or never got
an answer. What to do with an unknown one is told by docs/unknown-outcomes.md.

` + operationHelp,
		Example: `  sallyport operation list --state unknown
  sallyport operation get charge-1001
  sallyport operation reconcile charge-1001`,
		RunE: action(groupOnly),
	}
	cmd.AddCommand(newOperationGet(), newOperationList(), newOperationReconcile())
	return cmd
}

// operationFlags are those of a command about operations.
type operationFlags struct {
	adminFlags
	caller string
}

func (f *operationFlags) declare(cmd *cobra.Command) {
	f.adminFlags.declare(cmd)
	cmd.Flags().StringVar(&f.caller, "caller", "", "whose operations, for operators (default: your own)")
	completeFlag(cmd, "caller") // names of callers are not told; they are no files either
}

func newOperationGet() *cobra.Command {
	var f operationFlags
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show what is known of an operation id: state, outcome, effect, attempts, answer, and what to do",
		Long: `Show what is known of an operation id, also after its caller gave up:

  running   an attempt is under way, be it one that outlived its caller: ask again
  finished  it ended, and its effect is known, or it may be repeated
  unknown   it must not be repeated, and nobody knows whether it happened

The attempts are shown as sallyport call shows them, the status probes below them. OUTCOME is what the caller was told, or what a probe
found; an answer that came later shows in the effect and below. A NOT_FOUND names the ledger that was asked and since when it knows: another broker may have another ledger.

` + operationHelp + "\n" + adminCodes,
		Example: `  sallyport operation get charge-1001
  sallyport operation get charge-1001 -o json | jq -r .state
  sallyport operation get charge-1001 --caller shop`,
		Args: exactly("ID"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				return c.GetOperation(ctx, &pb.GetOperationRequest{OperationId: args[0], Caller: f.caller})
			}, func(m proto.Message) {
				printOperation(cmd.OutOrStdout(), operationOf(m.(*pb.GetOperationResponse)), clock()) //nolint:forcetypeassert // asked for above
			})
		}),
	}
	f.declare(cmd)
	cmd.ValidArgsFunction = completeArgs(f.operationIDs())
	return cmd
}

// operationOf is the answer of GetOperation as all others write it.
func operationOf(r *pb.GetOperationResponse) *pb.Operation {
	return &pb.Operation{
		OperationId: r.GetOperationId(), State: r.GetState(), Outcome: r.GetOutcome(), Effect: r.GetEffect(), Reason: r.GetReason(),
		Attempts: r.GetAttempts(), Response: r.GetResponse(), CreateTime: r.GetCreateTime(), UpdateTime: r.GetUpdateTime(),
		Detail: r.GetDetail(), Next: r.GetNext(), RetrySafe: r.GetRetrySafe(), Policy: r.GetPolicy(), Probes: r.GetProbes(), Free: r.GetFree(),
	}
}

func newOperationReconcile() *cobra.Command {
	var f operationFlags
	cmd := &cobra.Command{
		Use:   "reconcile ID",
		Short: "Ask the upstream now what became of an operation, by the status probe of its policy",
		Long: `Ask the upstream what became of an operation whose effect is unknown, by the status probe of the policy that ruled its call, and show
what is known after it. Nothing is repeated by this: the probe is a GET. What it finds is written into the ledger, so that the caller who
asks again under the id gets it.

"Applied" settles the operation: the probe's answer is its answer. "Not applied" counts only where the policy calls the upstream
authoritative, after its settle time, and when two probes agree; then the id is free for one fresh send. Everything else leaves it
unknown. Without a status_probe in the policy it is refused, and a person has to find out.

` + operationHelp + "\n" + adminCodes,
		Example: `  sallyport operation reconcile charge-1001
  for id in $(sallyport operation list --state unknown --limit 0 -o json | jq -r '.operations[].operationId'); do
      sallyport operation reconcile "$id"
  done`,
		Args: exactly("ID"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				resp, err := c.ReconcileOperation(ctx, &pb.ReconcileOperationRequest{OperationId: args[0], Caller: f.caller})
				return resp.GetOperation(), err
			}, func(m proto.Message) {
				printOperation(cmd.OutOrStdout(), m.(*pb.Operation), clock()) //nolint:forcetypeassert // asked for above
			})
		}),
	}
	f.declare(cmd)
	cmd.ValidArgsFunction = completeArgs(f.operationIDs())
	return cmd
}

func newOperationList() *cobra.Command {
	var f operationFlags
	var state string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List your operations, the newest first",
		Long: `List your operations, the newest first, as long as the ledger keeps them (at least 24 hours after they ended).

  STATE     running: under way; finished: its effect is known, or it may be repeated; unknown: it may have happened
  OUTCOME   what its caller was told, or what a status probe found; - while he waits
  EFFECT    what is known of it, a late answer included
  STATUS    of the last complete answer
  ATTEMPTS  how many were made
  CREATED   how long ago the ledger first heard of it; CHANGED: how long ago it last changed

` + operationHelp + "\n" + adminCodes,
		Example: `  sallyport operation list
  sallyport operation list --state unknown --limit 0
  sallyport operation list --state unknown --caller shop -o json | jq -r '.operations[].operationId'`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			want, err := operationState(state)
			if err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit %d: give how many, or 0 for all", limit)
			}
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				all, err := operationsOf(ctx, c, &pb.ListOperationsRequest{State: want, Caller: f.caller}, limit)
				return &pb.ListOperationsResponse{Operations: all}, err
			}, func(m proto.Message) {
				printOperations(cmd.OutOrStdout(), m.(*pb.ListOperationsResponse).GetOperations()) //nolint:forcetypeassert // made above
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&state, "state", "", "only those in this state: running | finished | unknown")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many at most; 0: all")
	completeFlag(cmd, "state", "running", "finished", "unknown")
	return cmd
}

// operationState reads a state as people write it.
func operationState(s string) (pb.OperationState, error) {
	switch s {
	case "":
		return pb.OperationState_OPERATION_STATE_UNSPECIFIED, nil
	case "running":
		return pb.OperationState_OPERATION_STATE_RUNNING, nil
	case "finished":
		return pb.OperationState_OPERATION_STATE_FINISHED, nil
	case "unknown":
		return pb.OperationState_OPERATION_STATE_UNKNOWN, nil
	}
	return 0, oneOf("state", s, "running", "finished", "unknown")
}

// operationsOf reads pages until there are so many; 0 reads all.
func operationsOf(ctx context.Context, c *client.Client, req *pb.ListOperationsRequest, most int) ([]*pb.Operation, error) {
	var all []*pb.Operation
	req.PageSize = pageFor(most)
	for {
		resp, err := c.ListOperations(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetOperations()...)
		switch req.PageToken = resp.GetNextPageToken(); {
		case most > 0 && len(all) >= most:
			return all[:most], nil
		case req.GetPageToken() == "":
			return all, nil
		}
	}
}

func printOperations(w io.Writer, all []*pb.Operation) {
	at := clock()
	rows := make([][]string, len(all))
	for i, o := range all {
		rows[i] = operationCells(o, at)
	}
	printTable(w, []string{"OPERATION", "STATE", "OUTCOME", "EFFECT", "STATUS", "ATTEMPTS", "CREATED", "CHANGED"}, rows)
}
