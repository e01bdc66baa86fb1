// Command promql says what expressions of PromQL select. It is how a test knows that the dashboard and the alerts in deploy/ ask for what
// the broker has: the parser is Prometheus's own.
//
// It reads a JSON array of expressions from standard input and writes one of [Read] to standard output.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

// Read is what an expression asks for.
type Read struct {
	// Error is why it is none; "" where it is one.
	Error string `json:"error,omitempty"`
	// Metrics are what it selects, by name: with the labels it matches.
	Metrics map[string][]string `json:"metrics"`
	// Labels are those it groups and joins by.
	Labels []string `json:"labels"`
}

func main() {
	var expressions []string
	if err := json.NewDecoder(os.Stdin).Decode(&expressions); err != nil {
		log.Fatal(err)
	}
	all := make([]Read, len(expressions))
	for i, text := range expressions {
		all[i] = read(text)
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		log.Fatal(err)
	}
}

func read(text string) Read {
	r := Read{Metrics: map[string][]string{}, Labels: []string{}}
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			labels := r.Metrics[n.Name]
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" {
					labels = append(labels, m.Name)
				}
			}
			r.Metrics[n.Name] = labels
		case *parser.AggregateExpr:
			r.Labels = append(r.Labels, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				r.Labels = append(append(r.Labels, n.VectorMatching.MatchingLabels...), n.VectorMatching.Include...)
			}
		}
		return nil
	})
	return r
}
