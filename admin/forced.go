package admin

import (
	"errors"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

// ErrManyForced says that as many origins are forced as may be at a time.
var ErrManyForced = errors.New("too many origins are forced")

// over: its time has come. The instant itself is no longer in force.
func (f *Forced) over(now time.Time) bool { return !f.ExpireTime.IsZero() && !now.Before(f.ExpireTime) }

func (f *Forced) mode() breaker.Mode {
	if f.Open {
		return breaker.ForcedOpen
	}
	return breaker.ForcedClosed
}

// modeOf takes nil for what no operator said anything of.
func modeOf(f *Forced) breaker.Mode {
	if f == nil {
		return breaker.Auto
	}
	return f.mode()
}

func (f *Forced) reason() string {
	if f == nil {
		return ""
	}
	return f.Reason
}

func (f *Forced) expiry() string {
	if f == nil || f.ExpireTime.IsZero() {
		return ""
	}
	return f.ExpireTime.Format(time.RFC3339Nano)
}

// run ends each force at its instant, until Close.
func (b *Breakers) run() {
	defer close(b.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-b.changed:
		case <-timer.C:
			b.expire()
		}
		if next, ok := b.next(); ok {
			timer.Reset(min(time.Until(next), clockCheck))
		} else {
			timer.Stop()
		}
	}
}

// wake has the next end looked for again.
func (b *Breakers) wake() {
	select {
	case b.changed <- struct{}{}:
	default: // it will be
	}
}

// next is the first end there is.
func (b *Breakers) next() (first time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.forced {
		if end := f.ExpireTime; !end.IsZero() && (!ok || end.Before(first)) {
			first, ok = end, true
		}
	}
	return first, ok
}

// expire ends what is over, also while somebody writes. The store keeps it until the origin is written again, where its time tells that it is over.
func (b *Breakers) expire() {
	b.acting <- struct{}{}
	defer func() { <-b.acting }()
	now := time.Now()
	for _, origin := range b.overAt(now) {
		b.keep(origin, nil)
		b.origins.Force(origin, breaker.Auto, now)
	}
}

func (b *Breakers) overAt(now time.Time) (origins []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for origin, f := range b.forced {
		if f.over(now) {
			origins = append(origins, origin)
		}
	}
	return origins
}
