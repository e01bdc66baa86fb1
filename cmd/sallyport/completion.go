package main

import "github.com/spf13/cobra"

// addCompletion adds cobra's own command, which prints the completion of a shell. It writes to what root writes to by now, so it is
// added last.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.RunE = action(groupOnly) // cobra's own gives help for a shell it does not know, and says that all is well
			cmd.Args = cobra.ArbitraryArgs
		}
	}
}

// groupOnly is the work of a command that only has commands below it.
func groupOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unknown command %q (see %s --help)", args[0], cmd.CommandPath())
	}
	return cmd.Help() //nolint:wrapcheck // a broken pipe needs no more words
}
