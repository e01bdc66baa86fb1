// Command sallyport is the broker and the command line that goes with it. It is the only place where the packages meet: every
// other package takes what it needs as parameters.
package main

import (
	"context"
	"io"
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program without the process: it returns the exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	addCompletion(root)
	return report(errOut, root.ExecuteContext(context.Background()))
}
