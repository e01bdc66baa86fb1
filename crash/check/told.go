package check

import (
	"github.com/sallyport/sallyport/crash/history"
)

// ran out of its own time before it could learn anything.
func ranOut(a *history.Ask) bool {
	return a.Code != history.OK || a.Sends == 0 && (a.Outcome == "DEADLINE_EXCEEDED" || a.Outcome == "CANCELLED")
}

// held: what an ask was told keeps the id for its payload.
func (s *story) held(a *history.Ask) bool {
	switch {
	case a.Code != history.OK || a.Outcome == conflict:
		return false
	case a.Outcome == success:
		return true
	}
	// A probe may free it. A joiner whose time ran out knows nothing of how it ends.
	return s.Route.MustNotRepeat() && !s.Route.Probed && a.Effect == "UNKNOWN" && a.Outcome != "DEADLINE_EXCEEDED"
}

// answers: a success once told is told to whoever asks later. A kill may cost an operation that may be repeated its answer, and then it
// is made again; what must not be repeated falls back to UNKNOWN.
func (c *checker) answers(s *story) {
	if !s.Identified {
		return
	}
	first := s.firstSuccess()
	if first == nil {
		return
	}
	for i := range s.asks {
		a := &s.asks[i]
		if a.Start <= first.End || a.Other != first.Other || ranOut(a) {
			continue
		}
		forgotten := c.killedWithin(first.Start, a.End)
		switch {
		case a.Outcome != success:
			if !forgotten || a.Replayed && a.Effect != "UNKNOWN" {
				c.violationf(s, SameAnswer, "%s at %s, %s at %s", first.Outcome, at(first.End), a.Outcome, at(a.End))
			}
		case a.Status == first.Status && (a.Body == first.Body || s.bodyGone(a)):
		case s.put() && forgotten:
		default:
			c.violationf(s, SameAnswer, "%d %q at %s, %d %q at %s", first.Status, first.Body, at(first.End), a.Status, a.Body, at(a.End))
		}
	}
}

// firstSuccess is the first that was told.
func (s *story) firstSuccess() *history.Ask {
	var first *history.Ask
	for i := range s.asks {
		a := &s.asks[i]
		if a.Code == history.OK && a.Outcome == success && (first == nil || a.End < first.End) {
			first = a
		}
	}
	return first
}

// counted: no more arrived than was told.
func (c *checker) counted(s *story) {
	asked := map[string]bool{}
	for i := range s.asks {
		a := &s.asks[i]
		asked[a.Trace] = true
		most := history.MaxAttempts + 1 // whoever was told nothing
		switch {
		case a.NothingSent || a.Replayed:
			most = 0
		case a.Code == history.OK:
			most = a.Sends
		}
		if n := s.from(a); n > most {
			c.violationf(s, Counted, "%d arrived of the ask at %s, which was told of %d (%s %s)", n, at(a.Start), most, a.Code, a.Outcome)
		}
	}
	for _, x := range s.arrivals {
		if !asked[x.Trace] {
			c.violationf(s, Counted, "the request of %s belongs to no ask (trace %q)", at(x.At), x.Trace)
		}
	}
}

// conflicts: while the id is held for one payload, another one is refused.
func (c *checker) conflicts(s *story) {
	for i := range s.asks {
		for j := range s.asks {
			holder, a := &s.asks[i], &s.asks[j]
			if holder.Other == a.Other || a.Start <= holder.End || !s.held(holder) {
				continue
			}
			if !s.Route.MustNotRepeat() && c.killedWithin(holder.Start, a.End) {
				continue
			}
			if n := s.from(a); n > 0 {
				c.violationf(s, Conflict, "%d arrived of the ask at %s, the id was held at %s", n, at(a.Start), at(holder.End))
			}
			if a.Outcome != conflict && !ranOut(a) {
				c.violationf(s, Conflict, "%s at %s, the id was held at %s (%s)", a.Outcome, at(a.End), at(holder.End), holder.Outcome)
			}
			break
		}
	}
}

// end: when all is over every id has an answer.
func (c *checker) end(s *story) {
	if !s.Identified {
		return
	}
	for _, r := range s.readings {
		switch {
		case !r.Final:
		case r.Code == history.NotFound:
			if len(s.arrivals) > 0 && s.arrivals[0].At < r.Start && !s.put() {
				c.violationf(s, Settles, "GetOperation at %s: %s, and a request had arrived at %s", at(r.End), r.Code, at(s.arrivals[0].At))
			}
		case r.Code != history.OK:
			c.violationf(s, Settles, "GetOperation at %s: %s", at(r.End), r.Code)
		case r.State == "RUNNING":
			c.violationf(s, Settles, "GetOperation at %s: still running", at(r.End))
		}
	}
	for i := range s.asks {
		if a := &s.asks[i]; a.Final && a.Code != history.OK {
			c.violationf(s, Settles, "the last ask at %s: %s %s", at(a.End), a.Code, a.Detail)
		}
	}
}
