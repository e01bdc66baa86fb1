package bulkhead

// queue holds the waiters: by criticality, then callers in turn, then in order of arrival. Every step takes the same time however
// many wait.
type queue struct {
	held  uint32
	ranks *[levels]rank // nil while nobody waits, so that an idle origin keeps nothing
}

// rank is one criticality: the lines of its callers, by name and in the order in which they are served.
type rank struct {
	lines map[string]*line
	turns list[line]
}

// line is what one caller has waiting in one rank; there is none without a waiter.
type line struct {
	caller  string
	level   int
	waiters list[Waiter]
	turn    link[line]
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
		r.turns.push(&l.turn, l)
	}
	w.line = l
	l.waiters.push(&w.place, w)
	q.held++
}

// next takes out who is served next; the queue must hold somebody.
func (q *queue) next() *Waiter {
	for level := range q.ranks {
		r := &q.ranks[level]
		l := r.turns.first()
		if l == nil {
			continue
		}
		w := l.waiters.first()
		r.turns.unlink(&l.turn)
		r.turns.push(&l.turn, l) // behind the others, unless remove finds it empty
		q.remove(w)
		return w
	}
	panic("bulkhead: the queue counts a waiter that is in no line")
}

// remove takes a waiter out.
func (q *queue) remove(w *Waiter) {
	l := w.line
	w.line = nil
	l.waiters.unlink(&w.place)
	if r := &q.ranks[l.level]; l.waiters.first() == nil {
		r.turns.unlink(&l.turn)
		delete(r.lines, l.caller)
	}
	if q.held--; q.held == 0 {
		q.ranks = nil
	}
}
