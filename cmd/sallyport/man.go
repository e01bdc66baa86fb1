package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write man pages",
		Long: `Write the man pages of all commands into a directory, which is made where it is missing. Their date is that of
SOURCE_DATE_EPOCH where it is set, so that a package can be built twice and come out the same.`,
		Example: `  sallyport man /usr/local/share/man/man1
  sallyport man pages && man -l pages/sallyport-call.1`,
		Args: exactly("DIR"),
		RunE: action(func(_ *cobra.Command, args []string) error {
			return writeMan(args[0])
		}),
	}
}

// writeMan writes the pages of a command tree of its own: what suits a page does not suit a terminal, and the tree in use stays as
// it is.
func writeMan(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // man pages are for everybody
		return fmt.Errorf("directory %s cannot be used: %w", dir, cause(err))
	}
	root := newRoot()
	addCompletion(root)
	forMan(root)
	header := &doc.GenManHeader{Section: "1", Source: "sallyport " + programVersion(), Manual: "Sallyport"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("man pages in %s: %w", dir, cause(err))
	}
	return nil
}

// forMan keeps what the help text lines up by blanks: to the markdown that the pages are made of, it is one paragraph.
func forMan(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true // it would add a date of its own
	var lines []string
	inTable := false
	for line := range strings.SplitSeq(cmd.Long, "\n") {
		table := strings.HasPrefix(line, "  ")
		if table != inTable {
			lines = append(lines, "")
		}
		if table {
			line = "    " + line
		}
		lines, inTable = append(lines, line), table
	}
	cmd.Long = strings.Join(lines, "\n")
	for _, child := range cmd.Commands() {
		forMan(child)
	}
}
