package check

import (
	"maps"
	"slices"

	"github.com/sallyport/sallyport/crash/history"
)

// The states of the contract that are looked at.
const (
	stateCompleted = "COMPLETED"
	stateFailed    = "FAILED"
	stateUnknown   = "UNKNOWN"
	stateCancelled = "CANCELLED"
)

var finished = []string{stateCompleted, stateFailed, stateUnknown, stateCancelled}

// kept: it is there whenever it is asked for after it was acknowledged, bears one name, and is finished in the end.
func (c *checker) kept(t *tale) {
	at0, ok := t.accepted()
	if !ok {
		if len(t.arrivals) > 0 && t.call.Name == "" {
			c.violationf(&t.story, Kept, "%d requests arrived of what nobody submitted", len(t.arrivals))
		} else {
			c.violationf(&t.story, Kept, "it was never acknowledged, however often it was submitted")
		}
		return
	}
	names := map[string]bool{}
	for _, a := range t.acks {
		if a.Code == history.OK {
			names[a.ID] = true
		}
	}
	if len(names) > 1 {
		c.violationf(&t.story, Kept, "one operation id, %d deferred calls: %q", len(names), slices.Sorted(maps.Keys(names)))
	}
	for _, s := range t.sights {
		if s.Code == history.NotFound && s.Start > at0 {
			c.violationf(&t.story, Kept, "acknowledged at %s, not found at %s", at(at0), at(s.End))
			return
		}
	}
	if s, ok := t.last(); !ok || !slices.Contains(finished, s.State) {
		c.violationf(&t.story, Kept, "it never ended: %q", s.State)
	}
}

// once: what must not be repeated arrives again only after a proof, or a refusal by which nothing had happened.
func (c *checker) once(t *tale) {
	if t.call.Mode.Repeatable {
		return
	}
	for i := 1; i < len(t.arrivals); i++ {
		if before := &t.arrivals[i-1]; !t.harmless(before) {
			c.violationf(&t.story, SentTwice, "a request arrived at %s after one at %s that may have been applied (%s)", at(t.arrivals[i].At), at(before.At), before.Script)
		}
	}
}

// orphans: each is of an end of the broker of its own, and nothing arrived that was not told.
func (c *checker) orphans(t *tale) {
	s, ok := t.last()
	if !ok || !s.Final {
		return
	}
	ends, sent := 0, 0
	for _, stop := range c.stops {
		if len(t.acks) > 0 && stop.At >= t.acks[0].Start && stop.At <= s.End {
			ends++
		}
	}
	for _, a := range s.Attempts {
		if a.Sent {
			sent++
		}
	}
	if n := orphans(&s); n > ends {
		c.violationf(&t.story, OneACrash, "%d attempts were cut by the end of the broker, which ended %d times", n, ends)
	}
	if len(t.arrivals) > sent {
		c.violationf(&t.story, OneACrash, "%d arrivals, %d attempts are told", len(t.arrivals), sent)
	}
}

// flag: who reads the call is told that it may have happened twice.
func (c *checker) flag(t *tale) {
	s, ok := t.last()
	if !ok || s.PossibleDuplicate {
		return
	}
	for i := range t.arrivals {
		if a := &t.arrivals[i]; a.Status == 0 && i < len(t.arrivals)-1 && t.Route.Method != "GET" {
			c.violationf(&t.story, Flagged, "the answer to the request at %s was lost (%s), and it was sent again", at(a.At), a.Script)
			return
		}
	}
	for i, a := range s.Attempts {
		if a.Orphaned && slices.ContainsFunc(s.Attempts[i+1:], func(b history.Attempt) bool { return b.Sent }) {
			c.violationf(&t.story, Flagged, "attempt %d was cut by the end of the broker, and another was sent", i+1)
			return
		}
	}
}

// oneKey: repeats of a POST bear one key.
func (c *checker) oneKey(t *tale) {
	if !t.call.Mode.OneKey {
		return
	}
	names := map[string]bool{}
	for _, a := range t.arrivals {
		names[a.Key] = true
	}
	if len(names) > 1 || names[""] {
		c.violationf(&t.story, KeyLife, "keys %q, want one", slices.Sorted(maps.Keys(names)))
	}
}

