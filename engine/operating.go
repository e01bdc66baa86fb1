package engine

import (
	"maps"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

// Force sets who decides for every breaker of an origin: those there are, under whatever policy, and those that are made from now on,
// also where nobody has called the origin yet. It lasts until it is set otherwise; breaker.Auto ends it.
func (o *Origins) Force(origin string, mode breaker.Mode, now time.Time) {
	o.forcing.Lock()
	defer o.forcing.Unlock()
	// In this order: a breaker that is not found below is made after the table has been replaced, and finds the mode there.
	forced := maps.Clone(*o.forced.Load())
	if mode == breaker.Auto {
		delete(forced, origin)
	} else {
		forced[origin] = mode
	}
	o.forced.Store(&forced)
	for k, b := range o.breakers.all() {
		if k.origin != origin {
			continue
		}
		if changed := b.Snapshot(now).Mode != mode; !changed {
			continue // nobody else changes the mode of a breaker
		}
		t := b.Force(mode, now)
		o.moved(origin, &t)
	}
}

// newBreaker makes one that judges by itself, unless an operator said otherwise before it was needed.
func (o *Origins) newBreaker(k breakerKey, now time.Time) *breaker.Breaker {
	b := breaker.New(k.settings.Value())
	if mode, ok := (*o.forced.Load())[k.origin]; ok {
		b.Force(mode, now)
	}
	return b
}

// Reset has the breakers of an origin forget everything, and lifts its holds; false: the origin is not known. What is forced stays so,
// and so do budget and what is in flight.
func (o *Origins) Reset(origin string, now time.Time) bool {
	f := o.find(now, func(name string) bool { return name == origin })[origin]
	if f == nil || !f.known() {
		return false
	}
	for _, b := range f.breakers {
		t := b.value.Reset(now)
		o.moved(origin, &t)
	}
	o.holds.lift(origin)
	return true
}
