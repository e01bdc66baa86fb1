package broker

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSlotsAreSharedAndHandedOn(t *testing.T) {
	s := newSlots(8)
	take := func(whose string, want bool) *arrival {
		t.Helper()
		a := &arrival{whose: whose}
		if got := s.take(a); got != want {
			t.Fatalf("%s has %d of 8 slots, %d are free, and gets one: %v", whose, s.of[whose], s.free, got)
		}
		return a
	}
	granted := func(a *arrival) bool {
		select {
		case <-a.granted:
			return true
		default:
			return false
		}
	}
	var as []*arrival
	for range 4 {
		as = append(as, take("a", true))
	}
	first, second := take("a", false), take("a", false) // half is left for others
	b := take("b", true)
	take("b", true)
	third := take("b", false)
	take("c", true)
	// One is free. A slot that comes back goes to whoever has the fewest, and not to whoever waits longest.
	s.leave(as[0])
	if granted(first) || granted(second) || granted(third) || s.free != 2 {
		t.Errorf("granted %v, %v, %v, %d free: nobody who waits has fewer than are free", granted(first), granted(second), granted(third), s.free)
	}
	s.leave(b)
	if granted(first) || !granted(third) {
		t.Errorf("granted to a %v, to b %v", granted(first), granted(third))
	}
	for _, a := range as[1:] {
		s.leave(a)
	}
	if !granted(first) || !granted(second) {
		t.Errorf("granted %v and %v when all of a had left", granted(first), granted(second))
	}
}

func TestSlotsAgreeWithTheirModel(t *testing.T) {
	const total = 7
	rapid.Check(t, func(t *rapid.T) {
		s := newSlots(total)
		var here []*arrival // in the order they came
		held := func(whose string) (n int) {
			for _, a := range here {
				if a.slot == slotHeld && (whose == "" || a.whose == whose) {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				a := &arrival{whose: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "whose")}
				fits := held(a.whose) < total-held("")
				if s.take(a) != fits {
					t.Fatalf("taken: %v, with %d of its own and %d in all", !fits, held(a.whose), held(""))
				}
				here = append(here, a)
			},
			"leave": func(t *rapid.T) {
				if len(here) == 0 {
					t.Skip("nobody is there")
				}
				i := rapid.IntRange(0, len(here)-1).Draw(t, "who")
				s.leave(here[i])
				here = slices.Delete(here, i, i+1)
			},
			"": func(t *rapid.T) {
				if s.free != total-held("") || s.free < 0 {
					t.Fatalf("%d free, %d held", s.free, held(""))
				}
				waits := map[string]int{}
				for _, a := range here {
					if a.slot == slotWaits {
						waits[a.whose]++
						if held(a.whose) < s.free {
							t.Fatalf("%s waits with %d, and %d are free", a.whose, held(a.whose), s.free)
						}
					} else if waits[a.whose] > 0 {
						t.Fatalf("%s: one that came later was served before", a.whose)
					}
				}
				kept := 0
				for whose, queue := range s.waiting {
					if len(queue) == 0 || len(queue) != waits[whose] {
						t.Fatalf("%d of %s are queued, %d wait", len(queue), whose, waits[whose])
					}
				}
				for whose, n := range s.of {
					if n == 0 || n != held(whose) {
						t.Fatalf("%s has %d, and %d in the books", whose, held(whose), n)
					}
					kept += n
				}
				if kept != held("") || len(s.waiting) != len(waits) {
					t.Fatalf("%d in the books, %d held; queues %v", kept, held(""), s.waiting)
				}
			},
		})
	})
}

func TestPlacesAgreeWithTheirModel(t *testing.T) {
	const places = 5
	rapid.Check(t, func(t *rapid.T) {
		r := newReception(places, 1, maxMessage)
		var here []*arrival // in the order they came
		count := func() map[string]int {
			n := map[string]int{}
			for _, a := range here {
				n[a.whose]++
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				a := &arrival{whose: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "whose")}
				displaced, ok := r.takePlace(a)
				here = append(here, a)
				if !ok || (displaced != nil) != (len(here) > places) {
					t.Fatalf("came %v, displaced %v, %d were here", ok, displaced, len(here))
				}
				if displaced == nil {
					return
				}
				most, n := 0, count()
				for _, n := range n {
					most = max(most, n)
				}
				i := slices.IndexFunc(here, func(a *arrival) bool { return n[a.whose] == most })
				if here[i] != displaced || displaced.refused != tooMany {
					t.Fatalf("displaced one of %s, for %v; here are %v", displaced.whose, displaced.refused, n)
				}
				here = slices.Delete(here, i, i+1)
			},
			"go": func(t *rapid.T) {
				if len(here) == 0 {
					t.Skip("nobody is here")
				}
				i := rapid.IntRange(0, len(here)-1).Draw(t, "who")
				if why := r.leave(here[i]); why != notRefused {
					t.Fatalf("refused for %v", why)
				}
				here = slices.Delete(here, i, i+1)
			},
			"": func(t *rapid.T) {
				if r.here.Len() != len(here) || len(r.of) != len(count()) {
					t.Fatalf("%d are here, of %v; the model says %v", r.here.Len(), r.of, count())
				}
				for whose, n := range count() {
					if r.of[whose] != n {
						t.Fatalf("%d of %s are here, %d in the books", n, whose, r.of[whose])
					}
				}
			},
		})
	})
}
