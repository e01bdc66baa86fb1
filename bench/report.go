package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// report writes the figures in Markdown: for each cell the median over the rounds, then what the broker needs of what bare needs,
// round by round.
func report(o *options, results map[cell][]sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %s. %d rounds of %s, interleaved in random order; %d gRPC connections, answers of %d bytes. Medians over the rounds.\n\n",
		time.Now().UTC().Format(time.DateOnly), machine(), o.rounds, o.length, connections, answerBytes)
	b.WriteString("The brokers export one trace in a hundred. In the open loop a call's latency counts from the moment at which it was due.\n\n")
	b.WriteString("| upstream | load | server | calls/s | CPU s per 100 000 calls | p50 | p99 | allocations per call | bytes per call |\n")
	b.WriteString("|---|---|---|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range o.inOrder() {
		s := results[c]
		fmt.Fprintf(&b, "| %s | %s | %s | %.0f | %.2f | %s | %s | %.0f | %.0f |\n", c.scheme, c.pressure(), c.variant,
			median(s, (*sample).rate), median(s, (*sample).cpuPer100k),
			millis(median(s, quantileOf(0.50))), millis(median(s, quantileOf(0.99))),
			median(s, (*sample).mallocsPerCall), median(s, (*sample).bytesPerCall))
	}
	b.WriteString("\n| of bare | upstream | load | CPU, median (range) | calls/s | p50 | p99 | allocations |\n|---|---|---|---:|---:|---:|---:|---:|\n")
	for _, c := range o.inOrder() {
		if c.variant == roleBare {
			continue
		}
		beside := c
		beside.variant = roleBare
		broker, bare := results[c], results[beside]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", c.variant, c.scheme, c.pressure(),
			ratio(broker, bare, (*sample).cpuPer100k), ratio(broker, bare, (*sample).rate),
			ratio(broker, bare, quantileOf(0.50)), ratio(broker, bare, quantileOf(0.99)), ratio(broker, bare, (*sample).mallocsPerCall))
	}
	return b.String()
}

// inOrder lists the cells as a reader compares them.
func (o *options) inOrder() []cell {
	var all []cell
	for _, scheme := range o.schemes {
		for _, variant := range variants {
			for _, n := range o.concurrency {
				all = append(all, cell{variant: variant, scheme: scheme, concurrency: n})
			}
			if o.rate > 0 && scheme == "http" {
				all = append(all, cell{variant: variant, scheme: scheme, rate: o.rate})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.scheme, b.scheme), cmp.Compare(a.rate, b.rate), cmp.Compare(a.concurrency, b.concurrency))
	})
	return all
}

func quantileOf(q float64) func(*sample) float64 {
	return func(s *sample) float64 { return s.quantile(q).Seconds() }
}

func millis(seconds float64) string { return fmt.Sprintf("%.1f ms", seconds*1e3) }

func median(samples []sample, figure func(*sample) float64) float64 {
	values := make([]float64, len(samples))
	for i := range samples {
		values[i] = figure(&samples[i])
	}
	return middle(values)
}

// ratio compares round by round: two cells of one round saw the same machine, more or less.
func ratio(a, b []sample, figure func(*sample) float64) string {
	values := make([]float64, len(a))
	for i := range a {
		values[i] = figure(&a[i]) / figure(&b[i])
	}
	m := middle(values)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", m, slices.Min(values), slices.Max(values))
}

func middle(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}
