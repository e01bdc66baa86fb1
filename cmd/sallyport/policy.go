package main

import (
	"github.com/spf13/cobra"
)

// adminHelp is what the help of every command that administers ends with.
const adminHelp = `The broker is that of --broker or SALLYPORT_BROKER; where it has services that administer apart (serve --admin), give that
address. Who you are is told by SALLYPORT_TOKEN, or by --client-cert and --client-key; SALLYPORT_CA names the authority of the broker.`

// adminCodes are the exit codes of commands that ask a broker and do nothing else.
const adminCodes = `
Exit codes: 0 done · 2 usage · 3 a gRPC error: of the broker, or of the way to it.`

func newPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "See and change the policies of a broker, and check policy files",
		Long: `See and change the policies of a broker, and check policy files. lint reads files only, and so does resolve --policies; all
others ask the broker. A change holds for every call that begins after it.

` + adminHelp,
		Example: `  sallyport policy list
  sallyport policy apply -f policies/ --dry-run
  sallyport policy resolve POST https://api.example.com/orders
  sallyport policy history payments
  sallyport policy lint policies.yaml`,
		RunE: action(groupOnly),
	}
	cmd.AddCommand(
		newPolicyList(), newPolicyGet(), newPolicyApply(), newPolicyEdit(), newPolicyDelete(), newPolicyHistory(), newPolicyRollback(),
		newPolicyWatch(), newPolicyAudit(), newLint(), newResolve(),
	)
	return cmd
}
