package deferred

import (
	"sync"
	"time"
)

// alarm wakes a loop at the earliest instant that anybody has set since it looked last.
type alarm struct {
	rung chan struct{} // has room for one word that the instant has changed; closed by nobody

	mu  sync.Mutex // protects the field below
	set time.Time  // zero: none
}

func newAlarm() *alarm {
	return &alarm{rung: make(chan struct{}, 1)}
}

// by wakes the loop at that instant, or earlier; zero is no instant.
func (a *alarm) by(t time.Time) {
	if t.IsZero() {
		return
	}
	a.mu.Lock()
	earlier := a.set.IsZero() || t.Before(a.set)
	if earlier {
		a.set = t
	}
	a.mu.Unlock()
	if earlier {
		a.nudge()
	}
}

// ring wakes the loop at once, to look.
func (a *alarm) ring() { a.by(time.Unix(0, 0)) }

// nudge wakes the loop at once, to see what has changed.
func (a *alarm) nudge() {
	select {
	case a.rung <- struct{}{}:
	default:
	}
}

// clear forgets the instant: the loop looks now. What is set while it looks wakes it again.
func (a *alarm) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set = time.Time{}
}

// due reports whether the instant has come.
func (a *alarm) due(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.set.IsZero() && !now.Before(a.set)
}

// wait waits until the instant, a word, or the end, which it reports as false.
func (a *alarm) wait(now time.Time, end <-chan struct{}) bool {
	a.mu.Lock()
	set := a.set
	a.mu.Unlock()
	var at <-chan time.Time
	if !set.IsZero() {
		timer := time.NewTimer(set.Sub(now))
		defer timer.Stop()
		at = timer.C
	}
	select {
	case <-at:
		return true
	case <-a.rung:
		return true
	case <-end:
		return false
	}
}

// landing waits for a word, or the end, which it reports as false.
func (a *alarm) landing(end <-chan struct{}) bool {
	select {
	case <-a.rung:
		return true
	case <-end:
		return false
	}
}
