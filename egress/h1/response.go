package h1

import (
	"sync/atomic"
	"time"
)

// maxInterim bounds the interim answers before a final one, beside the bytes they take.
const maxInterim = 100

// Limits bound one answer while it is read. A zero limit allows nothing; a zero time is none.
type Limits struct {
	// HeaderBytes bounds the bytes of all heads of the answer, interim ones and trailers included, line ends too.
	HeaderBytes int
	// Headers bounds the field lines in them.
	Headers int
	// BodyBytes bounds the body. A declared length above it is refused before the body is read.
	BodyBytes int64

	// Deadline is the attempt's, which the connection's owner has set already; the time-outs below never reach past it.
	Deadline time.Time
	// HeaderTimeout is how long the whole head may take once the request is sent; 0 leaves it to Deadline.
	HeaderTimeout time.Duration
	// IdleBody is how long the body may pause; 0 leaves it to Deadline.
	IdleBody time.Duration

	// Sink, if any, takes the answer as it comes. BodyBytes bounds nothing then, and Response.Body stays nil.
	Sink *Sink

	// Heard is told what came back so far: 1 once there is a byte, the status once the final head is there. Nil: nobody asks.
	Heard *atomic.Int32
}

// Field is one field line. The value has no blanks around it, a folded one is joined by a space; its bytes are otherwise
// the peer's, UTF-8 or not.
type Field struct {
	Name, Value string
}

// Response is an answer. ReadResponse reuses the two slices when it is given the same Response again; their strings and
// Body are fresh every time and may be kept.
type Response struct {
	// Status is that of the final answer, set as soon as its head was complete and valid, so also when the body then
	// failed; else 0.
	Status int
	// Minor is the peer's version: HTTP/1.Minor.
	Minor int
	// Fields are those of the final head, in order, hop-by-hop ones included.
	Fields []Field
	// Trailers are those after a chunked body, without the ones that have no place there (RFC 9110 §6.5.1).
	Trailers []Field
	// Body is the content, only if it is complete; nil when empty.
	Body []byte
	// KeepAlive is how long the peer says it keeps an idle connection; 0 when it does not say.
	KeepAlive time.Duration
	// Close: the peer serves no other request on this connection.
	Close bool
	// Begun: at least one byte came back, whatever became of the answer.
	Begun bool
}

// ReadResponse reads the answer to the request begun last: interim answers, which it skips, the final head, the body and
// the trailers. Any error is an [*Error] and leaves the connection unusable; r then holds what was learned before it.
func (c *Conn) ReadResponse(r *Response, lim Limits) error {
	*r = Response{Fields: r.Fields[:0], Trailers: r.Trailers[:0]}
	c.lim, c.phase = lim, PhaseHead
	c.headLeft, c.fieldsLeft = lim.HeaderBytes, lim.Headers
	c.complete = false
	c.armHeader()
	err := c.readAnswer(r)
	c.answerEnded()
	c.dropLargeScratch()
	r.Begun = c.begun
	if err != nil {
		return err
	}
	c.lastOfPeer = r.Close
	c.mu.Lock()
	// An answer that overtook its request leaves the rest of that request on the connection, or a peer that stopped
	// reading: neither may meet another request (RFC 9112 §9.5).
	c.complete = c.send == sendWhole
	c.mu.Unlock()
	return nil
}

func (c *Conn) readAnswer(r *Response) error {
	for range maxInterim + 1 {
		status, f, err := c.readHead(r)
		if err != nil {
			r.Fields = r.Fields[:0]
			return err
		}
		if status < 200 {
			r.Fields = r.Fields[:0]
			continue
		}
		r.Status = status
		if c.lim.Heard != nil {
			c.lim.Heard.Store(int32(status)) //nolint:gosec // three digits
		}
		c.headerCame()
		c.phase = PhaseBody
		if c.lim.Sink != nil {
			return c.streamBody(r, f)
		}
		return c.readBody(r, f)
	}
	return c.broken(TooLarge, "too many interim answers")
}

// readHead reads one head, interim or final, and says how the body after it is framed.
func (c *Conn) readHead(r *Response) (status int, f framing, err error) {
	if status, err = c.readStatusAndFields(r); err != nil {
		return 0, f, err
	}
	f, problem := judge(r.Fields, r.Minor)
	if problem == "" && f.chunked {
		problem = judgeAnnouncedTrailers(r.Fields)
	}
	if problem != "" {
		return 0, f, c.broken(Malformed, problem)
	}
	r.KeepAlive, r.Close = f.keepAlive, f.close
	return status, f, nil
}

// readStatusAndFields reads one head and leaves its framing alone.
func (c *Conn) readStatusAndFields(r *Response) (status int, err error) {
	if err := c.expectProtocol(); err != nil {
		return 0, err
	}
	line, err := c.readHeadLine(false)
	if err != nil {
		return 0, err
	}
	if status, r.Minor, err = c.parseStatusLine(line); err != nil {
		return 0, err
	}
	r.Fields, err = c.readFields(r.Fields[:0], false)
	return status, err
}

// bodyless answers end with their head, whatever their fields say (RFC 9112 §6.3, rules 1 and 2).
func (c *Conn) bodyless(status int) bool {
	return c.headRequest || status < 200 || status == 204 || status == 304
}

// dropLargeScratch keeps a rare large answer from costing memory as long as the connection lives.
func (c *Conn) dropLargeScratch() {
	if cap(c.text) > keptBytes {
		c.text = nil
	}
	if cap(c.spill) > keptBytes {
		c.spill = nil
	}
	if len(c.in) > inBytes && c.r == c.w {
		c.in, c.r, c.w = make([]byte, inBytes), 0, 0
	}
}
