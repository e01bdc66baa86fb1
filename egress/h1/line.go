package h1

import "bytes"

// readHeadLine reads one line of a head or of the trailers, on the account of the header limit.
func (c *Conn) readHeadLine(crlf bool) ([]byte, error) {
	line, n, err := c.readLine(c.headLeft, crlf)
	c.headLeft -= n
	return line, err
}

// readLine reads one line of at most limit bytes, its end included, and returns it without its end, together with the
// bytes it took. The line is valid until the next read.
//
// A head's line may end in LF alone (RFC 9112 §2.2); with crlf it may not. A CR anywhere else stays in the line, where no
// part of the grammar takes it: others may see a line end there, and other fields than we do.
func (c *Conn) readLine(limit int, crlf bool) (line []byte, n int, err error) {
	c.spill = c.spill[:0]
	seen := 0 // bytes of the window that hold no LF, so that a line that drips in is searched once
	for {
		window := c.in[c.r:c.w]
		if i := bytes.IndexByte(window[seen:], '\n'); i >= 0 {
			i += seen
			line = window[:i+1]
			c.r += i + 1
			break
		}
		seen = len(window)
		// Even a line end as the next byte would be one too many.
		if len(c.spill)+seen >= limit {
			return nil, 0, c.broken(TooLarge, "line over the limit")
		}
		if seen == len(c.in) {
			c.spill = append(c.spill, window...)
			c.r, c.w, seen = 0, 0, 0
		}
		if err := c.fill(); err != nil {
			return nil, 0, c.readFailed(err)
		}
	}
	if len(c.spill) > 0 {
		c.spill = append(c.spill, line...)
		line = c.spill
	}
	n = len(line)
	if n > limit {
		return nil, 0, c.broken(TooLarge, "line over the limit")
	}
	line = line[:n-1]
	if len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	} else if crlf {
		return nil, 0, c.broken(Malformed, "a line of the chunked coding without CRLF")
	}
	return line, n, nil
}
