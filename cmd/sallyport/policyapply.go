package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/client"
)

// applyFlags are those of `policy apply`.
type applyFlags struct {
	adminFlags
	file, reason       string
	prune, yes, dryRun bool
}

func newPolicyApply() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Make the policies of a broker what files say",
		Long: `Make the policies of a broker what files say: create those that are not there, update those that differ, and with --prune delete
those that no file has. The files are policy files as serve --policies reads them; of a directory those that end in .yaml, .yml or .json.

First the broker checks every change, and the differences are shown field by field; then you are asked. Where there is no terminal to
ask at, say --yes. Etags guard the time between: what somebody else has changed meanwhile is not overwritten, and nothing more is
written after it. The policies are written one by one, and what was written is named.

Policies of the broker's own file are read-only: one that differs is reported and left alone. --prune deletes neither those nor the
built-in policies/default. What the broker sets (etag, revision, times) is ignored in the files.

Exit codes:
   0  done, or nothing to do
   1  the policies are not as the files say: --dry-run found differences, you said no, or a read-only one differs
   2  usage, or a file that cannot be read
   3  a gRPC error: the broker refuses a change, or cannot be asked`,
		Example: `  sallyport policy apply -f policies.yaml
  sallyport policy apply -f policies/ --prune --dry-run
  generate-policies | sallyport policy apply -f - --yes --reason 'release 42'`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			if f.file == "" {
				return usagef("-f is missing: name a policy file, a directory of them, or - for standard input")
			}
			if f.output != formText && !f.yes && !f.dryRun {
				return usagef("-o %s leaves no room for a question: give --yes or --dry-run", f.output)
			}
			return f.with(cmd, func(ctx context.Context, c *client.Client) error { return f.apply(ctx, cmd, c) })
		}),
	}
	f.declare(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "policy file, directory of policy files, or - for standard input")
	fs.StringVar(&f.reason, "reason", "", "why, for the audit")
	fs.BoolVar(&f.prune, "prune", false, "delete the policies that no file has")
	fs.BoolVar(&f.yes, "yes", false, "do not ask")
	fs.BoolVar(&f.dryRun, "dry-run", false, "show the differences, have the broker check them, and stop")
	completeFiles(cmd, "file")
	return cmd
}

func (f *applyFlags) apply(ctx context.Context, cmd *cobra.Command, c *client.Client) error {
	wanted, err := readPolicies(f.file, cmd.InOrStdin())
	if err != nil {
		return usage(err)
	}
	listing, cancel := context.WithTimeout(ctx, adminTime)
	defer cancel()
	standing, err := allPolicies(listing, c)
	if err != nil {
		return err
	}
	plan, err := planOf(wanted, standing, f.prune)
	if err != nil {
		return err
	}
	if err := f.check(ctx, c, plan); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.output == formText {
		for _, s := range plan {
			s.print(out)
		}
		sayf(out, "%s\n", summary(plan))
	}
	if f.dryRun {
		return f.end(out, plan, false)
	}
	if slices.ContainsFunc(plan, (*step).writes) {
		if err := confirmed(cmd, f.yes, "Apply these changes?"); err != nil {
			return err
		}
		if err := f.write(ctx, out, c, plan); err != nil {
			return err
		}
	}
	return f.end(out, plan, true)
}

// check has the broker look at every step before the first is done. All that it refuses is told at once.
func (f *applyFlags) check(ctx context.Context, c *client.Client, plan []*step) error {
	var lines []string
	for _, s := range plan {
		if !s.writes() {
			continue
		}
		err := s.do(ctx, c, f.reason, true)
		if err == nil {
			continue
		}
		lines = append(lines, refusalOf(s.name, err, f.broker)...)
		if status.Code(err) != codes.InvalidArgument {
			break // of the broker, and not of this policy
		}
	}
	if lines == nil {
		return nil
	}
	return &exitError{code: exitGRPC, err: errors.New(strings.Join(append(lines, "nothing was written"), "\n"))}
}

// write does the steps one by one, and stops at the first that is refused.
func (f *applyFlags) write(ctx context.Context, out io.Writer, c *client.Client, plan []*step) error {
	var written []string
	for _, s := range plan {
		if !s.writes() {
			continue
		}
		if err := s.do(ctx, c, f.reason, false); err != nil {
			lines := refusalOf(s.name, err, f.broker)
			if len(written) == 0 {
				lines = append(lines, "nothing was written before it, and nothing after it")
			} else {
				lines = append(lines, "written before it, and nothing after it: "+strings.Join(written, ", "))
			}
			return &exitError{code: exitGRPC, err: errors.New(strings.Join(lines, "\n"))}
		}
		written = append(written, s.done())
		if f.output == formText {
			sayf(out, "%s\n", plain(s.done()))
		}
	}
	return nil
}

// end gives the exit code, and the whole of it to programs.
func (f *applyFlags) end(out io.Writer, plan []*step, done bool) error {
	if f.output != formText {
		if err := printPlan(out, f.output, plan, done); err != nil {
			return err
		}
	}
	for _, s := range plan {
		if s.what == stepReadOnly || !done && s.writes() {
			return &exitError{code: exitFailure}
		}
	}
	return nil
}

// summary counts the steps.
func summary(plan []*step) string {
	var parts []string
	for _, what := range []string{stepCreate, stepUpdate, stepDelete, stepUnchanged, stepReadOnly} {
		n := 0
		for _, s := range plan {
			if s.what == what {
				n++
			}
		}
		switch {
		case n == 0:
		case what == stepUnchanged:
			parts = append(parts, fmt.Sprintf("%d unchanged", n))
		case what == stepReadOnly:
			parts = append(parts, fmt.Sprintf("%d read-only", n))
		default:
			parts = append(parts, fmt.Sprintf("%d to %s", n, what))
		}
	}
	if parts == nil {
		return "no policies"
	}
	return strings.Join(parts, ", ")
}

// plannedStep is a step for programs.
type plannedStep struct {
	Name     string          `json:"name"`
	Action   string          `json:"action"`
	Revision uint64          `json:"revision,omitempty"`
	Changes  []plannedChange `json:"changes"`
	Warnings []string        `json:"warnings"`
}

type plannedChange struct {
	Path   string `json:"path"`
	Before string `json:"before"`
	After  string `json:"after"`
}

func printPlan(w io.Writer, form string, plan []*step, done bool) error {
	type planned struct {
		Applied bool          `json:"applied"`
		Steps   []plannedStep `json:"steps"`
	}
	all := planned{Applied: done, Steps: []plannedStep{}}
	for _, s := range plan {
		p := plannedStep{Name: s.name, Action: s.what, Changes: []plannedChange{}, Warnings: append([]string{}, s.warnings...)}
		if done && s.what != stepDelete {
			p.Revision = max(s.revision, s.now.GetRevision())
		}
		for _, c := range s.changes {
			p.Changes = append(p.Changes, plannedChange(c))
		}
		all.Steps = append(all.Steps, p)
	}
	return printValue(w, form, all)
}
