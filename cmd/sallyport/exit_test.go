package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestEveryOutcomeHasItsExitCode(t *testing.T) {
	want := map[pb.Outcome]int{
		pb.Outcome_OUTCOME_UNSPECIFIED: 10, pb.Outcome_OUTCOME_SUCCESS: 0, pb.Outcome_OUTCOME_HTTP_ERROR: 12,
		pb.Outcome_OUTCOME_UNKNOWN: 13, pb.Outcome_OUTCOME_DEADLINE_EXCEEDED: 14, pb.Outcome_OUTCOME_CANCELLED: 15,
		pb.Outcome_OUTCOME_RETRIES_EXHAUSTED: 16, pb.Outcome_OUTCOME_BUDGET_EXHAUSTED: 17, pb.Outcome_OUTCOME_BREAKER_OPEN: 18,
		pb.Outcome_OUTCOME_THROTTLED: 19, pb.Outcome_OUTCOME_OVERLOADED: 20, pb.Outcome_OUTCOME_DENIED: 21,
		pb.Outcome_OUTCOME_UNREACHABLE: 22, pb.Outcome_OUTCOME_RESPONSE_REJECTED: 23, pb.Outcome_OUTCOME_OPERATION_CONFLICT: 24,
		pb.Outcome_OUTCOME_DEFERRED: 25,
	}
	help := exitHelp()
	for n, name := range pb.Outcome_name {
		o := pb.Outcome(n)
		code, known := want[o]
		if !known {
			t.Errorf("%s is not in this table", name)
			continue
		}
		if got := outcomeCode(o); got != code {
			t.Errorf("%s: exit code %d, want %d", name, got, code)
		}
		if line := fmt.Sprintf("  %2d  %s", code, outcomeName(o)); o != 0 && !strings.Contains(help, line) {
			t.Errorf("--help lacks %q", line)
		}
	}
}

func TestErrorsAreLinesWithTheirCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"none", nil, 0, ""},
		{"cobra's own", errors.New("unknown command"), 2, "sallyport: unknown command\n"},
		{"configuration", usage(errors.Join(errors.New("a:1:2: x"), errors.New("a:3:4: y"))), 2, "sallyport: a:1:2: x\nsallyport: a:3:4: y\n"},
		{"failure", failure(errors.New("in use")), 1, "sallyport: in use\n"},
		{"all said", &exitError{code: 13}, 13, ""},
		{"escapes in a file name", usage(errors.New("\x1b[31m.yaml")), 2, "sallyport: \\x1b[31m.yaml\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			if code := report(&b, tt.err); code != tt.code || b.String() != tt.text {
				t.Errorf("got %d %q, want %d %q", code, b.String(), tt.code, tt.text)
			}
		})
	}
}
