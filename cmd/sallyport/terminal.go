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
	return ok && term.IsTerminal(int(f.Fd())) //nolint:gosec // a file descriptor is small
}

// columns is how wide the lines may be that are written to w; 0 for any width, as for a file or a pipe.
func columns(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	n, _, err := term.GetSize(int(w.(*os.File).Fd())) //nolint:gosec,forcetypeassert // as above; isTerminal has looked
	if err != nil {
		return 0
	}
	return n
}

// confirmed asks a person, where nobody has said yes beforehand. Without a terminal there is nobody to ask.
func confirmed(cmd *cobra.Command, yes bool, question string) (bool, error) {
	if yes {
		return true, nil
	}
	if !isTerminal(cmd.InOrStdin()) {
		return false, usagef("%s There is no terminal to ask at: look at it, then give --yes", question)
	}
	sayf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		sayf(cmd.ErrOrStderr(), "\n") // no line end was typed
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
