package h1

import (
	"errors"
	"io"
	"math"
	"strconv"
	"time"
)

// Sink takes an answer as it comes. An error of either function ends the exchange, and is the cause of the [*Error] that it ends with.
type Sink struct {
	// Head is called when the final head is there, in the Response that is being read. It gives the deadline of what follows, in place of that
	// of Limits.
	Head func() (time.Time, error)
	// Piece takes the next bytes of the body, good until it returns. No time-out of ours runs meanwhile.
	Piece func(p []byte) error
	// Paused, if set, reports whether the body of the request was waited for since it was last asked: the peer may owe nothing until it has
	// come, so that IdleBody then begins anew.
	Paused func() bool
}

// pieceBytes is how large a piece of a body is at most, in either direction.
const pieceBytes = 32 << 10

// streamBody hands the body to the sink.
func (c *Conn) streamBody(r *Response, f framing) error {
	deadline, err := c.lim.Sink.Head()
	if err != nil {
		return c.sinkFailed(err)
	}
	c.lim.Deadline = deadline
	c.setDeadline(deadline)
	switch {
	case c.bodyless(r.Status):
		return nil
	case f.chunked:
		if err := c.streamChunked(); err != nil {
			return err
		}
		return c.readTrailers(r)
	case f.length >= 0:
		return c.streamBytes(f.length)
	}
	r.Close = true
	err = c.streamBytes(math.MaxInt64)
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == Lost && errors.Is(err, io.EOF) {
		return nil // only a clean end counts, see readToEnd
	}
	return err
}

// streamChunked hands over a chunked body, by the rules of readChunked.
func (c *Conn) streamChunked() error {
	extensions := maxExtensions
	for {
		size, err := c.chunkHead(&extensions)
		if err != nil || size == 0 {
			return err
		}
		if err := c.streamBytes(size); err != nil {
			return err
		}
		if err := c.expectLineEnd(); err != nil {
			return err
		}
	}
}

func (c *Conn) sinkFailed(err error) error {
	return &Error{Kind: NotTaken, Phase: PhaseBody, Err: err}
}

// streamBytes hands over the next n bytes of the stream; until its end with the largest n, which is an error that says io.EOF.
func (c *Conn) streamBytes(n int64) error {
	for n > 0 {
		if c.r == c.w {
			c.growIn()
			if err := c.fill(); err != nil {
				return c.readFailed(err)
			}
		}
		p := c.in[c.r:c.w]
		p = p[:min(int64(len(p)), n)]
		if err := c.lim.Sink.Piece(p); err != nil {
			return c.sinkFailed(err)
		}
		c.r += len(p)
		n -= int64(len(p))
	}
	return nil
}

// growIn has the empty buffer hold a piece, until the answer ends.
func (c *Conn) growIn() {
	if len(c.in) < pieceBytes {
		c.in, c.r, c.w = make([]byte, pieceBytes), 0, 0
	}
}

// SendStream finishes the head and writes it, and then the pieces that next gives, until io.EOF, as one chunked body (RFC 9112 §7.1). Another
// error of next ends the sending, as a write that failed does.
func (c *Conn) SendStream(next func() ([]byte, error)) error {
	if c.refused != "" {
		c.sendEnded(sendFailed)
		return &Error{Kind: Refused, Phase: PhaseSend, Problem: c.refused}
	}
	b := append(c.out, "Transfer-Encoding: chunked\r\n\r\n"...)
	c.out = nil
	err := c.write(b)
	if c.written.Load() > 0 {
		c.requests++
	}
	for whole := false; err == nil && !whole; {
		var p []byte
		if p, err = next(); errors.Is(err, io.EOF) { // of next alone: a write that failed so has not sent all
			whole, err = true, nil
		}
		for len(p) > 0 && err == nil {
			n := min(len(p), pieceBytes)
			b = strconv.AppendInt(b[:0], int64(n), 16)
			b = append(b, "\r\n"...)
			b = append(b, p[:n]...)
			b = append(b, "\r\n"...)
			err = c.write(b)
			p = p[n:]
		}
		if whole && err == nil {
			err = c.write(append(b[:0], "0\r\n\r\n"...))
		}
	}
	if err == nil {
		c.sendEnded(sendWhole)
		return nil
	}
	c.sendEnded(sendFailed)
	k := WriteFailed
	if isTimeout(err) {
		k = Timeout
	}
	return &Error{Kind: k, Phase: PhaseSend, Err: err}
}
