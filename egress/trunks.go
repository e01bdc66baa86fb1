package egress

import (
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/call"
)

const (
	// trunksMost bounds the connections of one group that take new attempts. With a server that takes 100 streams at once they carry
	// 6400, with one that takes one 64.
	trunksMost = 64
	// trunksIdle bounds the idle ones of the process; each holds two goroutines and some tens of KiB.
	trunksIdle = 1024
	// groupsMost bounds what is remembered of servers without HTTP/2: beyond it each is asked anew.
	groupsMost = 10_000
	// plainFor is how long a server that chose HTTP/1.1 is believed to choose it again.
	plainFor = time.Minute
)

// groupKey separates trunks as poolKey does connections. A policy that allows nothing but HTTP/2 has groups of its own, since what its
// handshakes offer, and so why they fail, is another matter.
type groupKey struct {
	poolKey

	only bool
}

// trunks keeps the connections of HTTP/2. Unlike those of HTTP/1.1 they stand here while they are in use.
//
// One dial at a time is under way for a group, and the calls that come meanwhile wait for it, so that a burst does not open a
// connection each. Another one is dialled when all have as many streams as their servers take.
type trunks struct {
	life   *lifetimes
	census *census

	mu     sync.Mutex // protects the fields below, and those of groups and trunks that say so
	groups map[groupKey]*group
	total  int    // trunks kept
	oldest uint64 // the generation that is still kept
	closed bool
}

// group is the trunks that may serve each other's attempts.
type group struct {
	key  groupKey
	wake chan struct{} // room on a trunk: holds one, and whom it wakes passes it on; never closed

	// The lock of trunks protects the fields below.
	trunks  []*trunk      // the oldest first: it fills up first, so that those of a past burst become idle
	dial    *dial         // under way; nil: none
	changed chan struct{} // closed, and replaced, when a dial begins
	plain   time.Time     // until then the server is believed to choose HTTP/1.1
	waiting int           // attempts that wait
}

// dial is a connection being made, for which others wait.
type dial struct {
	done   chan struct{} // closed by whoever dials
	failed *call.Result  // set before done is closed: it failed, and would have for those who wait
}

// place is what an attempt gets: a trunk; or the word to dial, or to use HTTP/1.1; or else something to wait for.
type place struct {
	group  *group
	trunk  *trunk
	reused bool
	idle   time.Duration // how long the trunk was idle; 0: it was not

	alone bool  // dial for yourself: nobody waits for it
	lead  *dial // dial, others wait for it
	plain bool  // the server chooses HTTP/1.1

	dial    *dial // wait for this, if there is one
	changed <-chan struct{}
}

func newTrunks(life *lifetimes, c *census) *trunks {
	return &trunks{life: life, census: c, groups: make(map[groupKey]*group)}
}

// find looks for a trunk with room that was idle for less than maxIdle. With maxIdle 0 every attempt makes its own. The caller holds
// whatever it is given: trunks until release, a lead until settled, a wait until waited.
func (p *trunks) find(key groupKey, maxIdle time.Duration, now time.Time) place {
	p.mu.Lock()
	at, begins := p.findLocked(key, maxIdle, now)
	p.mu.Unlock()
	if begins != nil {
		close(begins) // closed here only: it was taken out of its group
	}
	return at
}

func (p *trunks) findLocked(key groupKey, maxIdle time.Duration, now time.Time) (at place, begins chan struct{}) {
	g := p.groups[key]
	if g == nil {
		g = &group{key: key, wake: make(chan struct{}, 1), changed: make(chan struct{})}
		if p.keepsLocked(g) {
			p.groups[key] = g
		}
	}
	at = place{group: g}
	busy, growing := 0, false
	for _, tk := range g.trunks {
		limit, said := tk.http.Limit()
		switch {
		case limit < 0:
			continue
		case tk.inUse >= limit:
			growing = growing || limit == 0 || !said // it may take more any moment, without a new connection
		case maxIdle > 0 && (tk.inUse > 0 || tk.quiet(now) < maxIdle):
			return tk.takeLocked(at, now), nil
		}
		if tk.inUse > 0 { // a fresh one would take the place of those that are idle
			busy++
		}
	}
	switch {
	case !key.only && now.Before(g.plain):
		at.plain = true
	case maxIdle <= 0 || !p.keepsLocked(g):
		at.alone = true
	case g.dial == nil && !growing && busy < trunksMost:
		g.dial = &dial{done: make(chan struct{})}
		at.lead, begins = g.dial, g.changed
		g.changed = make(chan struct{})
	default:
		g.waiting++
		at.dial, at.changed = g.dial, g.changed
	}
	return at, begins
}

