package breaker

import "math/bits"

// numberWords bounds how many tickets outside half-open are told apart at a time.
const numberWords = 4

// numbers gives each outstanding ticket a number, so that a second Settle of the same one is seen and dropped although a ticket is a
// plain value. They go round: a number comes back after all others were given out, or are outstanding. When none is free a ticket
// goes without: better one that could be settled twice than a breaker that refuses for want of a number.
type numbers struct {
	outstanding [numberWords]uint64
	next        uint16
}

// give returns a number from 1 up, or 0 when none is free.
func (n *numbers) give() uint16 {
	const all = numberWords * 64
	start := n.next % all
	word, shift := start/64, start%64
	for i := range numberWords + 1 {
		w := (word + uint16(i)) % numberWords
		free := ^n.outstanding[w]
		if i == 0 {
			free &= ^uint64(0) << shift
		}
		if free != 0 {
			bit := uint16(bits.TrailingZeros64(free)) //nolint:gosec // below 64
			n.outstanding[w] |= 1 << bit
			n.next = w*64 + bit + 1
			return w*64 + bit + 1
		}
	}
	return 0
}

// take ends a number; false when it was ended before.
func (n *numbers) take(number uint16) bool {
	if number == 0 {
		return true
	}
	word, mask := (number-1)/64, uint64(1)<<((number-1)%64)
	if n.outstanding[word]&mask == 0 {
		return false
	}
	n.outstanding[word] &^= mask
	return true
}
