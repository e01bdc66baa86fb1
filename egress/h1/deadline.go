package h1

import "time"

// The deadlines of the connection belong to its owner. ReadResponse moves the read deadline only for the two time-outs of
// Limits, never past Limits.Deadline, and puts it back there.

// armHeader starts the wait for the head: now if the request is sent, else when the send ends, for until then the peer
// owes nothing.
func (c *Conn) armHeader() {
	if c.lim.HeaderTimeout <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.send == sendOpen {
		c.headerTimeout = c.lim.HeaderTimeout
		return
	}
	c.setReadDeadline(c.lim.HeaderTimeout)
}

// sendEnded notes the end of the send and starts the wait for the head if the reader is in it already. Setting the
// deadline under the lock keeps it from landing after the head, in the body's time; it does not block.
func (c *Conn) sendEnded(s sendState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send = s
	if c.headerTimeout > 0 {
		c.setReadDeadline(c.headerTimeout)
		c.headerTimeout = 0
	}
}

// headerCame ends the wait for the head.
func (c *Conn) headerCame() {
	if c.lim.HeaderTimeout <= 0 {
		return
	}
	c.mu.Lock()
	c.headerTimeout = 0
	c.mu.Unlock()
	c.setReadDeadline(0)
}

// armIdleBody gives the next read of a body its time.
func (c *Conn) armIdleBody() {
	if c.lim.IdleBody > 0 && (c.phase == PhaseBody || c.phase == PhaseTrailers) {
		c.setReadDeadline(c.lim.IdleBody)
	}
}

// answerEnded puts the read deadline back to the attempt's, so that none of ours passes on an idle connection.
func (c *Conn) answerEnded() {
	c.lim.Sink = nil // an idle connection holds on to nobody's answer
	if c.lim.IdleBody > 0 {
		c.setReadDeadline(0)
	}
}

// setReadDeadline lets reads wait for d, or with 0 until the attempt's deadline. An interruption at the same time wins,
// whichever came first: Interrupt stores its mark before it sets its deadline, and the mark is read after setting ours.
func (c *Conn) setReadDeadline(d time.Duration) {
	t := c.lim.Deadline
	if d > 0 {
		if u := time.Now().Add(d); t.IsZero() || u.Before(t) {
			t = u
		}
	}
	_ = c.c.SetReadDeadline(t) // a connection that cannot is closed, and the next read says so
	if c.interrupted.Load() {
		_ = c.c.SetReadDeadline(longAgo())
	}
}

// setDeadline is setReadDeadline for writes as well, without a time-out of its own.
func (c *Conn) setDeadline(t time.Time) {
	_ = c.c.SetDeadline(t) // as there
	if c.interrupted.Load() {
		_ = c.c.SetDeadline(longAgo())
	}
}

// longAgo is a deadline that has passed on every clock.
func longAgo() time.Time { return time.Unix(1, 0) }

// pauses gives a read of the body more time that ended by IdleBody, where the request pauses too.
func (c *Conn) pauses(err error) bool {
	s := c.lim.Sink
	if s == nil || s.Paused == nil || c.lim.IdleBody <= 0 || c.phase != PhaseBody && c.phase != PhaseTrailers || !isTimeout(err) ||
		c.interrupted.Load() || !time.Now().Before(c.lim.Deadline) || !s.Paused() {
		return false
	}
	c.armIdleBody()
	return true
}