// takeLocked gives an attempt its place on the trunk.
func (tk *trunk) takeLocked(at place, now time.Time) place {
	at.trunk, at.reused = tk, tk.served
	switch {
	case !tk.served:
	case tk.inUse > 0:
		tk.census.shared.Add(1)
	default:
		at.idle = tk.quiet(now)
		tk.census.reused.Add(1)
	}
	tk.work()
	tk.inUse++
	tk.served = true
	return at
}

func (p *trunks) keepsLocked(g *group) bool { return !p.closed && g.key.generation >= p.oldest }

// add takes a fresh trunk in, with its first attempt on it. It takes the place of those that are idle: they were too old for that
// attempt, and it has room for what they served.
func (p *trunks) add(tk *trunk, at place) place {
	now := time.Now()
	g := at.group
	p.mu.Lock()
	at = tk.takeLocked(at, now)
	var idle []*trunk
	if p.keepsLocked(g) && p.groups[g.key] == g {
		idle = p.removeLocked(g, func(old *trunk) bool { return old.inUse == 0 })
		g.trunks = append(g.trunks, tk)
		tk.kept = true
		p.total++
		g.plain = time.Time{}
	}
	p.mu.Unlock()
	p.learn(idle, &p.census.foundClosed)
	end(idle)
	return at
}

// settled ends a dial: who waits looks again, or fails as it did.
func (p *trunks) settled(at place, failed *call.Result) {
	if at.lead == nil {
		return
	}
	p.mu.Lock()
	if at.group.dial == at.lead {
		at.group.dial = nil
	}
	p.mu.Unlock()
	at.lead.failed = failed
	close(at.lead.done)
	at.group.pass()
}

// chosePlain notes that the server chose HTTP/1.1.
func (p *trunks) chosePlain(g *group) {
	until := time.Now().Add(plainFor)
	p.mu.Lock()
	g.plain = until
	p.mu.Unlock()
}

func (p *trunks) waited(g *group) {
	p.mu.Lock()
	g.waiting--
	p.mu.Unlock()
}

// release gives a place back, of an attempt that may have sent its request or did not. A trunk that nobody else is on ends here if it is
// of no use any more.
func (p *trunks) release(tk *trunk, sent bool) {
	now := time.Now()
	g := tk.group
	p.mu.Lock()
	tk.inUse--
	if sent {
		tk.sent++
	}
	tk.auditLocked()
	var idle []*trunk
	if tk.inUse == 0 {
		tk.idleSince = now
		tk.rest()
		if !tk.kept {
			idle = []*trunk{tk}
		} else if tk.dead() || p.total > trunksIdle {
			idle = p.removeLocked(g, func(old *trunk) bool { return old == tk })
		}
	}
	p.mu.Unlock()
	end(idle)
	g.pass()
}

// auditLocked looks for requests that no attempt was there to send.
func (tk *trunk) auditLocked() {
	attempts := tk.sent + uint64(tk.inUse) //nolint:gosec // a count
	if written := tk.http.Requests(); written > attempts {
		tk.census.hiddenSends.Add(written - attempts)
		tk.sent += written - attempts // told once
	}
}

// pass tells one of those who wait that there may be room. Whoever is told and gets a place passes it on.
func (g *group) pass() {
	select {
	case g.wake <- struct{}{}:
	default: // somebody is being told
	}
}

// removeLocked takes the trunks out for which gone holds. Those with nothing on them are given back to be ended, the others end with
// the last attempt on them.
func (p *trunks) removeLocked(g *group, gone func(*trunk) bool) (idle []*trunk) {
	g.trunks = slices.DeleteFunc(g.trunks, func(tk *trunk) bool {
		if !gone(tk) {
			return false
		}
		tk.kept = false
		p.total--
		if tk.inUse == 0 {
			idle = append(idle, tk)
		}
		return true
	})
	return idle
}

func end(idle []*trunk) {
	for _, tk := range idle {
		tk.http.Close()
		tk.gone()
	}
}
