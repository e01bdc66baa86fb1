package check

import "github.com/sallyport/sallyport/crash/history"

// Counts say how much happened, so that nobody trusts a history in which nothing did.
type Counts struct {
	Operations, Asks, Readings, Arrivals int
	Kills, Ends                          int
	// Effects of all operations; Duplicates: those beyond the first of operations that are no PUT, Repeats: of PUTs.
	Effects, Duplicates, Repeats int
	// Replays, Conflicts: asks that were told so. Lost: those that ended in an error which proves nothing.
	Replays, Conflicts, Lost int
	// Unknown are operations that must not be repeated of which a caller was told UNKNOWN; Settled those that had a definitive
	// answer later. Cut: the broker was killed before the late answer could come.
	Unknown, Settled, Cut int
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

// unknown counts what became of an operation whose caller was told UNKNOWN.
func (c *Counts) unknown(s *story, kills *checker) {
	if !s.Identified || !s.Route.MustNotRepeat() {
		return
	}
	for i := range s.asks {
		told := &s.asks[i]
		if told.Code != history.OK || told.Effect != "UNKNOWN" {
			continue
		}
		c.Unknown++
		settled := false
		for _, r := range s.readings {
			settled = settled || r.Start > told.End && r.Code == history.OK && r.Effect == "ANSWERED"
		}
		for j := range s.asks {
			a := &s.asks[j]
			settled = settled || a.Start > told.End && a.Code == history.OK && a.Effect == "ANSWERED" && a.Outcome != conflict
		}
		switch {
		case settled:
			c.Settled++
		case kills.killedWithin(told.Start, told.End+history.AttemptTimeout):
			c.Cut++
		}
		return
	}
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
