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

// killsOfARound is how often a broker is killed at random before the next one begins with no data.
const killsOfARound = 50

// deferredCampaign runs the matrix, the random kills and the restart with many that wait, and tells of each. What one finds does not end it.
func deferredCampaign(ctx context.Context, o *options, out io.Writer) error {
	_, _ = fmt.Fprintf(out, "seed %d, deferred calls: %d kills in each of %d cells, %d random ones, %d waiting\n", o.seed, o.cell, len(cells()), o.random, o.waiting)
	var found []check.Violation
	var steps, random check.DeferredCounts
	run := func(name string, seed uint64, to *check.DeferredCounts, do func(*stage) error) error {
		began := time.Now()
		h, err := onStage(ctx, o, seed, out, do)
		if err != nil {
			return fmt.Errorf("%s, seed %d: %w", name, seed, err)
		}
		violations, counts := check.Deferred(&h)
		to.Add(&counts)
		found = append(found, violations...)
		_, _ = fmt.Fprintf(out, "%s, seed %d: %s, %d kills, %d calls, %d arrivals, %d violations\n", name, seed, time.Since(began).Round(time.Second),
			counts.Kills, counts.Calls, counts.Arrivals, len(violations))
		tellDeferred(out, o.stories, &h, violations)
		return nil
	}
	var err error
	if o.cell > 0 {
		err = run("matrix", o.seed, &steps, func(s *stage) error { return matrix(ctx, s, o.cell, out) })
	}
	for left, seed := o.random, o.seed+1; left > 0 && err == nil; left, seed = left-killsOfARound, seed+1 {
		err = run("random", seed, &random, func(s *stage) error { return randomly(ctx, s, min(left, killsOfARound)) })
	}
	if o.waiting > 0 && err == nil {
		_, err = onStage(ctx, o, o.seed, out, func(s *stage) error { return waiting(ctx, s, o.waiting, out) })
	}
	return errors.Join(err, deferredSummary(out, &steps, &random, found))
}

// onStage runs it in a directory of its own, and gives the history.
func onStage(ctx context.Context, o *options, seed uint64, out io.Writer, do func(*stage) error) (history.History, error) {
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		return history.History{}, fmt.Errorf("a place for the data: %w", err)
	}
	s, err := openStage(ctx, o.program, seed, dir)
	if err == nil {
		err = s.close(do(s))
	}
	if err != nil {
		return history.History{}, fmt.Errorf("%w (its files are in %s)", err, dir)
	}
	if o.keep {
		_, err = fmt.Fprintf(out, "seed %d: files in %s\n", seed, dir)
	} else {
		err = os.RemoveAll(dir)
	}
	return s.history.History(), err
}

func tellDeferred(out io.Writer, stories int, h *history.History, violations []check.Violation) {
	told := map[string]int{}
	for _, v := range violations {
		if told[v.Rule]++; told[v.Rule] <= stories {
			_, _ = fmt.Fprintf(out, "  %s\n%s", v, check.DeferredStory(h, v.Operation))
		}
	}
}

// deferredSummary is the table at the end: a line for each cell, one for the random kills.
func deferredSummary(out io.Writer, steps, random *check.DeferredCounts, found []check.Violation) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "killed\trepeatable\tkills\tcalls\tarrivals\tsent again\tflagged\tunknown\tlost\tviolations")
	for _, c := range cells() {
		if n, ok := steps.Cells[check.CellOf(c.step, c.repeatable)]; ok {
			row(w, string(c.step), c.repeatable, n.Calls/each, n)
		}
	}
	for _, repeatable := range []bool{true, false} {
		if n, ok := random.Cells[check.CellOf("", repeatable)]; ok {
			row(w, "at any moment", repeatable, random.Kills, n)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	_, _ = fmt.Fprintf(out, "kill -9: %d, SIGTERM: %d, calls: %d, submissions that got no answer: %d, violations: %d\n", steps.Kills+random.Kills,
		steps.Ends+random.Ends, steps.Calls+random.Calls, steps.Lost+random.Lost, len(found))
	if len(found) == 0 {
		return nil
	}
	rules := map[string]int{}
	for _, v := range found {
		rules[v.Rule]++
	}
	var names []string
	for rule, n := range rules {
		names = append(names, fmt.Sprintf("%s: %d", rule, n))
	}
	slices.Sort(names)
	return fmt.Errorf("%w: %s", errViolated, strings.Join(names, ", "))
}

func row(w io.Writer, killed string, repeatable bool, kills int, n check.CellCounts) {
	_, _ = fmt.Fprintf(w, "%s\t%t\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", killed, repeatable, kills, n.Calls, n.Arrivals, n.Again, n.Flags, n.Unknown, n.Lost, n.Violations)
}
