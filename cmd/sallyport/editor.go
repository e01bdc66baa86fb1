package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// edited is a text that a person edits, in a file of theirs alone: policies may hold what others should not read.
type edited struct {
	dir, path string
}

func newEdited() (*edited, error) {
	dir, err := os.MkdirTemp("", "sallyport-") // 0700
	if err != nil {
		return nil, fmt.Errorf("no place for a file to edit: %w", err)
	}
	return &edited{dir: dir, path: filepath.Join(dir, "policy.yaml")}, nil
}

// write puts the text under its head.
func (e *edited) write(head []string, body []byte) error {
	text := append([]byte(strings.Join(head, "\n")+"\n"), body...)
	if err := os.WriteFile(e.path, text, 0o600); err != nil {
		return fmt.Errorf("%s: %w", e.path, cause(err))
	}
	return nil
}

// open has the editor work on the file, and gives the text without its head, also when the editor failed.
func (e *edited) open(ctx context.Context, cmd *cobra.Command) ([]byte, error) {
	editor := os.Getenv("VISUAL")
	if editor == "" {
		editor = os.Getenv("EDITOR")
	}
	if editor == "" {
		editor = "vi"
	}
	// By a shell, for an editor may come with arguments of its own, as "code --wait".
	run := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", e.path) //nolint:gosec // it is the command that its user has chosen
	run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	failed := run.Run()
	text, err := os.ReadFile(e.path)
	switch {
	case failed != nil:
		err = fmt.Errorf("the editor (%s): %w; nothing was written", editor, failed)
	case err != nil:
		return nil, fmt.Errorf("what was edited: %w; nothing was written", err)
	}
	for bytes.HasPrefix(text, []byte(editMark)) {
		_, text, _ = bytes.Cut(text, []byte{'\n'})
	}
	return text, err
}

// kept adds to an error where the text is, so that its author's work is not lost.
func (e *edited) kept(err error) error {
	code := exitFailure
	if exit, ok := errors.AsType[*exitError](err); ok {
		code = exit.code
	}
	return &exitError{code: code, err: fmt.Errorf("%w\nyour text is in %s", err, e.path)}
}

func (e *edited) remove() error {
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("%s: %w", e.dir, cause(err))
	}
	return nil
}
