package main

import (
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

func newResolve() *cobra.Command {
	var file, caller, output string
	cmd := &cobra.Command{
		Use:   "resolve METHOD URL",
		Short: "Show the effective policy of a call, and which policy set each value",
		Long: `Show the effective policy of a call: every value, and the policy and revision that set it. The value of each field is that of
the most specific matching policy that sets it; what none sets comes from policies/default.`,
		Example: `  sallyport policy resolve --policies policies.yaml POST https://api.example.com/orders
  sallyport policy resolve GET https://api.example.com/ -o json`,
		Args: exactly("METHOD", "URL"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			if !call.ValidToken(args[0]) {
				return usagef("METHOD: not a token (RFC 9110 §9.1); use letters such as GET")
			}
			target, err := call.ParseTarget(args[1])
			if err != nil {
				return usagef("URL: %w", err)
			}
			rules, table, err := loadPolicies(file)
			if err != nil {
				return usage(err)
			}
			e := table.Resolve(&call.Call{Method: args[0], Target: target, Caller: caller})
			if output == "json" {
				return printIndented(cmd.OutOrStdout(), resolution(e))
			}
			printResolution(cmd.OutOrStdout(), e)
			printNotInForce(cmd.OutOrStdout(), rules)
			return nil
		}),
	}
	cmd.Flags().StringVar(&file, "policies", "", "policy file, YAML or JSON (default: the built-in policy alone)")
	cmd.Flags().StringVar(&caller, "caller", "local", "identity of the caller")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text | json")
	return cmd
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

// printResolution aligns the columns; a value that is longer than most pushes only its own line.
func printResolution(w io.Writer, e *policy.Effective) {
	const most = 40
	leaves := e.Leaves()
	pathWidth, valueWidth := 0, 0
	for _, l := range leaves {
		pathWidth = max(pathWidth, len(l.Path))
		if n := utf8.RuneCountInString(plain(l.Value)); n <= most {
			valueWidth = max(valueWidth, n)
		}
	}
	sayf(w, "policy: %s\n", plain(e.Policy))
	for _, l := range leaves {
		sayf(w, "  %-*s  %-*s  %s@%d\n", pathWidth, l.Path, valueWidth, plain(l.Value), plain(l.Source.Policy), l.Source.Revision)
	}
}
