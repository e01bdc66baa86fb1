package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// resolveFlags are those of `policy resolve`.
type resolveFlags struct {
	adminFlags
	file, caller string
}

func newResolve() *cobra.Command {
	var f resolveFlags
	cmd := &cobra.Command{
		Use:   "resolve METHOD URL",
		Short: "Show the effective policy of a call, and which policy set each value",
		Long: `Show the effective policy of a call: every value, and the policy and revision that set it. The value of each field is that of
the most specific matching policy that sets it; what none sets comes from policies/default.

The broker is asked what holds there now. With --policies FILE no broker is asked: the file and the built-in policy are all there is;
--policies '' is the built-in policy alone. -o json is then a list of the values as the text shows them, and of a broker its
ResolvePolicyResponse.
` + adminCodes,
		Example: `  sallyport policy resolve POST https://api.example.com/orders --caller shop
  sallyport policy resolve --policies policies.yaml POST https://api.example.com/orders
  sallyport policy resolve GET https://api.example.com/ -o json`,
		Args: exactly("METHOD", "URL"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", f.output, formText, formJSON, formYAML); err != nil {
				return err
			}
			if !call.ValidToken(args[0]) {
				return usagef("METHOD: not a token (RFC 9110 §9.1); use letters such as GET")
			}
			target, err := call.ParseTarget(args[1])
			if err != nil {
				return usagef("URL: %w", err)
			}
			if cmd.Flags().Changed("policies") {
				return f.offline(cmd, &call.Call{Method: args[0], Target: target, Caller: f.caller})
			}
			return f.online(cmd, args[0], args[1])
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&f.file, "policies", "", "policy file, YAML or JSON, in place of a broker")
	cmd.Flags().StringVar(&f.caller, "caller", "", "identity of the caller (default: yourself; \"local\" with --policies)")
	completeFiles(cmd, "policies")
	cmd.ValidArgsFunction = completeArgs(methodNames())
	return cmd
}

// offline resolves with a file.
func (f *resolveFlags) offline(cmd *cobra.Command, c *call.Call) error {
	if c.Caller == "" {
		c.Caller = "local"
	}
	_, table, err := loadPolicies(f.file)
	if err != nil {
		return usage(err)
	}
	e := table.Resolve(c)
	if f.output != formText {
		return printValue(cmd.OutOrStdout(), f.output, resolution(e))
	}
	printLeaves(cmd.OutOrStdout(), e.Policy, e.Leaves())
	return nil
}

// online has a broker resolve.
func (f *resolveFlags) online(cmd *cobra.Command, method, url string) error {
	return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
		return c.Policies().ResolvePolicy(ctx, &pb.ResolvePolicyRequest{Method: method, Url: url, Caller: f.caller})
	}, func(m proto.Message) {
		resp := m.(*pb.ResolvePolicyResponse) //nolint:forcetypeassert // asked for above
		printLeaves(cmd.OutOrStdout(), revisionText(resp.GetPolicy()), leavesOf(resp))
	})
}

// leavesOf gives the values of a broker the form of those of a file: as the one rule of a table they come out as the broker has them.
func leavesOf(resp *pb.ResolvePolicyResponse) []policy.Leaf {
	values := map[string]string{}
	if r, err := ruleOf(resp.GetPolicy()); err == nil { // else of a later version
		r.Name = policy.DefaultName
		if table, err := compileRules("", []policy.Rule{*r}, policy.Options{Generations: new(atomic.Uint64)}); err == nil {
			for _, l := range table.Resolve(&call.Call{}).Leaves() {
				values[l.Path] = l.Value
			}
		}
	}
	leaves := make([]policy.Leaf, len(resp.GetSources()))
	for i, s := range resp.GetSources() {
		value, known := values[s.GetPath()]
		if !known {
			value = "?" // a field of a later version
		}
		leaves[i] = policy.Leaf{Path: s.GetPath(), Value: value, Source: policy.Source{Policy: s.GetPolicy(), Revision: s.GetRevision()}}
	}
	return leaves
}

// resolved is the JSON form of an effective policy.
type resolved struct {
	Policy string         `json:"policy"`
	Values []resolvedLeaf `json:"values"`
}

type resolvedLeaf struct {
	Path     string `json:"path"`
	Value    string `json:"value"`
	Policy   string `json:"policy"`
	Revision uint64 `json:"revision"`
}

func resolution(e *policy.Effective) resolved {
	r := resolved{Policy: e.Policy}
	for _, l := range e.Leaves() {
		r.Values = append(r.Values, resolvedLeaf{l.Path, l.Value, l.Source.Policy, l.Source.Revision})
	}
	return r
}

// printLeaves aligns the columns; a value that is longer than most pushes only its own line. On a terminal a long value is cut, so
// that the line keeps its source.
func printLeaves(w io.Writer, id string, leaves []policy.Leaf) {
	const most = 40
	pathWidth, valueWidth, sourceWidth := 0, 0, 0
	for _, l := range leaves {
		pathWidth = max(pathWidth, len(l.Path))
		sourceWidth = max(sourceWidth, cells(plain(l.Source.Policy))+len(strconv.FormatUint(l.Source.Revision, 10))+1)
		if n := cells(plain(l.Value)); n <= most {
			valueWidth = max(valueWidth, n)
		}
	}
	room := columns(w)
	if room > 0 {
		valueWidth = max(min(valueWidth, room-pathWidth-sourceWidth-6), leastColumn)
	}
	sayf(w, "policy: %s\n", plain(id))
	for _, l := range leaves {
		value := plain(l.Value)
		if room > 0 {
			value = shortened(value, valueWidth)
		}
		line := fmt.Sprintf("  %-*s  %s%s  %s@%d", pathWidth, l.Path, value, strings.Repeat(" ", max(0, valueWidth-cells(value))),
			plain(l.Source.Policy), l.Source.Revision)
		sayf(w, "%s\n", fitted(line, room))
	}
}
