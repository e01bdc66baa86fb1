package h1

import (
	"math"
	"strings"
)

const (
	// maxChunkLine bounds the line with a chunk's size and extensions, maxExtensions the extensions of a whole body: they
	// mean nothing to us and must not become a way to send without end (RFC 9112 §7.1.1).
	maxChunkLine  = 1 << 10
	maxExtensions = 8 << 10
	// maxSizeDigits holds every size that fits 64 bits.
	maxSizeDigits = 16
)

// readChunked reads the chunks of a body (RFC 9112 §7.1), strictly: where two readers disagree on the end of a chunk, one
// of them reads a body as an answer.
func (c *Conn) readChunked() ([]byte, error) {
	var body []byte
	extensions := maxExtensions
	for {
		size, err := c.chunkHead(&extensions)
		switch {
		case err != nil:
			return nil, err
		case size == 0:
			return body, nil
		case size > c.lim.BodyBytes-int64(len(body)):
			return nil, c.broken(TooLarge, "body over the limit")
		}
		if body, err = c.appendBody(body, int(size)); err != nil {
			return nil, err
		}
		if err := c.expectLineEnd(); err != nil {
			return nil, err
		}
	}
}

// chunkHead reads the line with the size of the next chunk, 0 for the last. extensions is how many bytes of those the body may still have.
func (c *Conn) chunkHead(extensions *int) (size int64, err error) {
	line, _, err := c.readLine(maxChunkLine, true)
	if err != nil {
		return 0, err
	}
	size, digits := chunkSize(line)
	extension := line[digits:]
	switch {
	case digits == 0 || len(extension) > 0 && extension[0] != ';' || !isFieldValue(extension):
		return 0, c.broken(Malformed, "chunk size")
	case len(extension) > *extensions:
		return 0, c.broken(TooLarge, "chunk extensions")
	}
	*extensions -= len(extension)
	return size, nil
}

// chunkSize reads the hexadecimal digits a line begins with; it stops at the bound, and what follows is then no ';'. A size
// beyond an int64 becomes the largest.
func chunkSize(line []byte) (size int64, digits int) {
	for ; digits < len(line) && digits < maxSizeDigits; digits++ {
		b := line[digits]
		switch {
		case isDigit(b):
			b -= '0'
		case 'a' <= b && b <= 'f':
			b -= 'a' - 10
		case 'A' <= b && b <= 'F':
			b -= 'A' - 10
		default:
			return size, digits
		}
		if size > math.MaxInt64>>4 {
			size = math.MaxInt64
			continue
		}
		size = size<<4 | int64(b)
	}
	return size, digits
}

// expectLineEnd takes the CRLF after a chunk's data.
func (c *Conn) expectLineEnd() error {
	for _, want := range [...]byte{'\r', '\n'} {
		if c.r == c.w {
			if err := c.fill(); err != nil {
				return c.readFailed(err)
			}
		}
		if c.in[c.r] != want {
			return c.broken(Malformed, "chunk data longer than its size")
		}
		c.r++
	}
	return nil
}

// readTrailers reads the section after the last chunk, under the limits and rules of a head, and leaves out what has no
// meaning or does harm there.
func (c *Conn) readTrailers(r *Response) (err error) {
	c.phase = PhaseTrailers
	if r.Trailers, err = c.readFields(r.Trailers[:0], true); err != nil {
		r.Trailers = r.Trailers[:0]
		return err
	}
	kept := r.Trailers[:0]
	for _, h := range r.Trailers {
		if !barredTrailer(h.Name) {
			kept = append(kept, h)
		}
	}
	r.Trailers = kept
	return nil
}

// barredTrailer names framing, routing and hop-by-hop fields (RFC 9110 §6.5.1, §7.6.1).
func barredTrailer(name string) bool {
	for _, barred := range [...]string{
		"Content-Length", "Transfer-Encoding", "Trailer", "Host", "Connection", "Keep-Alive", "Proxy-Connection", "TE", "Upgrade",
		"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info",
	} {
		if strings.EqualFold(name, barred) {
			return true
		}
	}
	return false
}
