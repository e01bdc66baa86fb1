package broker

import "slices"

// slots are the right to receive a large message. They have no lock of their own: they belong to a [reception].
//
// An identity may take one while more are free than it has. So one alone has half of them, two have a third each, and as long as few
// misbehave there is one left for the next who comes (the dynamic threshold of Choudhury and Hahne, with factor 1).
type slots struct {
	free    int
	of      map[string]int        // how many each identity has; none with zero
	waiting map[string][]*arrival // who waits, in the order they came; none without
}

// slotState is what an arrival has of a slot.
type slotState int

const (
	slotNone slotState = iota
	slotWaits
	slotHeld
)

func newSlots(n int) *slots {
	return &slots{free: n, of: make(map[string]int), waiting: make(map[string][]*arrival)}
}

// count tells how many arrivals wait, and how many slots there are.
func (s *slots) count() (waiting, all int) {
	all = s.free
	for _, n := range s.of {
		all += n
	}
	for _, queue := range s.waiting {
		waiting += len(queue)
	}
	return waiting, all
}

// take gives the arrival a slot, or puts it into the queue. It overtakes nobody of its identity: where one waits, none is to be had.
func (s *slots) take(a *arrival) bool {
	if s.of[a.whose] < s.free {
		s.give(a)
		return true
	}
	a.slot, a.granted = slotWaits, make(chan struct{})
	s.waiting[a.whose] = append(s.waiting[a.whose], a)
	return false
}

func (s *slots) give(a *arrival) {
	s.free--
	s.of[a.whose]++
	a.slot = slotHeld
}

// leave takes the arrival out, wherever it is.
func (s *slots) leave(a *arrival) {
	switch a.slot {
	case slotNone:
		return
	case slotWaits:
		s.unqueue(a)
	case slotHeld:
		s.free++
		if s.of[a.whose]--; s.of[a.whose] == 0 {
			delete(s.of, a.whose)
		}
	}
	a.slot = slotNone
	s.handOn()
}

func (s *slots) unqueue(a *arrival) {
	queue := s.waiting[a.whose]
	at := slices.Index(queue, a)
	if s.waiting[a.whose] = slices.Delete(queue, at, at+1); len(queue) == 1 {
		delete(s.waiting, a.whose)
	}
}

// handOn gives what is free to those who wait: the identity that has the fewest comes first.
func (s *slots) handOn() {
	for {
		next, fewest := "", s.free
		for whose := range s.waiting {
			if n := s.of[whose]; n < fewest {
				next, fewest = whose, n
			}
		}
		if fewest == s.free {
			return
		}
		a := s.waiting[next][0]
		s.unqueue(a)
		s.give(a)
		close(a.granted)
	}
}
