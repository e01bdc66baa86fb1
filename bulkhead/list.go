package bulkhead

// list keeps its members in the order in which they were pushed. Their links lie in the members themselves, so that it takes no
// memory of its own however many there are; container/list makes an element for each. The zero list is empty.
type list[T any] struct {
	last *link[T] // a ring: what comes next after the last is the first
}

// link is a member's place in one list; zero while it is in none.
type link[T any] struct {
	of         *T
	prev, next *link[T]
}

// first is the member pushed before all others, nil when there is none.
func (l *list[T]) first() *T {
	if l.last == nil {
		return nil
	}
	return l.last.next.of
}

// push puts a member, which must not be in the list, behind all others.
func (l *list[T]) push(k *link[T], of *T) {
	k.of, k.prev, k.next = of, k, k
	if l.last != nil {
		k.prev, k.next = l.last, l.last.next
		k.prev.next, k.next.prev = k, k
	}
	l.last = k
}

// unlink takes out a member of the list.
func (l *list[T]) unlink(k *link[T]) {
	switch {
	case k.next == k:
		l.last = nil
	case l.last == k:
		l.last = k.prev
	}
	k.prev.next, k.next.prev = k.next, k.prev
	*k = link[T]{}
}
