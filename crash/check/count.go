package check

import (
	"slices"

	"github.com/sallyport/sallyport/crash/history"
)

// Counts say how much happened, so that nobody trusts a history in which nothing did.
type Counts struct {
	Operations, Asks, Readings, Arrivals int
	Kills, Ends                          int
	// Effects of all operations; Duplicates: those beyond the first of operations that are no PUT, Repeats: of PUTs.
	Effects, Duplicates, Repeats int
	// Replays, Conflicts: asks that were told so. Lost: those that ended in an error which proves nothing.
	Replays, Conflicts, Lost int
	// Unknown are operations that must not be repeated whose effect a caller did not learn, and Settled those that had a definitive
	// answer later. Late: the request was still under way then, so that an answer could come; LateSettled: and it came. Cut: it was
	// under way, and the broker was killed before it could come.
	Unknown, Settled, Late, LateSettled, Cut int
	// Forgotten are successes that were told before a kill and not known after it.
	Forgotten int
}

// Add sums two.
func (c *Counts) Add(o Counts) {
	c.Operations += o.Operations
	c.Asks += o.Asks
	c.Readings += o.Readings
	c.Arrivals += o.Arrivals
	c.Kills += o.Kills
	c.Ends += o.Ends
	c.Effects += o.Effects
	c.Duplicates += o.Duplicates
	c.Repeats += o.Repeats
	c.Replays += o.Replays
	c.Conflicts += o.Conflicts
	c.Lost += o.Lost
	c.Unknown += o.Unknown
	c.Settled += o.Settled
	c.Late += o.Late
	c.LateSettled += o.LateSettled
	c.Cut += o.Cut
	c.Forgotten += o.Forgotten
}

func count(h *history.History, stories []*story) Counts {
	c := Counts{Operations: len(h.Operations), Asks: len(h.Asks), Readings: len(h.Readings), Arrivals: len(h.Arrivals)}
	for _, s := range h.Stops {
		if s.Killed {
			c.Kills++
		} else {
			c.Ends++
		}
	}
	kills := &checker{stops: h.Stops}
	for _, s := range stories {
		n := len(s.committed())
		c.Effects += n
		if s.put() {
			c.Repeats += max(0, n-1)
		} else {
			c.Duplicates += max(0, n-1)
		}
		for i := range s.asks {
			switch a := &s.asks[i]; {
			case a.Code != history.OK && !a.NothingSent:
				c.Lost++
			case a.Replayed:
				c.Replays++
			case a.Outcome == conflict:
				c.Conflicts++
			}
		}
		c.unknown(s, kills)
		c.forgotten(s)
	}
	return c
}

// unknown counts what became of an operation whose caller did not learn its effect.
func (c *Counts) unknown(s *story, kills *checker) {
	if !s.Identified || !s.Route.MustNotRepeat() {
		return
	}
	told := s.firstUnknown()
	if told == nil {
		return
	}
	c.Unknown++
	settled := slices.ContainsFunc(s.readings, func(r history.Reading) bool {
		return r.Start > told.End && r.Code == history.OK && r.Effect == "ANSWERED"
	}) || slices.ContainsFunc(s.asks, func(a history.Ask) bool {
		return a.Start > told.End && a.Code == history.OK && a.Effect == "ANSWERED" && a.Outcome != conflict
	})
	if settled {
		c.Settled++
	}
	underWay := slices.ContainsFunc(s.arrivals, func(x history.Arrival) bool {
		return x.Trace == told.Trace && x.End > told.End && !kills.killedWithin(x.At, told.End)
	})
	if !underWay {
		return
	}
	c.Late++
	switch {
	case settled:
		c.LateSettled++
	case kills.killedWithin(told.End, told.End+history.AttemptTimeout):
		c.Cut++
	}
}

// firstUnknown is the first ask that led, and was told UNKNOWN, or whose caller went away without having been told.
func (s *story) firstUnknown() *history.Ask {
	for i := range s.asks {
		a := &s.asks[i]
		gone := a.Code == "CANCELLED" || a.Code == "DEADLINE_EXCEEDED"
		if s.from(a) > 0 && (gone || a.Code == history.OK && a.Effect == "UNKNOWN") {
			return a
		}
	}
	return nil
}

// forgotten counts an operation whose success was told and later is not known.
func (c *Counts) forgotten(s *story) {
	first := s.firstSuccess()
	if first == nil || !s.Identified {
		return
	}
	for i := range s.asks {
		a := &s.asks[i]
		if a.Start > first.End && a.Other == first.Other && !ranOut(a) && a.Outcome != success {
			c.Forgotten++
			return
		}
	}
}
