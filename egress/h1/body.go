package h1

import (
	"errors"
	"io"
	"slices"
)

// growBytes is how far a body of unknown length grows ahead of its bytes at first: what a peer declares must not
// allocate what it never sends.
const growBytes = 64 << 10

func (c *Conn) readBody(r *Response, f framing) (err error) {
	var body []byte
	switch {
	case c.bodyless(r.Status):
		return nil
	case f.chunked:
		body, err = c.readChunked()
		if err == nil {
			err = c.readTrailers(r)
		}
	case f.length > max(c.lim.BodyBytes, 0):
		return c.broken(TooLarge, "declared length over the limit")
	case f.length == 0:
		return nil
	case f.length > 0:
		// The length is within the caller's limit, so one exact allocation may trust it.
		body, err = c.appendBody(make([]byte, 0, f.length), int(f.length))
	default:
		r.Close = true
		body, err = c.readToEnd()
	}
	if err == nil && len(body) > 0 {
		r.Body = body
	}
	return err
}

// appendBody appends the next n bytes of the stream. Large pieces go straight to their place; the last one goes through
// the buffer, so that bytes after the answer show.
func (c *Conn) appendBody(body []byte, n int) ([]byte, error) {
	for n > 0 {
		if c.r == c.w && n < len(c.in) {
			if err := c.fill(); err != nil {
				return nil, c.readFailed(err)
			}
		}
		body = slices.Grow(body, min(n, max(len(body), growBytes)))
		room := body[len(body):min(cap(body), len(body)+n)]
		got := copy(room, c.in[c.r:c.w])
		c.r += got
		if got == 0 {
			var err error
			if got, err = c.read(room); err != nil {
				return nil, c.readFailed(err)
			}
		}
		body = body[:len(body)+got]
		n -= got
	}
	return body, nil
}

// readToEnd reads a body that ends with its connection (RFC 9112 §6.3, rule 8). Only a clean end counts: a reset, or TLS
// without close_notify (io.ErrUnexpectedEOF), may have cut it anywhere (RFC 9112 §8, §9.8).
func (c *Conn) readToEnd() ([]byte, error) {
	var body []byte
	limit := int(max(c.lim.BodyBytes, 0))
	for {
		if have := c.w - c.r; have > 0 {
			if have > limit-len(body) {
				return nil, c.broken(TooLarge, "body over the limit")
			}
			body = append(body, c.in[c.r:c.w]...)
			c.r = c.w
		}
		var err error
		if room := limit - len(body); room >= len(c.in) && len(body) > 0 {
			body = slices.Grow(body, min(room, max(len(body), len(c.in))))
			var got int
			got, err = c.read(body[len(body):min(cap(body), limit)])
			body = body[:len(body)+got]
		} else {
			err = c.fill()
		}
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, c.readFailed(err)
		}
	}
}