// ending: what is told in the end is what happened.
func (c *checker) ending(t *tale) {
	s, ok := t.last()
	if !ok {
		return
	}
	done := t.committed()
	if s.Effect == "NONE" && len(done) > 0 && t.Route.Method != "GET" {
		c.violationf(&t.story, NotNone, "%s with no effect, and there were %d", s.State, len(done))
	}
	if s.State == stateCompleted && !slices.ContainsFunc(done, func(a history.Arrival) bool { return a.Committed <= s.End && a.Answer == s.Body }) {
		c.violationf(&t.story, TrueEnd, "COMPLETED with %d %q, of which no effect gives that answer", s.Status, s.Body)
	}
	if t.call.Mode.Repeatable {
		if s.State == stateUnknown {
			c.violationf(&t.story, Parked, "it may be repeated, and is parked: %s", s.Reason)
		}
		return
	}
	if s.State == stateFailed && len(done) > 0 {
		c.violationf(&t.story, TrueEnd, "FAILED (%s, %s), and it happened", s.Failure, s.Reason)
	}
	if len(t.arrivals) == 0 || s.State == stateCompleted || s.State == stateUnknown || s.State == stateCancelled && t.call.Cancelled && s.Effect == "UNKNOWN" {
		return
	}
	if a := t.arrivals[len(t.arrivals)-1]; a.Status == 0 || a.Status != s.Status {
		c.violationf(&t.story, Parked, "%s with status %d; the request at %s was answered with %d (%s)", s.State, s.Status, at(a.At), a.Status, a.Script)
	}
}

// stays: nobody is told less later.
func (c *checker) stays(t *tale) {
	for i := 1; i < len(t.sights); i++ {
		a, b := &t.sights[i-1], &t.sights[i]
		if a.Code != history.OK || b.Code != history.OK || b.Start < a.End {
			continue
		}
		if slices.Contains(finished, a.State) && b.State != a.State || len(b.Attempts) < len(a.Attempts) {
			c.violationf(&t.story, StaysEnded, "%s with %d attempts at %s, then %s with %d at %s", a.State, len(a.Attempts), at(a.End), b.State, len(b.Attempts), at(b.End))
			return
		}
	}
}

// fate is what follows from a kill at a step.
type fate struct {
	state     string
	least     int // arrivals
	most      int
	attempts  int // that were sent, as told
	duplicate bool
}

// cell: the kill hit its step, and had what follows from that.
func (c *checker) cell(t *tale) {
	s, ok := t.last()
	if !ok || t.call.Step == "" {
		return
	}
	var want fate
	again := t.call.Mode.Repeatable
	switch step := t.call.Step; {
	case step == history.Accepted, step == history.Claimed, step == history.Committed:
		want = fate{stateCompleted, 1, 1, 1, false}
	case step == history.Intended && again:
		want = fate{stateCompleted, 1, 1, 2, true}
	case step == history.Intended:
		want = fate{stateUnknown, 0, 0, 1, false}
	case step == history.FirstByte && again: // the rest of it may have come, or not
		want = fate{stateCompleted, 1, 2, 2, true}
	case step == history.FirstByte:
		want = fate{stateUnknown, 0, 1, 1, false}
	case again:
		want = fate{stateCompleted, 2, 2, 2, true}
	default:
		want = fate{stateUnknown, 1, 1, 1, false}
	}
	sent := 0
	for _, a := range s.Attempts {
		if a.Sent {
			sent++
		}
	}
	if s.State != want.state || len(t.arrivals) < want.least || len(t.arrivals) > want.most || sent != want.attempts || s.PossibleDuplicate != want.duplicate {
		c.violationf(&t.story, Cell, "killed %s: %s, %d arrivals, %d attempts, possible duplicate %t; want %s, %d to %d, %d, %t", t.call.Step,
			s.State, len(t.arrivals), sent, s.PossibleDuplicate, want.state, want.least, want.most, want.attempts, want.duplicate)
	}
}

// listed: the list has each once, as it is, and the counts are those.
func (c *checker) listed(tales []*tale, l history.Listing) {
	states := map[string]string{}
	counts := map[string]int{}
	for _, t := range tales {
		if s, ok := t.last(); ok {
			states[t.Name] = s.State
			counts[s.State]++
		}
	}
	for name, state := range states {
		if l.States[name] != state {
			c.found = append(c.found, Violation{Listed, name, "it is " + state + ", and listed as " + l.States[name]})
		}
	}
	if len(l.States) > len(states) {
		c.found = append(c.found, Violation{Listed, "", "there are calls that nobody submitted"})
	}
	told := maps.Clone(l.Counts)
	maps.DeleteFunc(told, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(told, counts) {
		c.found = append(c.found, Violation{Listed, "", "the counts are not those of the calls"})
	}
}
