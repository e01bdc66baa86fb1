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
	// Killed are the calls whose broker was killed at a step, by "step, mode".
	Killed map[string]int
}

// Deferred checks the deferred calls of a history.
func Deferred(h *history.History) ([]Violation, DeferredCounts) {
	c := &checker{stops: h.Stops}
	n := DeferredCounts{ByState: map[string]int{}, Killed: map[string]int{}}
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
		t.count(&n)
		c.kept(t)
		c.once(t)
		c.orphans(t)
		c.flag(t)
		c.oneKey(t)
		c.ending(t)
		c.stays(t)
		c.cell(t)
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
	for i := len(t.sights) - 1; i >= 0; i-- {
		if t.sights[i].Code == history.OK {
			return t.sights[i], true
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

func (t *tale) count(n *DeferredCounts) {
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
	if t.call.Step != "" {
		n.Killed[fmt.Sprintf("%s, %s", t.call.Step, t.call.Mode.Name)]++
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
	for _, both := range []struct{ to, from *map[string]int }{{&n.ByState, &o.ByState}, {&n.Killed, &o.Killed}} {
		if *both.to == nil {
			*both.to = map[string]int{}
		}
		for k, v := range *both.from {
			(*both.to)[k] += v
		}
	}
}
