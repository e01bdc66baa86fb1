package breaker

import (
	"math"
	"sync"
	"time"
)

// leaseMargin is what a probe's lease grants beyond its attempt's timeout, for the result to find its way back.
const leaseMargin = time.Second

// rampStart is the share admitted just after closing.
const rampStart = 0.1

// Breaker guards one origin under one set of settings. It is safe for concurrent use; its critical sections are arithmetic only.
type Breaker struct {
	config Config

	mu sync.Mutex // protects the fields below
	// start is the first instant seen; all others are kept as time since then. clock is the latest: callers read theirs before
	// they get the lock, and nothing here may run backwards.
	start time.Time
	clock time.Duration

	mode       Mode
	state      State
	since      time.Duration
	generation uint64

	// While closed.
	window  window
	callers callers
	// consecutive failures with no success in between.
	consecutive uint32
	baseline    baseline
	numbers     numbers
	// answered is when the last answer of any kind came; before every window when none did.
	answered time.Duration
	// suspiciousUntil ends what a hint began.
	suspiciousUntil time.Duration

	// While open and half-open: the cooldown that led here, when it ends, and when any attempt will do as the probe.
	cooldown, openUntil, anyProbeAt time.Duration

	// While half-open. leased says that the last probe was not settled.
	leaseEnd time.Duration
	leased   bool
	// ramping: closed by probes, and admissions may still be rising.
	ramping bool
	// failedProbes and succeeded probes in a row; the former is the exponent of the next cooldown.
	failedProbes, succeeded uint32
}

// longAgo is before every window.
const longAgo = time.Duration(math.MinInt64 / 2)

// New makes a closed breaker. The configuration is within the bounds of its fields: the policy refuses any other.
func New(c Config) *Breaker {
	b := &Breaker{config: c, mode: Auto, state: Closed}
	b.forgetLocked()
	return b
}

// Attempt is what a breaker must know of an attempt that wants to start.
type Attempt struct {
	// Caller is who makes it.
	Caller string
	// Repeatable says that the operation may be repeated, whatever becomes of this attempt.
	Repeatable bool
	// Timeout is the time the attempt will be given.
	Timeout time.Duration
	// Cut says that Timeout is less than the policy's own attempt.timeout because of the caller: its deadline, or an
	// attempt_timeout of its own. The time-out of such an attempt is excused when Timeout is below TimeoutFloor, or below twice the
	// 95th percentile of successful latencies once 20 are known: impatience is not the origin's fault.
	Cut bool
}

// Admit asks whether the attempt may start now; rnd is uniform in [0, 1) and counts only while admissions rise after closing. Whoever
// gets a [Ticket] settles it once. The error is a *[RefusedError].
//
// As the probe is taken whoever comes first with an operation that may be repeated and the time to see it through: the policy's
// attempt timeout, or max(2·p95, 1s). When no such attempt was taken for the length of another cooldown, any is.
func (b *Breaker) Admit(now time.Time, a Attempt, rnd float64) (Ticket, error) {
	caller := hashCaller(a.Caller)
	b.mu.Lock()
	t, no := b.admitLocked(now, &a, rnd)
	b.mu.Unlock()
	if no.Reason != 0 {
		refused := no // copied here, so that only a refusal allocates
		return Ticket{}, &refused
	}
	t.breaker, t.caller = b, caller
	return t, nil
}

// Peek tells whether every attempt would be refused now, and takes nothing. No error is no promise: what depends on the attempt or on
// chance (who is fit to be the probe, the ramp) is decided by Admit. The error is a *[RefusedError].
func (b *Breaker) Peek(now time.Time) error {
	b.mu.Lock()
	no := b.closedDoorLocked(b.atLocked(now))
	b.mu.Unlock()
	if no.Reason != 0 {
		refused := no
		return &refused
	}
	return nil
}

func (b *Breaker) admitLocked(now time.Time, a *Attempt, rnd float64) (Ticket, RefusedError) {
	at := b.atLocked(now)
	if no := b.closedDoorLocked(at); no.Reason != 0 {
		return Ticket{}, no
	}
	if b.state == Closed {
		if no := b.rampLocked(at, rnd); no.Reason != 0 {
			return Ticket{}, no
		}
		return Ticket{generation: b.generation, number: b.numbers.give(), timeout: a.Timeout, cut: a.Cut}, RefusedError{}
	}
	return b.probeLocked(at, a)
}

