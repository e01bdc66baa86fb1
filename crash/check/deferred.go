package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// The rules of deferred calls, beside [KeyLife], [NotNone] and [Lives].
const (
	// Kept: what was accepted is there, under one name, and ends.
	Kept = "accepted and lost"
	// SentTwice: what must not be repeated arrives once, unless the upstream proved that it had done nothing.
	SentTwice = "sent twice"
	// Flagged: what may have happened twice says so.
	Flagged = "a duplicate without its flag"
	// OneACrash: a crash costs one attempt of a call at most, and what arrived was told.
	OneACrash = "more arrivals than attempts and crashes"
	// Parked: what must not be repeated and was not answered is UNKNOWN.
	Parked = "an unknown effect that is not parked"
	// TrueEnd: COMPLETED happened, and its answer is the upstream's; what FAILED and must not be repeated did not.
	TrueEnd = "an end that is not true"
	// StaysEnded: what is finished stays as it is, and the log of attempts only grows.
	StaysEnded = "it was finished, and changed"
	// Cell: a kill at a step has the outcome of that step.
	Cell = "not what follows from the step"
	// Listed: the list and the counts agree with what is told of each.
	Listed = "the list tells something else"
)

// DeferredCounts counts what there was.
type DeferredCounts struct {
	Kills, Ends, Calls, Acks, Lost, Arrivals, Effects int
	// Orphans are the attempts during which the broker ended; Duplicates effects beside the first of what is no GET or PUT; Flags the calls
	// that say that they may be duplicates.
	Orphans, Duplicates, Flags int
	// ByState are the calls by their last state.
	ByState map[string]int
	// Cells are the same by step and kind, see [CellOf].
	Cells map[string]CellCounts
}

// CellCounts counts the calls of one cell.
type CellCounts struct {
	// Calls, the Arrivals of their requests, those that came Again after another of their call, and the calls that are flagged, UNKNOWN, and
	// LOST: accepted and not there, or never finished. Violations of all rules.
	Calls, Arrivals, Again, Flags, Unknown, Lost, Violations int
}

// CellOf names a cell; the step is "" for any moment.
func CellOf(step history.Step, repeatable bool) string { return fmt.Sprintf("%s %t", step, repeatable) }

// Deferred checks the deferred calls of a history.
func Deferred(h *history.History) ([]Violation, DeferredCounts) {
	c := &checker{stops: h.Stops}
	n := DeferredCounts{ByState: map[string]int{}, Cells: map[string]CellCounts{}}
	for _, stop := range h.Stops {
		if stop.Killed {
			n.Kills++
		} else {
			n.Ends++
		}
		if stop.Wrong != "" {
			c.found = append(c.found, Violation{Lives, "", stop.Wrong})
		}
	}
	tales := gatherDeferred(h)
	for _, t := range tales {
		before := len(c.found)
		c.kept(t)
		c.once(t)
		c.orphans(t)
		c.flag(t)
		c.oneKey(t)
		c.ending(t)
		c.stays(t)
		c.cell(t)
		t.count(&n, c.found[before:])
	}
	for _, l := range h.Listings {
		c.listed(tales, l)
	}
	return c.found, n
}

// tale is what happened to one deferred call, each list by its start.
type tale struct {
	story

	call   history.Deferred
	acks   []history.Ack
	sights []history.Sight
}

// gatherDeferred sorts a history by call.
func gatherDeferred(h *history.History) []*tale {
	var tales []*tale
	byName := map[string]*tale{}
	of := func(name string) *tale {
		if t, ok := byName[name]; ok {
			return t
		}
		t := &tale{story: story{Operation: history.Operation{Name: name}}}
		byName[name] = t
		tales = append(tales, t)
		return t
	}
	for _, d := range h.Deferred {
		t := of(d.Name)
		t.call, t.Route = d, d.Mode.Route
	}
	for _, a := range h.Acks {
		of(a.Operation).acks = append(of(a.Operation).acks, a)
	}
	for i := range h.Sights {
		t := of(h.Sights[i].Operation)
		t.sights = append(t.sights, h.Sights[i])
	}
	for _, a := range h.Arrivals {
		of(a.Operation).arrivals = append(of(a.Operation).arrivals, a)
	}
	for _, t := range tales {
		slices.SortFunc(t.acks, func(a, b history.Ack) int { return cmp.Compare(a.Start, b.Start) })
		slices.SortFunc(t.sights, func(a, b history.Sight) int { return cmp.Compare(a.Start, b.Start) })
		slices.SortFunc(t.arrivals, func(a, b history.Arrival) int { return cmp.Compare(a.At, b.At) })
	}
	return tales
}

