package main

import (
	"strings"

	"github.com/spf13/cobra"
)

func newLint() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE",
		Short: "Check a policy file as the broker would at its start",
		Long: `Check a policy file as the broker would at its start. A sound file is named with the number of its policies, and with what
it sets that this version does not act on. Errors have the form FILE:LINE:COLUMN: field: cause and fix.

Exit codes: 0 sound · 2 not sound, or not readable.`,
		Example: "  sallyport policy lint policies.yaml",
		Args:    exactly("FILE"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			rules, _, err := loadPolicies(args[0])
			if err != nil {
				// As compilers write it, without the program's name: editors and problem matchers read these lines.
				for line := range strings.Lines(err.Error()) {
					sayf(cmd.ErrOrStderr(), "%s\n", plain(strings.TrimSpace(line)))
				}
				return &exitError{code: exitUsage}
			}
			noun := "policies"
			if len(rules) == 1 {
				noun = "policy"
			}
			sayf(cmd.OutOrStdout(), "%s: ok, %d %s\n", plain(args[0]), len(rules), noun)
			return nil
		}),
	}
}
