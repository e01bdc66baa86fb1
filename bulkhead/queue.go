package bulkhead

// queue holds the waiters: by criticality, then callers in turn, then in order of arrival. Every step takes the same time however
// many wait.
type queue struct {
	held  uint32
	ranks *[levels]rank // nil while nobody waits, so that an idle origin keeps nothing
}

// rank is one criticality: the lines of its callers, the first of them to be served next.
type rank struct {
	lines       map[string]*line
	first, last *line
}

// line is what one caller has waiting in one rank; there is none without a waiter.
type line struct {
	caller      string
	level       int
	first, last *Waiter
	prev, next  *line
}

// join puts a waiter at the end of its caller's line, and a new line behind all others: whoever comes waits for one slot of each
// caller before it, at most.
func (q *queue) join(w *Waiter, caller string, level int) {
	if q.ranks == nil {
		q.ranks = new([levels]rank)
	}
	r := &q.ranks[level]
	l := r.lines[caller]
	if l == nil {
		if r.lines == nil {
			r.lines = make(map[string]*line)
		}
		l = &line{caller: caller, level: level}
		r.lines[caller] = l
		r.push(l)
	}
	l.push(w)
	q.held++
}

// next takes out who is served next; the queue must hold somebody.
func (q *queue) next() *Waiter {
	for level := range q.ranks {
		r := &q.ranks[level]
		l := r.first
		if l == nil {
			continue
		}
		w := l.first
		r.unlink(l)
		r.push(l) // behind the others, unless remove finds it empty
		q.remove(w)
		return w
	}
	panic("bulkhead: the queue counts a waiter that is in no line")
}

// remove takes a waiter out.
func (q *queue) remove(w *Waiter) {
	l := w.line
	l.unlink(w)
	if r := &q.ranks[l.level]; l.first == nil {
		r.unlink(l)
		delete(r.lines, l.caller)
	}
	if q.held--; q.held == 0 {
		q.ranks = nil
	}
}

func (l *line) push(w *Waiter) {
	w.line, w.prev = l, l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

func (l *line) unlink(w *Waiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.line, w.prev, w.next = nil, nil, nil
}

func (r *rank) push(l *line) {
	l.prev = r.last
	if r.last == nil {
		r.first = l
	} else {
		r.last.next = l
	}
	r.last = l
}

func (r *rank) unlink(l *line) {
	if l.prev == nil {
		r.first = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		r.last = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.prev, l.next = nil, nil
}
