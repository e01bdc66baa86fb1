package breaker

import "time"

// Force sets who decides. A mode that is already set changes nothing but is reported all the same, From equal to To; so is a
// ForcedClosed of a closed breaker. Back to Auto it is closed and knows nothing, whatever it was: the operator who lifts a force
// wants the origin tried. An unknown mode is Auto.
func (b *Breaker) Force(mode Mode, now time.Time) Transition {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.atLocked(now)
	if mode != ForcedOpen && mode != ForcedClosed {
		mode = Auto
	}
	if mode == b.mode {
		return Transition{From: b.state, To: b.state, Cause: CauseForced, At: b.start.Add(at), Generation: b.generation}
	}
	b.mode = mode
	return b.restartLocked(CauseForced, at)
}

// Reset forgets everything learned, the baseline included, and closes. A forced mode stays: it was set on purpose, and forgetting
// counters must not send traffic to an origin that someone holds shut.
func (b *Breaker) Reset(now time.Time) Transition {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.baseline = baseline{}
	return b.restartLocked(CauseReset, b.atLocked(now))
}

// Trim gives back the memory of a window that nothing is in. No answer is another one because of it; whoever keeps breakers of idle
// origins calls it now and then.
func (b *Breaker) Trim(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.window.trim(b.atLocked(now), b.config.Window)
}

// restartLocked begins where the mode says.
func (b *Breaker) restartLocked(cause Cause, at time.Duration) Transition {
	b.cooldown, b.openUntil, b.anyProbeAt, b.failedProbes = 0, 0, 0, 0
	if b.mode == ForcedOpen {
		return b.moveLocked(Open, cause, at)
	}
	return b.moveLocked(Closed, cause, at)
}

// Hint passes on that others had trouble with the origin. It opens nothing: for the length of a window, or until a success here,
// half of ConsecutiveFailures and half of MinRequests are enough. Only a closed breaker can become suspicious.
func (b *Breaker) Hint(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.atLocked(now)
	if b.state == Closed {
		b.suspiciousUntil = later(at, b.config.Window)
	}
}
