package breaker

import "slices"

// maxNumbers bounds how many outstanding tickets outside half-open are told apart, and so the memory of one that leaks them.
const maxNumbers = 256

// numbers gives each outstanding ticket a number, so that a second Settle of the same one is seen and dropped although a ticket is a
// plain value. No number comes back within a generation: an old ticket is never taken for a younger one, however late it is settled
// again. (Weighed: a bit for each of 256 numbers that go round is smaller, and takes the old one for the young. An exact epoch for
// each number takes as much while idle as this does with all of them outstanding.)
//
// When maxNumbers are outstanding a ticket goes without: better one that could be settled twice than a breaker that refuses for want
// of a number.
type numbers struct {
	last        uint64   // given
	outstanding []uint64 // rising
	// room is what outstanding lies in while it suffices, so that an idle origin keeps nothing else and one that is called now and then
	// does not allocate. Two is what the size class of a Breaker has left.
	room [2]uint64
}

// next returns a number that nobody watches. It does for probes, of which only the last is outstanding.
func (n *numbers) next() uint64 {
	n.last++
	return n.last
}

// give returns a number from 1 up, or 0 when as many as are told apart are outstanding.
func (n *numbers) give() uint64 {
	if len(n.outstanding) == maxNumbers {
		return 0
	}
	if n.outstanding == nil {
		n.outstanding = n.room[:0]
	}
	number := n.next()
	n.outstanding = append(n.outstanding, number)
	return number
}

// take ends a number; false when it was ended before.
func (n *numbers) take(number uint64) bool {
	if number == 0 {
		return true
	}
	i, found := slices.BinarySearch(n.outstanding, number)
	if !found {
		return false
	}
	n.outstanding = slices.Delete(n.outstanding, i, i+1)
	if len(n.outstanding) == 0 && cap(n.outstanding) > len(n.room) {
		n.outstanding = nil
	}
	return true
}