// closedDoorLocked refuses what no attempt could change.
func (b *Breaker) closedDoorLocked(at time.Duration) RefusedError {
	switch {
	case b.mode == ForcedOpen:
		return RefusedError{Reason: RefusedForced}
	case b.state == Open && at < b.openUntil:
		return RefusedError{Reason: RefusedOpen, RetryAfter: b.openUntil - at}
	case b.state == HalfOpen && b.leasedLocked(at):
		return RefusedError{Reason: RefusedProbing, RetryAfter: min(b.leaseEnd-at, b.config.OpenBase)}
	}
	return RefusedError{}
}

func (b *Breaker) rampLocked(at time.Duration, rnd float64) RefusedError {
	if !b.ramping {
		return RefusedError{}
	}
	elapsed := at - b.since
	if elapsed >= b.config.Ramp {
		b.ramping = false
		return RefusedError{}
	}
	if rnd < rampStart+(1-rampStart)*float64(elapsed)/float64(b.config.Ramp) {
		return RefusedError{}
	}
	return RefusedError{Reason: RefusedRamp, RetryAfter: min(b.config.Ramp-elapsed, b.config.OpenBase)}
}

// probeLocked makes the attempt the probe if it is fit: the cooldown is over, and no probe is under way.
func (b *Breaker) probeLocked(at time.Duration, a *Attempt) (Ticket, RefusedError) {
	patient := b.patientLocked(a)
	fit := patient && a.Repeatable
	if !fit && at < b.anyProbeAt {
		return Ticket{}, RefusedError{Reason: RefusedUnfit, RetryAfter: min(b.anyProbeAt-at, b.config.OpenBase)}
	}
	var t Ticket
	if b.state == Open {
		t.entered = b.moveLocked(HalfOpen, CauseCooldownOver, at)
	}
	if fit {
		b.anyProbeAt = later(at, b.cooldown)
	}
	b.leased = true
	b.leaseEnd = later(at, later(max(a.Timeout, 0), leaseMargin))
	t.generation, t.number, t.probe = b.generation, b.numbers.next(), true
	t.timeout, t.cut, t.impatient = a.Timeout, a.Cut, !patient
	return t, RefusedError{}
}

// leasedLocked says whether a probe is under way. A lease that ended is over, whatever became of its attempt.
func (b *Breaker) leasedLocked(at time.Duration) bool { return b.leased && at < b.leaseEnd }

// moveLocked is the one place where the state changes. Every move begins a generation with fresh counters and frees the probe's
// place. The baseline stays: it is what the origin takes when it is well.
func (b *Breaker) moveLocked(to State, cause Cause, at time.Duration) Transition {
	t := Transition{From: b.state, To: to, Cause: cause, At: b.start.Add(at), Generation: b.generation + 1}
	b.state, b.since = to, at
	b.generation++
	b.forgetLocked()
	return t
}

// openLocked opens it for a cooldown as long as the failed probes so far ask for.
func (b *Breaker) openLocked(cause Cause, at time.Duration, rnd float64) Transition {
	t := b.moveLocked(Open, cause, at)
	b.cooldown = cooldown(&b.config, b.failedProbes, rnd)
	b.openUntil = later(at, b.cooldown)
	b.anyProbeAt = later(b.openUntil, b.cooldown)
	t.Cooldown = b.cooldown
	return t
}

// forgetLocked makes every counter fresh.
func (b *Breaker) forgetLocked() {
	b.window = newWindow()
	b.callers = callers{streak: 1}
	b.numbers = numbers{}
	b.consecutive, b.answered, b.suspiciousUntil, b.ramping = 0, longAgo, longAgo, false
	b.leased, b.succeeded = false, 0
}

// atLocked turns a time into what the breaker counts in, never before what it has already seen.
func (b *Breaker) atLocked(now time.Time) time.Duration {
	if b.start.IsZero() {
		b.start = now
	}
	b.clock = max(b.clock, now.Sub(b.start))
	return b.clock
}

// later adds and saturates.
func later(at, d time.Duration) time.Duration {
	if d > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + d
}
