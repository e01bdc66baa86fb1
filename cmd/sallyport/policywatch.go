package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newPolicyWatch() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow the policies of a broker: a line for each change",
		Long: `Follow the policies of a broker until you end it: first a line for each policy there is, then one for each change. A broker that is
started again is followed again, and what changed meanwhile is told then. -o json writes a line for each message of the broker, and
-o yaml a document.
` + adminCodes,
		Example: `  sallyport policy watch
  sallyport policy watch -o json | jq -r '.policy.name // "synced"'`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			told := policyTeller{w: cmd.OutOrStdout(), known: map[string]*pb.Policy{}}
			return f.watch(cmd, func(ctx context.Context, c *client.Client, begun func()) error {
				stream, err := c.Policies().WatchPolicies(ctx, &pb.WatchPoliciesRequest{})
				if err != nil {
					return err
				}
				told.again()
				for {
					m, err := stream.Recv()
					if err != nil {
						return err //nolint:wrapcheck // its status is read by the caller
					}
					begun()
					if f.output != formText {
						if err := printStreamed(told.w, f.output, m); err != nil {
							return err
						}
						continue
					}
					told.hear(m)
				}
			})
		}),
	}
	f.declare(cmd)
	return cmd
}

// policyTeller writes what is new to its reader.
type policyTeller struct {
	w      io.Writer
	known  map[string]*pb.Policy
	synced bool // all that stood has been told, of this stream
	ever   bool // and of one before it or this one
	heard  map[string]bool
}

// again begins a stream: what it does not name before its mark is gone.
func (t *policyTeller) again() { t.synced, t.heard = false, map[string]bool{} }

func (t *policyTeller) hear(m *pb.WatchPoliciesResponse) {
	p := m.GetPolicy()
	before := t.known[p.GetName()]
	switch {
	case m.GetSynced():
		for _, name := range slices.Sorted(maps.Keys(t.known)) {
			if !t.heard[name] {
				t.say(t.known[name], "deleted", "")
				delete(t.known, name)
			}
		}
		t.synced, t.ever = true, true
		return
	case m.GetDeleted():
		delete(t.known, p.GetName())
		t.say(p, "deleted", "")
		return
	case before.GetEtag() == p.GetEtag() && before != nil:
	case before != nil && p.GetRevision() == 0:
		t.say(before, "deleted", "what is built in holds again")
	case !t.ever:
		t.say(p, "in force", matchText(p.GetMatch()))
	case before == nil || before.GetRevision() == 0:
		t.say(p, "created", matchText(p.GetMatch()))
	default:
		t.say(p, "changed", differenceText(before, p))
	}
	t.known[p.GetName()] = p
	t.heard[p.GetName()] = true
}

func (t *policyTeller) say(p *pb.Policy, what, more string) {
	at := time.Now().UTC().Format(time.RFC3339)
	line := strings.TrimRight(strings.Join([]string{at, revisionText(p), what, more}, "  "), " ")
	sayf(t.w, "%s\n", fitted(plain(line), columns(t.w)))
}

// differenceText says in one line what changed.
func differenceText(before, after *pb.Policy) string {
	changes, err := changesBetween(before, after)
	if err != nil {
		return "" // of a later version
	}
	parts := make([]string, len(changes))
	for i, c := range changes {
		switch {
		case c.Before == "":
			parts[i] = "+" + c.Path + " " + c.After
		case c.After == "":
			parts[i] = "-" + c.Path
		default:
			parts[i] = c.Path + " " + c.Before + " → " + c.After
		}
	}
	return strings.Join(parts, ", ")
}
