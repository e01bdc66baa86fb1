// Package check reads a history and says what in it must not be. It shares no code with the broker: it knows what callers asked and were
// told, what the upstream saw and did, and when the broker was killed.
//
// What it knows of who led is the trace: every ask begins one, and what arrives because of it bears it. Two instants are compared only
// where the order is certain: an ask that started after another had ended, a request that had arrived before an ask started.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// Violation is one thing that must not be.
type Violation struct {
	// Rule is its name, the same for all of its kind.
	Rule string
	// Operation it happened to; "": to the broker.
	Operation string
	// What happened, for a person.
	What string
}

func (v Violation) String() string {
	if v.Operation == "" {
		return v.Rule + ": " + v.What
	}
	return fmt.Sprintf("%s: %s: %s", v.Operation, v.Rule, v.What)
}

// The rules.
const (
	// OneEffect: an operation that is no PUT has at most one effect, whatever its callers did.
	OneEffect = "one effect"
	// NoProof: what must not be repeated is not sent again unless the upstream proved that it did nothing.
	NoProof = "sent again without proof"
	// KeyLife: a keyed operation bears one key, and is not sent when the upstream may have forgotten it.
	KeyLife = "key"
	// NotNone: nobody is told that there was no effect when there was, or will be, from a request that had arrived.
	NotNone = "told NONE, and it happened"
	// NotRefused: nor that the upstream refused.
	NotRefused = "told a refusal, and it happened"
	// TrueSuccess: a success has happened, and its answer is that of an effect.
	TrueSuccess = "told a success that is none"
	// SameAnswer: an answer once told is told again, and no other.
	SameAnswer = "told something else later"
	// Counted: what arrived was told, and nothing arrives from an ask that says so.
	Counted = "arrivals that nobody was told of"
	// Conflict: an id with another payload is a conflict, and nothing is sent.
	Conflict = "another payload under its id"
	// Settles: in the end every id has an answer, and none is forgotten.
	Settles = "no answer in the end"
	// Lives: the broker ends and panics only when it is told to.
	Lives = "the broker"
)

// Report is what a check found.
type Report struct {
	Violations []Violation
	Counts     Counts
}

// History checks one.
func History(h *history.History) Report {
	c := &checker{stops: h.Stops}
	stories := gather(h)
	for _, s := range stories {
		c.effects(s)
		c.proof(s)
		c.keys(s)
		c.claims(s)
		c.successes(s)
		c.answers(s)
		c.counted(s)
		c.conflicts(s)
		c.end(s)
	}
	for _, stop := range h.Stops {
		if stop.Wrong != "" {
			c.found = append(c.found, Violation{Lives, "", stop.Wrong})
		}
	}
	return Report{Violations: c.found, Counts: count(h, stories)}
}

// checker collects what it finds.
type checker struct {
	stops []history.Stop
	found []Violation
}

func (c *checker) violationf(s *story, rule, format string, args ...any) {
	c.found = append(c.found, Violation{rule, s.Name, fmt.Sprintf(format, args...)})
}

// killedWithin: a kill may have cost what was not yet written.
func (c *checker) killedWithin(from, to time.Duration) bool {
	return slices.ContainsFunc(c.stops, func(s history.Stop) bool { return s.Killed && s.At <= to && s.Back >= from })
}

// story is what happened to one operation, each list by its start.
type story struct {
	history.Operation

	asks     []history.Ask
	readings []history.Reading
	arrivals []history.Arrival
}

// gather sorts a history by operation.
func gather(h *history.History) []*story {
	stories := make([]*story, 0, len(h.Operations))
	byName := make(map[string]*story, len(h.Operations))
	of := func(name string) *story {
		if s, ok := byName[name]; ok {
			return s
		}
		// Nobody asked for it: whatever it did is too much.
		s := &story{Operation: history.Operation{Name: name}}
		byName[name] = s
		stories = append(stories, s)
		return s
	}
	for _, o := range h.Operations {
		of(o.Name).Operation = o
	}
	for _, a := range h.Asks {
		of(a.Operation).asks = append(of(a.Operation).asks, a)
	}
	for _, r := range h.Readings {
		of(r.Operation).readings = append(of(r.Operation).readings, r)
	}
	for _, a := range h.Arrivals {
		of(a.Operation).arrivals = append(of(a.Operation).arrivals, a)
	}
	for _, s := range stories {
		slices.SortFunc(s.asks, func(a, b history.Ask) int { return cmp.Compare(a.Start, b.Start) })
		slices.SortFunc(s.readings, func(a, b history.Reading) int { return cmp.Compare(a.Start, b.Start) })
		slices.SortFunc(s.arrivals, func(a, b history.Arrival) int { return cmp.Compare(a.At, b.At) })
	}
	return stories
}

// committed are the arrivals that had an effect.
func (s *story) committed() []history.Arrival {
	var out []history.Arrival
	for _, a := range s.arrivals {
		if a.Committed > 0 {
			out = append(out, a)
		}
	}
	return out
}

// from are the arrivals that an ask led.
func (s *story) from(a *history.Ask) int {
	n := 0
	for i := range s.arrivals {
		if s.arrivals[i].Trace == a.Trace {
			n++
		}
	}
	return n
}
