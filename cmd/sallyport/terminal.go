package main

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// isTerminal tells whether a person sits there.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columns is how wide the lines may be that are written to w; 0 for any width, as for a file or a pipe.
func columns(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	n, _, err := term.GetSize(int(w.(*os.File).Fd())) //nolint:forcetypeassert // isTerminal has looked
	if err != nil {
		return 0
	}
	return n
}

// confirmed asks a person, where nobody has said yes beforehand. Without a terminal there is nobody to ask. A no is an exit code.
func confirmed(cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	if !isTerminal(cmd.InOrStdin()) {
		return usagef("nothing was written: there is no terminal to ask at; give --yes to go on without a question")
	}
	sayf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		sayf(cmd.ErrOrStderr(), "\n") // no line end was typed
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	sayf(cmd.ErrOrStderr(), "nothing was written\n")
	return &exitError{code: exitFailure}
}
