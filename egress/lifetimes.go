package egress

import (
	"sync"
	"time"
)

const (
	// learnedFor is how long a lesson counts: a server that was restarted closes every connection early once.
	learnedFor = 2 * time.Minute
	// learnedFloor: what dies sooner did not die of being idle. No server is that impatient, but one that is shut down drops
	// every connection, and its successor shall not be taken for one that keeps none.
	learnedFloor = 10 * time.Millisecond
	// learnedMax bounds the origins remembered; when it is full the lessons start afresh.
	learnedMax = 10_000
)

// lifetimes remembers per origin how soon its idle connections die: servers close them after 5, 15 or 60 seconds without
// saying so, and a request on a dying connection is the commonest false unknown (semantics.md §2).
type lifetimes struct {
	mu      sync.Mutex // protects the fields below
	learned map[string]lifetime
}

type lifetime struct {
	life  time.Duration
	until time.Time
}

func newLifetimes() *lifetimes { return &lifetimes{learned: make(map[string]lifetime)} }

// of is how long a connection of the origin may be idle.
func (l *lifetimes) of(origin string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got, ok := l.learned[origin]; ok && now.Before(got.until) {
		return got.life
	}
	return idleLife
}

// died learns from a connection that was found dead after being idle that long, or died under the request that ended its idle
// time. It was alive when last looked at; without such a look the server's patience is anywhere below, and the lesson careful.
func (l *lifetimes) died(cn *conn, idle time.Duration) {
	if idle < learnedFloor {
		return
	}
	life := max(idle/4, learnedFloor)
	if seen := cn.aliveAt.Sub(cn.idleSince); seen > life {
		life = min(seen-seen/10, idle)
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got, ok := l.learned[cn.key.origin]; ok && now.Before(got.until) {
		life = min(life, got.life)
	}
	if len(l.learned) >= learnedMax {
		clear(l.learned)
	}
	l.learned[cn.key.origin] = lifetime{life: life, until: now.Add(learnedFor)}
}
