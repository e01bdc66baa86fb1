package breaker

// maxCallers is how many callers are told apart at a time.
const maxCallers = 8

// callers knows which callers had attempts counted in the window, and which of them were hurt, so that one caller's poisoned payload
// closes nobody else's door. It is bounded: when a ninth comes, the one leaves whose absence changes least, see [callers.worth].
type callers struct {
	seats [maxCallers]seat
	// streak numbers the rows of failures without a success in between, from 1: 0 is never.
	streak uint32
}

// seat is what is known of one caller. Buckets are numbers of the window's; 0 is never.
type seat struct {
	hash uint32
	// streak is the row of failures this caller last failed in.
	streak uint32
	// seen is the bucket of its last counted attempt, hurt that of its last failure or slow call.
	seen, hurt uint32
}

// note remembers a counted attempt of a caller.
func (c *callers) note(w *window, hash, bucket uint32, hurt, inStreak bool) {
	s := c.seat(w, hash)
	s.seen = bucket
	if hurt {
		s.hurt = bucket
	}
	if inStreak {
		s.streak = c.streak
	}
}

// seat finds the caller's seat, or gives it the one worth least.
func (c *callers) seat(w *window, hash uint32) *seat {
	for i := range c.seats {
		if c.seats[i].hash == hash && c.seats[i].seen != 0 {
			return &c.seats[i]
		}
	}
	least := 0
	for i := range c.seats {
		a, b := &c.seats[i], &c.seats[least]
		if va, vb := c.worth(w, a), c.worth(w, b); va < vb || va == vb && a.seen < b.seen {
			least = i
		}
	}
	c.seats[least] = seat{hash: hash}
	return &c.seats[least]
}

// worth orders seats by what the rules would lose: those who failed in this row last, then those hurt, then those active. So an
// active healthy caller is only forgotten while seven others are known, which is as many as any rule asks for.
func (c *callers) worth(w *window, s *seat) int {
	switch {
	case s.streak == c.streak:
		return 3
	case w.holds(s.hurt):
		return 2
	case w.holds(s.seen):
		return 1
	default:
		return 0
	}
}

// enough says whether failures came from enough callers: as many as asked for, or all that were active when fewer were.
func (c *callers) enough(w *window, least uint32, counts func(*seat) bool) bool {
	var active, failing uint32
	for i := range c.seats {
		s := &c.seats[i]
		if w.holds(s.seen) {
			active++
		}
		if counts(s) {
			failing++
		}
	}
	return failing >= min(least, maxCallers, active)
}

// failedInStreak says whether failures in a row came from enough callers.
func (c *callers) failedInStreak(w *window, least uint32) bool {
	return c.enough(w, least, func(s *seat) bool { return s.streak == c.streak })
}

// hurtInWindow says whether failures and slow calls in the window came from enough callers.
func (c *callers) hurtInWindow(w *window, least uint32) bool {
	return c.enough(w, least, func(s *seat) bool { return w.holds(s.hurt) })
}

// active is how many callers had attempts counted in the window, as far as they are told apart.
func (c *callers) active(w *window) int {
	n := 0
	for i := range c.seats {
		if w.holds(c.seats[i].seen) {
			n++
		}
	}
	return n
}

// hashCaller is FNV-1a, 32 bits: names of any length would make the memory of an origin anybody's. Two callers taken for one make
// the breaker a little slower to open, no more.
func hashCaller(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}
