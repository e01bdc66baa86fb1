package egress

import (
	"sync"
	"time"
)

const (
	// learnedFor is how long a lesson counts: a server that was restarted closes every connection early once.
	learnedFor = 2 * time.Minute
	// early: what dies sooner did not die of being idle. A server that is shut down drops every connection, but some close
	// theirs within milliseconds on purpose; no idle life can be learned from either.
	early = 100 * time.Millisecond
	// distrustFirst and distrustMost bound how long an origin's idle connections then serve no unsafe operation; the time
	// doubles with every early death.
	distrustFirst = 10 * time.Second
	distrustMost  = 10 * time.Minute
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
	life      time.Duration // 0: none learned
	until     time.Time     // end of that lesson
	distrust  time.Duration // how long the last early death counts
	distrusts time.Time     // end of that
}

func newLifetimes() *lifetimes { return &lifetimes{learned: make(map[string]lifetime)} }

// of is how long a connection of the origin may be idle to serve an operation, unsafe to repeat or not.
func (l *lifetimes) of(origin string, unsafe bool, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch got, ok := l.learned[origin]; {
	case ok && unsafe && now.Before(got.distrusts):
		return 0
	case ok && now.Before(got.until):
		return got.life
	}
	return idleLife
}

// died learns from a connection that was found dead after being idle that long, or died under the request that ended its idle
// time. It was seen alive after that part of the time; without such a look the server's patience is anywhere below, and the lesson
// careful.
func (l *lifetimes) died(origin string, seen, idle time.Duration) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.learned) >= learnedMax {
		clear(l.learned)
	}
	got := l.learned[origin]
	if idle < early {
		got.distrust = min(max(2*got.distrust, distrustFirst), distrustMost)
		got.distrusts = now.Add(got.distrust)
		l.learned[origin] = got
		return
	}
	life := idle / 4
	if seen > life {
		life = min(seen-seen/10, idle)
	}
	if now.Before(got.until) {
		life = min(life, got.life)
	}
	got.life, got.until = life, now.Add(learnedFor)
	l.learned[origin] = got
}
