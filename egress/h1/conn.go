package h1

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// inBytes is the read buffer: most heads and small answers arrive in one read of it.
	inBytes = 8 << 10
	// keptBytes is how large a scratch buffer may stay with an idle connection.
	keptBytes = 32 << 10
	// maxEmptyReads is how often a connection may return neither bytes nor an error before it counts as broken.
	maxEmptyReads = 100
)

// Conn is one HTTP/1.1 connection, for one exchange after another: [Conn.Start], [Conn.Field]…, [Conn.Send],
// [Conn.ReadResponse], and again if [Conn.Reusable]. It is not safe for concurrent use, except that Send may run on one
// goroutine while ReadResponse runs on another, that Written may be read at any time, and that Interrupt may be called
// at any time.
//
// The owner of the net.Conn sets its deadlines before an exchange, and closes it.
type Conn struct {
	c net.Conn

	// The reader: in[r:w] is read but not used; readErr is the end of the stream, which no later read undoes.
	in      []byte
	r, w    int
	readErr error
	// begun: a byte of the current answer arrived.
	begun bool
	// spill holds a line that outgrew the buffer; text and spans a head until it becomes one string.
	spill, text []byte
	spans       []span
	phase       Phase
	lim         Limits
	// headLeft and fieldsLeft are what remains of the limits for this answer, over all its heads and its trailers.
	headLeft, fieldsLeft int

	// The writer: out is the request being built, refused the first reason not to send it.
	out     []byte
	refused string
	// headRequest: the method is HEAD, whose answer has no body. closeAsked: the request said Connection: close.
	headRequest, closeAsked bool
	written                 atomic.Int64
	requests                uint64
	interrupted             atomic.Bool

	// started: a request was begun. complete: its answer was read whole, and the request had been sent by then.
	// lastOfPeer: the peer serves no other request here.
	started, complete, lastOfPeer bool

	mu sync.Mutex // protects the fields below, which Send and ReadResponse share
	// send is how far the request got.
	send sendState
	// headerTimeout is armed when the send ends; 0 when there is none or it is armed already.
	headerTimeout time.Duration
}

type sendState uint8

const (
	sendOpen sendState = iota
	sendWhole
	sendFailed
)

// New returns a Conn over c, which may be a TLS connection whose handshake is over.
func New(c net.Conn) *Conn {
	return &Conn{c: c, in: make([]byte, inBytes)}
}

// Reusable reports whether the connection may serve another request: the last answer was complete and left both sides
// willing (RFC 9112 §9.3), the request had been sent whole before its answer ended, and not a byte came after that
// answer. A byte that comes later is found by [Conn.Idle].
func (c *Conn) Reusable() bool {
	return c.complete && !c.closeAsked && !c.lastOfPeer && c.r == c.w && c.readErr == nil && !c.interrupted.Load()
}

// Surplus reports whether bytes are there that came after the last answer, although no request asked for them.
func (c *Conn) Surplus() bool { return c.complete && c.r < c.w }

// Idle looks at a connection between two exchanges without waiting: nil means it is still quiet. An error means the
// peer ended it, or sent bytes that nobody asked for; a request written now would be lost, or answered by those bytes.
//
// The look needs a connection with a method ReadNow([]byte) (int, error) that returns an error whose
// Timeout() is true, when nothing is there; on any other only the buffer is looked at.
func (c *Conn) Idle() error {
	c.phase = PhaseIdle
	if c.r < c.w {
		return &Error{Kind: Malformed, Phase: PhaseIdle, Err: ErrUnsolicited}
	}
	if c.readErr != nil {
		return c.readFailed(c.readErr)
	}
	rn, ok := c.c.(interface{ ReadNow(p []byte) (int, error) })
	if !ok {
		return nil
	}
	n, err := rn.ReadNow(c.in[:1])
	switch {
	case n > 0:
		c.readErr = ErrUnsolicited // the byte is gone: what follows would be read out of step
		return &Error{Kind: Malformed, Phase: PhaseIdle, Err: ErrUnsolicited}
	case err == nil, isTimeout(err):
		return nil
	}
	c.readErr = err
	return c.readFailed(err)
}

// Interrupt makes reads and writes under way, and all later ones, fail with a time-out. Unlike a deadline set from
// outside it is not undone by the deadlines ReadResponse sets. It ends the connection's usefulness for good.
func (c *Conn) Interrupt() {
	c.interrupted.Store(true)
	_ = c.c.SetDeadline(longAgo()) // fails only on a closed connection, which needs no interrupting
}

// fill reads more into the buffer, which must not be full of unused bytes.
func (c *Conn) fill() error {
	if c.r > 0 {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	n, err := c.read(c.in[c.w:])
	c.w += n
	return err
}

// read is one read of the connection: bytes or an error, never both. An error that came with bytes waits for the next.
func (c *Conn) read(p []byte) (int, error) {
	if c.readErr != nil {
		return 0, c.readErr
	}
	c.armIdleBody()
	for range maxEmptyReads {
		n, err := c.c.Read(p)
		for n == 0 && err != nil && c.pauses(err) {
			n, err = c.c.Read(p)
		}
		c.readErr = err
		if n > 0 {
			if !c.begun && c.lim.Heard != nil {
				c.lim.Heard.Store(1)
			}
			c.begun = true
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
	c.readErr = io.ErrNoProgress
	return 0, c.readErr
}
