package main

import (
	"slices"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sallyport",
		Short: "An outbound call broker: one call in, one typed and explained outcome back",
		Long: `Sallyport makes outbound HTTP calls for other services. A service hands over one call over gRPC; the broker retries it
only where that is safe, within the caller's deadline, and returns a typed outcome: why the call ended, what is known
of its effect on the upstream, and what to do next.`,
		Example: `  sallyport demo
  sallyport serve --dev
  sallyport call GET https://api.example.com/orders/17 --deadline 3s`,
		SilenceErrors: true, // report prints them, once and in one form
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(newServe(), newCall(), newDemo(), newPolicy(), newOrigins(), newOperation(), newDeferred(), newFanOut(), newVersion(), newMan())
	return root
}

// action gives a command its work. A plain error of the work is a failure of the program; cobra's own errors stay what they are.
func action(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		if _, ok := err.(*exitError); ok || err == nil { //nolint:errorlint // only the outermost one has the last word
			return err
		}
		return failure(err)
	}
}

// exactly wants the arguments named, in this order.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing (see %s --help)", names[len(args)], cmd.CommandPath())
		case len(args) > len(names):
			return usagef("unexpected argument %q (see %s --help)", args[len(names)], cmd.CommandPath())
		}
		return nil
	}
}

// oneOf checks a flag that has a closed list of values.
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return usagef("--%s %q: give one of %v", flag, value, allowed)
}
