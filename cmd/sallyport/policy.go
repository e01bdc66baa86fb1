package main

import (
	"github.com/spf13/cobra"
)

func newPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check policy files and see what they come to, without a broker",
		Long:  "Check policy files and see what they come to. These commands read files only; no broker is asked.",
		Example: `  sallyport policy lint policies.yaml
  sallyport policy resolve --policies policies.yaml POST https://api.example.com/orders`,
		RunE: action(groupOnly),
	}
	cmd.AddCommand(newLint(), newResolve())
	return cmd
}
