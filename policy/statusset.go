package policy

// StatusSet is a set of HTTP statuses, 100 to 599.
type StatusSet [8]uint64

// Statuses makes a set; a code outside 100–599 is left out (validation has refused it before).
func Statuses(codes ...uint32) StatusSet {
	var s StatusSet
	for _, c := range codes {
		if i := c - 100; i < 500 {
			s[i/64] |= 1 << (i % 64)
		}
	}
	return s
}

// Has reports whether the status is in the set.
func (s *StatusSet) Has(status int) bool {
	i := uint(status - 100)
	return i < 500 && s[i/64]&(1<<(i%64)) != 0
}
