package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sallyport/sallyport/crash/check"
	"github.com/sallyport/sallyport/crash/history"
)

// errViolated: the broker broke a promise.
var errViolated = errors.New("the history holds what must not be")

// campaign runs the rounds, tells of each, and of all of them at the end.
func campaign(ctx context.Context, o *options, out io.Writer) error {
	_, _ = fmt.Fprintf(out, "seed %d, %d rounds of %d operations\n", o.seed, o.rounds, o.operations)
	var all check.Counts
	rules := map[string]int{}
	for i := range o.rounds {
		seed := o.seed + uint64(i)
		began := time.Now()
		h, err := once(ctx, o, seed, out)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		report := check.History(&h)
		all.Add(report.Counts)
		c := report.Counts
		_, _ = fmt.Fprintf(out, "%d/%d  seed %d: %s, %d kills, %d ends, %d operations, %d asks, %d arrivals, %d effects, %d violations\n", i+1, o.rounds,
			seed, time.Since(began).Round(time.Second), c.Kills, c.Ends, c.Operations, c.Asks, c.Arrivals, c.Effects, len(report.Violations))
		tell(out, o.stories, &h, report.Violations)
		for _, v := range report.Violations {
			rules[v.Rule]++
		}
	}
	return summary(out, o, &all, rules)
}

// tell prints violations, the first of each rule with all that happened to its operation.
func tell(out io.Writer, stories int, h *history.History, violations []check.Violation) {
	told := map[string]int{}
	for _, v := range violations {
		told[v.Rule]++
		if told[v.Rule] > stories {
			continue
		}
		_, _ = fmt.Fprintf(out, "  %s\n%s", v, check.Story(h, v.Operation))
	}
}

// summary is the table at the end.
func summary(out io.Writer, o *options, c *check.Counts, rules map[string]int) error {
	total := 0
	var names []string
	for rule, n := range rules {
		total += n
		names = append(names, fmt.Sprintf("%s: %d", rule, n))
	}
	slices.Sort(names)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range []struct {
		name  string
		value any
	}{
		{"rounds", o.rounds},
		{"kill -9", c.Kills},
		{"SIGTERM", c.Ends},
		{"operations", c.Operations},
		{"asks", c.Asks},
		{"  replayed", c.Replays},
		{"  conflicts", c.Conflicts},
		{"  lost on the way", c.Lost},
		{"readings", c.Readings},
		{"arrivals upstream", c.Arrivals},
		{"effects", c.Effects},
		{"  duplicates", c.Duplicates},
		{"  repeated PUTs", c.Repeats},
		{"unknowns (must not be repeated)", c.Unknown},
		{"  settled themselves", share(c.Settled, c.Unknown)},
		{"  under way when the caller's time was over", share(c.Late, c.Unknown)},
		{"    of these settled by the late answer", share(c.LateSettled, c.Late)},
		{"    of these cut off by a kill", share(c.Cut, c.Late)},
		{"successes forgotten by a kill", c.Forgotten},
		{"violations", total},
	} {
		_, _ = fmt.Fprintf(w, "%s\t%v\n", row.name, row.value)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if total > 0 {
		return fmt.Errorf("%w: %s", errViolated, strings.Join(names, ", "))
	}
	return nil
}

func share(n, of int) string {
	if of == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%d %%)", n, 100*n/of)
}

// once runs a round in a directory of its own.
func once(ctx context.Context, o *options, seed uint64, out io.Writer) (history.History, error) {
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		return history.History{}, fmt.Errorf("a place for a round: %w", err)
	}
	h, err := round(ctx, o, seed, dir)
	if err != nil {
		return h, fmt.Errorf("%w (its files are in %s)", err, dir)
	}
	if o.keep {
		_, err = fmt.Fprintf(out, "seed %d: files in %s\n", seed, dir)
		return h, err //nolint:wrapcheck // of the terminal
	}
	if err := os.RemoveAll(dir); err != nil {
		return h, fmt.Errorf("end of a round: %w", err)
	}
	return h, nil
}
