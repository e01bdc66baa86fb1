package budget

// taken is what was granted and not handed back: the extra attempts that were sent in the last period, and those still to be sent,
// however long ago they were granted. Were an attempt dated at its grant, one that waits longer than the period would have left the
// window before it is sent, and its place would be taken twice. Nil is an account that nobody keeps: it takes anything and has none.
type taken struct {
	sent        series
	outstanding uint64 // granted, and neither sent nor handed back
}

func (t *taken) grant() {
	if t != nil {
		t.outstanding++
	}
}

func (t *taken) spend(now instant) {
	if t == nil {
		return
	}
	t.handBack()
	t.sent.add(now, false)
}

// handBack stops at none: a copied token that was ended twice must not come round to many.
func (t *taken) handBack() {
	if t != nil && t.outstanding > 0 {
		t.outstanding--
	}
}

// count is how many count against a limit at an instant; see series.count.
func (t *taken) count(now instant, tie bool) uint64 {
	if t == nil {
		return 0
	}
	return t.sent.count(now, tie) + t.outstanding
}

// kept is how many are in all steps, the one that is leaving included, and still to be sent.
func (t *taken) kept(tick int64) uint64 {
	if t == nil {
		return 0
	}
	return t.sent.kept(tick) + t.outstanding
}

// leaving is how many leave with the step kept at a place. Those still to be sent go with the newest, as if they were sent now: nobody
// knows when they will be, and it is the earliest they can leave.
func (t *taken) leaving(p int, newest bool) uint64 {
	if t == nil {
		return 0
	}
	n := uint64(t.sent.counts[p])
	if newest {
		n += t.outstanding
	}
	return n
}

// mark is the offset at which those of the step kept at a place leave, see leaving.
func (t *taken) mark(p int, newest bool, now instant) uint32 {
	if newest && t.outstanding > 0 {
		return now.offset
	}
	return t.sent.marks[p]
}
