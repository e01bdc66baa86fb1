package h2

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sallyport/sallyport/call"
)

// Sink takes an answer as it comes. An error of either function gives the stream up.
type Sink struct {
	// Head is called with the final head. It gives the deadline of what follows, in place of that of Limits.
	Head func(status int, fields []call.Header) (time.Time, error)
	// Piece takes the next bytes of the body, good until it returns. No time-out of ours runs meanwhile, and the peer sends at most the
	// stream's window ahead.
	Piece func(p []byte) error
	// Paused, if set, reports whether the body of the request was waited for since it was last asked: the peer may owe nothing until it has
	// come, so that IdleBody then begins anew.
	Paused func() bool
}

// flow is what the attempt of a stream with a sink keeps.
type flow struct {
	headed bool
	spare  []*block // the last backlog, empty, to be filled again
}

// block is a part of a body on its way to a sink.
type block struct {
	n     int
	bytes [blockBytes]byte
}

const blockBytes = 32 << 10

// blocks are those of all connections: a stream holds as many as its sink is behind, at most its window, and one at a time is garbage.
var blocks = sync.Pool{New: func() any { return new(block) }}

// backlog is what a sink has not taken yet.
type backlog []*block

func (b *backlog) add(data []byte) {
	for len(data) > 0 {
		if len(*b) == 0 || (*b)[len(*b)-1].n == blockBytes {
			fresh := blocks.Get().(*block) //nolint:forcetypeassert // nothing else is put in
			fresh.n = 0
			*b = append(*b, fresh)
		}
		last := (*b)[len(*b)-1]
		n := copy(last.bytes[last.n:], data)
		last.n += n
		data = data[n:]
	}
}

// hand gives the sink what has come, and the peer the room to send as much again.
func (c *Conn) hand(s *stream, f *flow) *Error {
	sink := s.lim.Sink
	for {
		c.mu.Lock()
		head, full := s.head && !f.headed, s.backlog
		s.backlog, f.spare = f.spare, nil
		c.mu.Unlock()
		if head {
			f.headed = true
			deadline, err := sink.Head(s.status, s.fields) // they do not change any more
			if err != nil {
				return notTaken(err)
			}
			s.lim.Deadline = deadline // read by this goroutine alone
		}
		if len(full) == 0 {
			f.spare = full
			return nil
		}
		for i, b := range full {
			if err := sink.Piece(b.bytes[:b.n]); err != nil {
				return notTaken(err)
			}
			c.taken(s, int64(b.n))
			full[i] = nil
			blocks.Put(b)
		}
		f.spare = full[:0]
	}
}

func notTaken(err error) *Error {
	return &Error{Kind: Cancelled, Text: "the caller did not take the answer", Err: err}
}

// taken gives the peer back the window of so many bytes.
func (c *Conn) taken(s *stream, n int64) {
	c.mu.Lock()
	s.recvOwed += n
	back := s.recvOwed >= streamWindow/2 && !s.over
	if back {
		c.giveBackLocked(s.id, &s.recvWindow, &s.recvOwed)
	}
	c.mu.Unlock()
	if back {
		c.hurry()
	}
}

// feed supplies the body of a request whose content comes in pieces, until its end or that of ctx.
func (c *Conn) feed(ctx context.Context, s *stream) {
	for {
		select {
		case <-s.hungry:
		case <-ctx.Done():
			return
		}
		if !c.starves(s) {
			continue // told twice of one hunger
		}
		p, err := []byte(nil), error(nil)
		for len(p) == 0 && err == nil {
			p, err = s.req.Next()
		}
		switch {
		case err == nil:
			c.supply(s, p, true)
		case errors.Is(err, io.EOF):
			c.supply(s, p, false)
			return
		default:
			c.giveUp(s, &Error{Kind: Cancelled, Text: "the caller's body broke off", Err: err})
			tell([]*stream{s})
			return
		}
	}
}

func (c *Conn) starves(s *stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(s.rest) == 0 && s.more && !s.over
}

func (c *Conn) supply(s *stream, p []byte, more bool) {
	c.mu.Lock()
	s.rest, s.more = p, more
	if s.id != 0 {
		c.queueLocked(s)
	}
	c.mu.Unlock()
	c.hurry()
}

// feedLocked wakes the feeder, if rest is used up.
func (s *stream) feedLocked() {
	if !s.more || len(s.rest) > 0 {
		return
	}
	select {
	case s.hungry <- struct{}{}:
	default: // it will look anyway
	}
}

// ending: all that is left to send is the end, which takes no window.
func (s *stream) ending() bool { return len(s.rest) == 0 && !s.more }
