package h2

import "golang.org/x/net/http2"

// silentMost is how many attempts in a row may be cancelled without a sign of life between: a caller that loses patience early says
// little of the connection, several say enough.
const silentMost = 3

func (c *Conn) look(s *stream) (over, head, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.over, s.head, s.whole
}

// giveUp ends a stream from our side, unless it has just ended by itself; the connection lives on for the others.
//
// It takes no new stream, though, when it is as good as dead: the stream's time passed and not a frame came in all of it, or the peer
// did not even take the request (semantics.md §2: a connection on which no frame came during a timed-out attempt is not reused).
func (c *Conn) giveUp(s *stream, why *Error) {
	c.mu.Lock()
	if s.over {
		c.mu.Unlock()
		return
	}
	if s.id != 0 {
		c.resetLocked(s.id, http2.ErrCodeCancel)
	}
	c.finishLocked(s, why)
	heard := c.frames != s.frames
	switch {
	case why.Kind == Timeout:
		c.stale = c.stale || !heard || c.writing && !s.whole
	case !heard:
		c.silent++
		c.stale = c.stale || c.silent >= silentMost
	}
	stale := c.stale
	c.judgeLocked()
	c.mu.Unlock()
	c.hurry()
	if stale {
		c.announce()
	}
}

// resetLocked tells the peer that a stream is over.
func (c *Conn) resetLocked(id uint32, code http2.ErrCode) {
	if c.speaksLocked() {
		must(c.frame.WriteRSTStream(id, code))
	}
}
