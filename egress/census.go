package egress

import (
	"sync"
	"sync/atomic"
)

// Connections count what became of connections since the transport was made. They only grow.
type Connections struct {
	// Fresh are the connections made, Reused how often an idle one was taken for an attempt instead, Shared how often one of HTTP/2
	// that carried others already.
	Fresh, Reused, Shared uint64
	// FoundClosed were idle and found closed by the look before a request was written: that request was not lost.
	FoundClosed uint64
	// DiedIdle were found closed while nobody wanted them.
	DiedIdle uint64
	// DiedInUse ended under the very request that ended their idle time, unanswered: the close and the request crossed.
	DiedInUse uint64
	// Unasked were closed since the upstream sent bytes that no request had asked for, while idle or after an answer. Only HTTP/1.1
	// has them: what comes over HTTP/2 names the stream it is for.
	Unasked uint64
	// HiddenSends are requests that a connection wrote beyond those of its attempts. One attempt is one request: anything but 0
	// is an error in the broker.
	HiddenSends uint64
}

// census keeps these counts, and how many connections each origin has.
type census struct {
	fresh, reused, shared, foundClosed, diedIdle, diedInUse, unasked, hiddenSends atomic.Uint64

	mu      sync.Mutex           // protects the fields below
	origins map[string]*openConn // of origins that have a connection
}

// openConn counts the connections of one origin: those that serve an attempt and those that are idle.
type openConn struct {
	active, idle atomic.Int64
	open         int64 // under the lock of the census
}

func newCensus() *census { return &census{origins: make(map[string]*openConn)} }

// Connections says what became of connections so far.
func (t *Transport) Connections() Connections {
	c := t.pool.census
	return Connections{
		Fresh: c.fresh.Load(), Reused: c.reused.Load(), Shared: c.shared.Load(), FoundClosed: c.foundClosed.Load(),
		DiedIdle: c.diedIdle.Load(), DiedInUse: c.diedInUse.Load(), Unasked: c.unasked.Load(), HiddenSends: c.hiddenSends.Load(),
	}
}

// EachOrigin tells how many connections each origin has now, in use and idle. No lock is held while f runs.
func (t *Transport) EachOrigin(f func(origin string, active, idle int64)) {
	for origin, n := range t.pool.census.copy() {
		f(origin, n.active.Load(), n.idle.Load())
	}
}

// copiedAtOnce bounds how many origins are looked at under one lock.
const copiedAtOnce = 512

// copy lets the lock go now and then: a range goes on over a map that has changed meanwhile.
func (c *census) copy() map[string]*openConn {
	all := make(map[string]*openConn)
	c.mu.Lock()
	defer c.mu.Unlock()
	for origin, n := range c.origins {
		all[origin] = n
		if len(all)%copiedAtOnce == 0 {
			c.mu.Unlock()
			c.mu.Lock()
		}
	}
	return all
}

// entry is the place of one connection in the census. The zero value is none. Whose connection it is says who may use it.
type entry struct {
	census *census
	origin string
	of     *openConn // nil: not in the census, or not any more
	idle   bool
}

// opened counts a connection, which serves an attempt at once.
func (c *census) opened(origin string) entry {
	c.fresh.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.origins[origin]
	if n == nil {
		n = &openConn{}
		c.origins[origin] = n
	}
	n.open++
	n.active.Add(1)
	return entry{census: c, origin: origin, of: n}
}

// gone takes the connection out of the census, once.
func (e *entry) gone() {
	n := e.of
	if n == nil {
		return
	}
	e.of = nil
	if e.idle {
		n.idle.Add(-1)
	} else {
		n.active.Add(-1)
	}
	e.census.mu.Lock()
	defer e.census.mu.Unlock()
	if n.open--; n.open == 0 {
		delete(e.census.origins, e.origin)
	}
}

// rest and work tell that a connection begins to be idle, or to serve an attempt.
func (e *entry) rest() { e.turn(true, -1) }

func (e *entry) work() { e.turn(false, 1) }

func (e *entry) turn(idle bool, active int64) {
	if e.of == nil || e.idle == idle {
		return
	}
	e.idle = idle
	e.of.active.Add(active)
	e.of.idle.Add(-active)
}

// dead counts a connection that the look found useless: before a request, or while nobody wanted it.
func (c *census) dead(cn *conn, wanted bool) {
	switch {
	case cn.unasked:
		c.unasked.Add(1)
	case wanted:
		c.foundClosed.Add(1)
	default:
		c.diedIdle.Add(1)
	}
}

// exchanged looks at a connection after an exchange that began when it had written that many requests.
func (c *census) exchanged(cn *conn, before uint64) {
	if n := cn.http.Requests() - before; n > 1 {
		c.hiddenSends.Add(n - 1)
	}
	if cn.http.Surplus() {
		c.unasked.Add(1)
	}
}
