package bulkhead_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/bulkhead"
)

// place is one waiter as the oracle knows it.
type place struct {
	w      *bulkhead.Waiter
	caller string
	level  int
}

// line is when a caller with somebody waiting was last served in a level, or came to it.
type line struct {
	caller string
	level  int
}

// model is the naive form: a flat list, searched anew each time. Next is the most critical level, there the caller whose turn lies
// back longest, and of that caller the one who came first.
type model struct {
	limit, inFlight, pending int
	waiting                  []place
	turn                     map[line]int
	clock                    int
}

func (m *model) join(p place) {
	m.clock++
	l := line{p.caller, p.level}
	if !slices.ContainsFunc(m.waiting, func(o place) bool { return o.caller == p.caller && o.level == p.level }) {
		m.turn[l] = m.clock
	}
	m.waiting = append(m.waiting, p)
}

func (m *model) next() (place, bool) {
	best := -1
	for i, p := range m.waiting {
		if best < 0 || p.level < m.waiting[best].level ||
			p.level == m.waiting[best].level && m.turn[line{p.caller, p.level}] < m.turn[line{m.waiting[best].caller, p.level}] {
			best = i
		}
	}
	if best < 0 || m.limit != 0 && m.inFlight >= m.limit {
		return place{}, false
	}
	p := m.waiting[best]
	m.waiting = slices.Delete(m.waiting, best, best+1)
	m.clock++
	m.turn[line{p.caller, p.level}] = m.clock
	m.inFlight++
	return p, true
}

// TestQueueFollowsTheOracle plays any sequence. After each step the same waiters are granted, no slot is lost or doubled, and the
// queue is within its bound.
func TestQueueFollowsTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 4).Draw(t, "limit")
		pending := rapid.IntRange(0, 12).Draw(t, "pending")
		b := bulkhead.New(limits(uint32(limit), uint32(pending)))
		m := &model{limit: limit, pending: pending, turn: map[line]int{}}
		var slots []bulkhead.Slot
		var granted []place // and not yet taken
		grant := func() {
			for {
				p, ok := m.next()
				if !ok {
					break
				}
				if !isGranted(p.w) {
					t.Fatalf("%s in level %d was not granted", p.caller, p.level)
				}
				granted = append(granted, p)
			}
			for _, p := range m.waiting {
				if isGranted(p.w) {
					t.Fatalf("%s in level %d was granted before its turn", p.caller, p.level)
				}
			}
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 10).Draw(t, "what") {
			default: // enter
				caller := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "caller")
				c := rapid.SampledFrom([]bulkhead.Criticality{bulkhead.Critical, bulkhead.Normal, bulkhead.Sheddable}).Draw(t, "criticality")
				level := int(c) - 1
				percent := []int{100, 90, 70}[level]
				slot, w, err := b.Enter(epoch, caller, c, long)
				switch {
				case m.limit == 0 || m.inFlight < m.limit:
					if slot == (bulkhead.Slot{}) {
						t.Fatalf("%d of %d in flight, and no slot: %v", m.inFlight, m.limit, err)
					}
					m.inFlight++
					slots = append(slots, slot)
				case len(m.waiting)*100 < m.pending*percent:
					if w == nil {
						t.Fatalf("%d of %d waiting, and no place: %v", len(m.waiting), m.pending, err)
					}
					m.join(place{w, caller, level})
				case err == nil:
					t.Fatalf("%d of %d waiting, and not refused", len(m.waiting), m.pending)
				}
			case 4, 5: // release
				if len(slots) > 0 {
					i := rapid.IntRange(0, len(slots)-1).Draw(t, "which")
					if !slots[i].Release() || slots[i].Release() {
						t.Fatal("want one release")
					}
					slots = slices.Delete(slots, i, i+1)
					m.inFlight--
				}
			case 6, 7: // take
				if len(granted) > 0 {
					slot, ok := granted[0].w.Slot()
					if !ok {
						t.Fatal("granted, and no slot")
					}
					slots, granted = append(slots, slot), granted[1:]
				}
			case 8: // leave
				n := len(granted) + len(m.waiting)
				if n == 0 {
					break
				}
				if i := rapid.IntRange(0, n-1).Draw(t, "which"); i < len(granted) {
					granted[i].w.Leave()
					granted = slices.Delete(granted, i, i+1)
					m.inFlight--
				} else {
					i -= len(granted)
					m.waiting[i].w.Leave()
					m.waiting = slices.Delete(m.waiting, i, i+1)
				}
			case 9:
				m.limit = rapid.IntRange(0, 4).Draw(t, "new limit")
				b.SetLimit(uint32(m.limit))
			case 10: // the oracle knows nothing of it
				b.Trim()
			}
			grant()
			s := b.Snapshot()
			if int(s.InFlight) != m.inFlight || int(s.Pending) != len(m.waiting) || int(s.Pending) > m.pending ||
				m.inFlight != len(slots)+len(granted) {
				t.Fatalf("%+v; want %d in flight (%d and %d), %d waiting", s, m.inFlight, len(slots), len(granted), len(m.waiting))
			}
		}
	})
}

// TestNobodyWaitsMoreThanOneRound: between two slots of a caller that has somebody waiting, and before its first, no other caller of
// its criticality gets two.
func TestNobodyWaitsMoreThanOneRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := bulkhead.New(limits(1, 40))
		slot := slotOf(t, b, "x")
		waiting := map[string][]*bulkhead.Waiter{}
		since := map[string]map[string]int{} // for a caller that waits: slots of the others since its last, or since it came
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "join") && b.Snapshot().Pending < 36 {
				caller := rapid.SampledFrom([]string{"a", "a", "a", "b", "c"}).Draw(t, "caller")
				if len(waiting[caller]) == 0 {
					since[caller] = map[string]int{}
				}
				waiting[caller] = append(waiting[caller], waiterOf(t, b, caller, bulkhead.Normal))
				continue
			}
			if b.Snapshot().Pending == 0 {
				continue
			}
			slot.Release()
			for caller, line := range waiting {
				if len(line) == 0 || !isGranted(line[0]) {
					continue
				}
				slot = take(t, line[0])
				waiting[caller] = line[1:]
				for other, seen := range since {
					if seen[caller]++; other != caller && len(waiting[other]) > 0 && seen[caller] > 1 {
						t.Fatalf("%s got %d slots while %s waited for one", caller, seen[caller], other)
					}
				}
				since[caller] = map[string]int{}
				break
			}
		}
	})
}