// last is what was said last; false: nothing was.
func (t *tale) last() (history.Sight, bool) {
	for _, s := range slices.Backward(t.sights) {
		if s.Code == history.OK {
			return s, true
		}
	}
	return history.Sight{}, false
}

// accepted is when it was acknowledged first; false: it never was.
func (t *tale) accepted() (time.Duration, bool) {
	for _, a := range t.acks {
		if a.Code == history.OK {
			return a.End, true
		}
	}
	return 0, false
}

func (t *tale) count(n *DeferredCounts, found []Violation) {
	t.countCell(n, found)
	n.Calls++
	for _, a := range t.acks {
		if a.Code == history.OK {
			n.Acks++
		} else {
			n.Lost++
		}
	}
	done := len(t.committed())
	n.Arrivals, n.Effects = n.Arrivals+len(t.arrivals), n.Effects+done
	if t.Route.Method == "POST" && done > 1 {
		n.Duplicates += done - 1
	}
	s, ok := t.last()
	if !ok {
		return
	}
	n.ByState[s.State]++
	if s.PossibleDuplicate {
		n.Flags++
	}
	n.Orphans += orphans(&s)
}

func (t *tale) countCell(n *DeferredCounts, found []Violation) {
	name := CellOf(t.call.Step, t.call.Mode.Repeatable)
	one := CellCounts{Calls: 1, Arrivals: len(t.arrivals), Again: max(0, len(t.arrivals)-1), Violations: len(found)}
	if s, ok := t.last(); ok {
		one.Flags, one.Unknown = ones(s.PossibleDuplicate), ones(s.State == stateUnknown)
	}
	one.Lost = ones(slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == Kept }))
	n.Cells[name] = n.Cells[name].plus(one)
}

func ones(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (c CellCounts) plus(o CellCounts) CellCounts {
	return CellCounts{
		c.Calls + o.Calls, c.Arrivals + o.Arrivals, c.Again + o.Again, c.Flags + o.Flags, c.Unknown + o.Unknown, c.Lost + o.Lost, c.Violations + o.Violations,
	}
}

func orphans(s *history.Sight) int {
	n := 0
	for _, a := range s.Attempts {
		if a.Orphaned {
			n++
		}
	}
	return n
}

// Add adds those of another history.
func (n *DeferredCounts) Add(o *DeferredCounts) {
	n.Kills, n.Ends, n.Calls, n.Acks, n.Lost = n.Kills+o.Kills, n.Ends+o.Ends, n.Calls+o.Calls, n.Acks+o.Acks, n.Lost+o.Lost
	n.Arrivals, n.Effects, n.Orphans = n.Arrivals+o.Arrivals, n.Effects+o.Effects, n.Orphans+o.Orphans
	n.Duplicates, n.Flags = n.Duplicates+o.Duplicates, n.Flags+o.Flags
	if n.ByState == nil {
		n.ByState, n.Cells = map[string]int{}, map[string]CellCounts{}
	}
	for k, v := range o.ByState {
		n.ByState[k] += v
	}
	for k, v := range o.Cells {
		n.Cells[k] = n.Cells[k].plus(v)
	}
}

// DeferredStory is the whole history of one call, a line for everything that happened, for a person.
func DeferredStory(h *history.History, operation string) string {
	var l lines
	for _, t := range gatherDeferred(h) {
		if t.Name != operation || t.Name == "" {
			continue
		}
		l.tell(&t.story)
		for _, a := range t.acks {
			l.addf(a.Start, "submit, %s %s", t.call.Mode.Name, t.call.Mode.Delivery)
			l.addf(a.End, "submit: %s %s", a.Code, a.ID)
		}
		for i := range t.sights {
			s := &t.sights[i]
			l.addf(s.End, "looked at: %s %s %s, effect %s, %s, status %d, possible duplicate %t, attempts %+v", s.Code, s.State, s.Failure, s.Effect, s.Reason,
				s.Status, s.PossibleDuplicate, s.Attempts)
		}
	}
	return l.withStops(h)
}
