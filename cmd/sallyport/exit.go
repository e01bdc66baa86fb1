package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// The exit codes of every command (contract.md §6). Those of `call` for an outcome follow them: see [outcomeCode].
const (
	exitOK      = 0
	exitFailure = 1 // the program could not do its work: port in use, directory not writable
	exitUsage   = 2 // usage or configuration
	exitGRPC    = 3 // an error of the broker or of the way to it
	exitOutcome = 10
)

// exitError is an error with the code the process ends with.
type exitError struct {
	code int
	err  error // nil: everything has been said
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage is an error of the command line or of a file it names.
func usage(err error) error { return &exitError{code: exitUsage, err: err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// failure is an error that no other command line would mend.
func failure(err error) error { return &exitError{code: exitFailure, err: err} }

// outcomeCode is the exit code of a call that was taken: 0 for a success, else 10 and the number of the outcome.
func outcomeCode(o pb.Outcome) int {
	if o == pb.Outcome_OUTCOME_SUCCESS {
		return exitOK
	}
	return exitOutcome + int(o)
}

// report prints an error, a line for each line of it, and returns the exit code. What is no [exitError] is cobra's own, which
// only ever speaks of usage.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: exitUsage, err: err}
	}
	if exit.err != nil {
		for line := range strings.Lines(exit.err.Error()) {
			sayf(w, "sallyport: %s\n", plain(strings.TrimSpace(line)))
		}
	}
	return exit.code
}
