package h1

import "bytes"

// protocol is how every status line we can read begins. Anything else is known for what it is by its first bytes,
// without waiting for a line end that another protocol may never send.
const protocol = "HTTP/1."

// span is where one field lies in Conn.text: the name from name to value, the value from there to end.
type span struct {
	name, value, end int
}

func (c *Conn) expectProtocol() error {
	for {
		have := min(c.w-c.r, len(protocol))
		if string(c.in[c.r:c.r+have]) != protocol[:have] {
			return c.broken(Malformed, "not an HTTP/1.0 or HTTP/1.1 answer")
		}
		if have == len(protocol) {
			return nil
		}
		if err := c.fill(); err != nil {
			return c.readFailed(err)
		}
	}
}

// parseStatusLine takes a status line strictly (RFC 9112 §4), but for a missing reason, with or without the blank before
// it. 101 would hand the connection to a protocol nobody asked for.
func (c *Conn) parseStatusLine(line []byte) (status, minor int, err error) {
	// "HTTP/1." is there already.
	rest := line[len(protocol):]
	if len(rest) < 5 || rest[0] != '0' && rest[0] != '1' || rest[1] != ' ' {
		return 0, 0, c.broken(Malformed, "status line")
	}
	minor = int(rest[0] - '0')
	code, reason := rest[2:5], rest[5:]
	if !isDigit(code[0]) || !isDigit(code[1]) || !isDigit(code[2]) {
		return 0, 0, c.broken(Malformed, "status is not three digits")
	}
	status = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	switch {
	case status < 100 || status > 599:
		return 0, 0, c.broken(Malformed, "status outside 100 to 599")
	case status == 101:
		return 0, 0, c.broken(Malformed, "101 to a request that asked for no upgrade")
	case len(reason) > 0 && (reason[0] != ' ' || !isFieldValue(reason)):
		return 0, 0, c.broken(Malformed, "reason phrase")
	}
	return status, minor, nil
}

// readFields reads field lines to the empty line and appends them to dst. All text of a head becomes one string, cut into
// names and values: one allocation however many fields. With crlf a bare LF ends no line.
func (c *Conn) readFields(dst []Field, crlf bool) ([]Field, error) {
	c.text, c.spans = c.text[:0], c.spans[:0]
	for {
		line, err := c.readHeadLine(crlf)
		if err != nil {
			return dst, err
		}
		if len(line) == 0 {
			break
		}
		if isBlank(line[0]) {
			err = c.foldLine(line)
		} else {
			err = c.addField(line)
		}
		if err != nil {
			return dst, err
		}
	}
	text := string(c.text)
	for _, s := range c.spans {
		dst = append(dst, Field{Name: text[s.name:s.value], Value: text[s.value:s.end]})
	}
	return dst, nil
}

// addField takes one field line (RFC 9112 §5). A blank before the colon is no part of a token: refused (§5.1).
func (c *Conn) addField(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon < 0 || !isToken(line[:colon]) {
		return c.broken(Malformed, "field name")
	}
	value := trimBlanks(line[colon+1:])
	if !isFieldValue(value) {
		return c.broken(Malformed, "control byte in a field value")
	}
	if c.fieldsLeft <= 0 {
		return c.broken(TooLarge, "too many fields")
	}
	c.fieldsLeft--
	s := span{name: len(c.text), value: len(c.text) + colon}
	c.text = append(append(c.text, line[:colon]...), value...)
	s.end = len(c.text)
	c.spans = append(c.spans, s)
	return nil
}

// foldLine joins a line that begins with a blank to the value before it, by one space (RFC 9112 §5.2).
func (c *Conn) foldLine(line []byte) error {
	if len(c.spans) == 0 {
		return c.broken(Malformed, "a folded line before any field")
	}
	more := trimBlanks(line)
	if !isFieldValue(more) {
		return c.broken(Malformed, "control byte in a field value")
	}
	if len(more) == 0 {
		return nil
	}
	last := &c.spans[len(c.spans)-1]
	if last.end > last.value {
		c.text = append(c.text, ' ')
	}
	c.text = append(c.text, more...)
	last.end = len(c.text)
	return nil
}
