package h1

import "slices"

// ReadTunnel reads the answer to a CONNECT request up to the end of its head; interim answers are skipped. After a 2xx the connection is
// a tunnel from the next byte on, whatever the framing fields say (RFC 9110 §9.3.6), and rest is what of the tunnel came with the
// head. The body of any other answer is not read. Of the limits those of the head count. Either way this Conn serves no other request.
func (c *Conn) ReadTunnel(r *Response, lim Limits) (rest []byte, err error) {
	*r = Response{Fields: r.Fields[:0], Trailers: r.Trailers[:0]}
	c.lim, c.phase = lim, PhaseHead
	c.headLeft, c.fieldsLeft = lim.HeaderBytes, lim.Headers
	c.complete = false
	r.Status, err = c.readFinalHead(r)
	r.Begun = c.begun
	if err != nil {
		r.Fields = r.Fields[:0]
		return nil, err
	}
	return slices.Clone(c.in[c.r:c.w]), nil
}

func (c *Conn) readFinalHead(r *Response) (status int, err error) {
	for range maxInterim + 1 {
		if status, err = c.readStatusAndFields(r); err != nil {
			return 0, err
		}
		if status >= 200 {
			return status, nil
		}
	}
	return 0, c.broken(TooLarge, "too many interim answers")
}
