package breaker

import "time"

// Kind is what an attempt says about its origin.
type Kind int32

// The kinds (semantics.md §6).
const (
	// Ignored says nothing: a caller that went away, a refusal of our own, no such name, a refused stream or certificate.
	Ignored Kind = iota
	// OK is a complete answer that shows the origin alive: every status but those below, one too large included.
	OK
	// Failed is connect, TLS, timeout, lost connection, malformed answer, and 5xx except 501 and 505.
	Failed
	// Throttled is a 429: it counts in the failure rate and fails a probe, and leaves the consecutive count alone.
	Throttled
)

// Result is what an attempt gave, as far as a breaker cares.
type Result struct {
	Kind Kind
	// Answered says that a Failed one was a complete answer all the same (a 5xx): the origin is no black hole. The other kinds
	// say it by themselves.
	Answered bool
	// TimedOut says that a Failed one used up all of [Attempt.Timeout]; a limit of the policy that fires sooner (connect, header,
	// idle body) is not meant.
	TimedOut bool
	// Given is the time that a TimedOut one had, where its caller cut it shorter than [Attempt.Timeout] after it was admitted; 0: all of it.
	Given time.Duration
	// Latency is how long the attempt took.
	Latency time.Duration
}

func (r *Result) answered() bool {
	return r.Kind == OK || r.Kind == Throttled || r.Kind == Failed && r.Answered
}

// Ticket is one admission. The zero Ticket may be settled and does nothing.
type Ticket struct {
	breaker    *Breaker
	generation uint64
	// number is 0 for an ordinary ticket that goes without.
	number  uint64
	timeout time.Duration
	entered Transition
	caller  uint32
	probe   bool
	cut     bool
	// impatient: taken as the probe for want of a better, with too little time for its time-out to say anything.
	impatient bool
}

// Probe says whether the attempt is the half-open test.
func (t Ticket) Probe() bool { return t.probe }

// Entered is the move to half-open, on the ticket whose admission made it.
func (t Ticket) Entered() (Transition, bool) { return t.entered, t.entered.To != 0 }

// Settle tells what became of the attempt, once; rnd is uniform in [0, 1) and lengthens a cooldown that begins. It returns the
// transition it caused, if any. A second Settle of the same ticket, however late, one of an older generation, and a probe's after the
// end of its lease are dropped.
//
// Of tickets outside half-open 256 outstanding ones are watched so; one admitted beyond them counts each time it is settled, until
// the generation ends.
func (t Ticket) Settle(now time.Time, r Result, rnd float64) (Transition, bool) {
	b := t.breaker
	if b == nil {
		return Transition{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Given > 0 && r.Given < t.timeout {
		t.timeout, t.cut = r.Given, true
		t.impatient = t.impatient || !b.patientLocked(&Attempt{Timeout: r.Given, Cut: true})
	}
	at := b.atLocked(now)
	switch {
	case t.generation != b.generation:
		return Transition{}, false
	case t.probe:
		if t.number != b.numbers.last || !b.leasedLocked(at) {
			return Transition{}, false
		}
		return b.settleProbeLocked(&t, &r, at, rnd)
	case !b.numbers.take(t.number):
		return Transition{}, false
	}
	return b.settleLocked(&t, &r, at, rnd)
}

func (b *Breaker) settleProbeLocked(t *Ticket, r *Result, at time.Duration, rnd float64) (Transition, bool) {
	b.leased = false
	switch r.Kind {
	case OK:
		b.succeeded++
		if b.succeeded < b.config.CloseAfter {
			return Transition{}, false
		}
		b.failedProbes = 0
		moved := b.moveLocked(Closed, CauseProbesSucceeded, at)
		b.ramping = b.config.Ramp > 0
		return moved, true
	case Failed:
		if r.TimedOut && (t.impatient || b.excusedLocked(t)) {
			// Another one as impatient would say as little: those with time get another chance to come first.
			b.anyProbeAt = later(at, b.cooldown)
			return Transition{}, false
		}
	case Throttled:
	default:
		return Transition{}, false
	}
	b.failedProbes++
	return b.openLocked(CauseProbeFailed, at, rnd), true
}

func (b *Breaker) settleLocked(t *Ticket, r *Result, at time.Duration, rnd float64) (Transition, bool) {
	if r.Kind != OK && r.Kind != Failed && r.Kind != Throttled {
		return Transition{}, false
	}
	counted := b.countLocked(t, r, at)
	cause := b.tripLocked(r, counted, at)
	if cause == 0 {
		return Transition{}, false
	}
	return b.openLocked(cause, at, rnd), true
}
