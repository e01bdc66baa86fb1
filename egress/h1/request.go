package h1

import (
	"io"
	"strconv"
	"strings"
)

// copyBytes is up to what size head and body leave in one write. The body of a larger request follows in a second one,
// and its beginning fills up the first, so that no small packet goes ahead of it.
const copyBytes = 16 << 10

// Start begins a request and forgets the last exchange. What cannot be sent is refused by Send: an illegal byte, and any
// request after an exchange that left the connection not [Conn.Reusable].
func (c *Conn) Start(method, target, host string) {
	c.refused = ""
	if c.started && !c.Reusable() {
		// Bytes that are left of an earlier exchange must never answer this one.
		c.refuse("this connection cannot serve another request")
	}
	if method == "" || target == "" || !visible(method) || !visible(target) || !visible(host) {
		c.refuse("a blank or control byte in the request line or Host")
	}
	c.started, c.complete, c.begun = true, false, false
	c.headRequest, c.closeAsked, c.lastOfPeer = method == "HEAD", false, false
	c.written.Store(0)
	c.mu.Lock()
	c.send, c.headerTimeout = sendOpen, 0
	c.mu.Unlock()

	b := append(c.out[:0], method...)
	b = append(b, ' ')
	b = append(b, target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	c.out = append(b, "\r\n"...)
}

// Field adds one field line. Names and values are checked long before; the check here is the last line of defence against
// a split request (RFC 9112 §11.2), and makes Send fail.
func (c *Conn) Field(name, value string) {
	if !isToken(name) || !isFieldValue(value) {
		c.refuse("an illegal byte in a field")
		return
	}
	switch {
	case strings.EqualFold(name, "Host"), strings.EqualFold(name, "Content-Length"),
		strings.EqualFold(name, "Transfer-Encoding"):
		c.refuse("a field that Start and Send write")
		return
	case strings.EqualFold(name, "Connection"):
		c.closeAsked = c.closeAsked || hasToken(value, "close")
	}
	b := append(c.out, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	c.out = append(b, "\r\n"...)
}

// Send finishes the head and writes head and body. With bodyless no Content-Length is written and body must be empty
// (RFC 9110 §8.6: a method that anticipates no content gets none, others say 0).
//
// After a failure of kind WriteFailed or Timeout the peer may have answered already, so ReadResponse is worth calling;
// the connection is not reusable whatever it brings. A body that does not fit the network's buffers should be sent on a
// goroutine of its own beside ReadResponse, or an early answer followed by a reset is lost.
func (c *Conn) Send(body []byte, bodyless bool) error {
	if bodyless && len(body) > 0 {
		c.refuse("a body where none was announced")
	}
	if c.refused != "" {
		c.sendEnded(sendFailed)
		return &Error{Kind: Refused, Phase: PhaseSend, Problem: c.refused}
	}
	b := c.out
	if !bodyless {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	first := len(body)
	if first > copyBytes {
		first = max(0, copyBytes-len(b))
	}
	b = append(b, body[:first]...)
	err := c.write(b)
	if c.written.Load() > 0 {
		c.requests++
	}
	if err == nil && first < len(body) {
		err = c.write(body[first:])
	}
	c.out = b[:0]
	if cap(b) > keptBytes {
		c.out = nil
	}
	if err != nil {
		c.sendEnded(sendFailed)
		k := WriteFailed
		if isTimeout(err) {
			k = Timeout
		}
		return &Error{Kind: k, Phase: PhaseSend, Err: err}
	}
	c.sendEnded(sendWhole)
	return nil
}

// Written is how many bytes of the request the connection took since Start. It is final once Send has returned; while a
// write is under way it leaves that write out, so zero proves that nothing was sent only after Send.
func (c *Conn) Written() int64 { return c.written.Load() }

// Requests is how many requests the connection took at least one byte of, ever.
func (c *Conn) Requests() uint64 { return c.requests }

func (c *Conn) write(p []byte) error {
	n, err := c.c.Write(p)
	c.written.Add(int64(n))
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// refuse keeps the first reason.
func (c *Conn) refuse(problem string) {
	if c.refused == "" {
		c.refused = problem
	}
}
