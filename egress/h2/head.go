package h2

import (
	"errors"
	"net/textproto"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sallyport/sallyport/call"
)

// blockMost bounds a header block before it is decompressed, and one value in it. It is the largest limit a policy can set and some
// room for the frames: within it a head over the limit of its stream costs the others on the connection nothing, since it is
// still decompressed, and thrown away.
const blockMost = 1<<20 + 64<<10

// takeHeaders takes the first frame of a header block, which is the only one most of the time.
func (c *Conn) takeHeaders(f *http2.HeadersFrame) *Error {
	s, why := c.headBegins(f)
	if why != nil {
		return why
	}
	if f.HeadersEnded() {
		return c.decode(f.StreamID, s, f.HeaderBlockFragment(), f.StreamEnded())
	}
	c.fragments = append(c.fragments[:0], f.HeaderBlockFragment()...)
	c.blockID, c.blockEnds, c.blockCost = f.StreamID, f.StreamEnded(), len(c.fragments)
	return nil
}

// takeContinuation takes another. The framer has seen to their order. They are decompressed together: one by one, endless tiny ones
// would have what came before read again and again.
func (c *Conn) takeContinuation(f *http2.ContinuationFrame) *Error {
	c.mu.Lock()
	c.frames++
	s := c.streams[c.blockID]
	c.mu.Unlock()
	const each = 64 // of which endless empty ones could come
	if c.blockCost += len(f.HeaderBlockFragment()) + each; c.blockCost > blockMost {
		return c.spoilt(s, &Error{Kind: TooLarge, Text: "a header block without end", code: http2.ErrCodeEnhanceYourCalm})
	}
	c.fragments = append(c.fragments, f.HeaderBlockFragment()...)
	if !f.HeadersEnded() {
		return nil
	}
	block := c.fragments
	if cap(c.fragments) > keptBytes {
		c.fragments = nil
	}
	return c.decode(c.blockID, s, block, c.blockEnds)
}

func (c *Conn) headBegins(f *http2.HeadersFrame) (*stream, *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.arrivedLocked(f); why != nil {
		return nil, why
	}
	s, why := c.recipientLocked(f.StreamID)
	if s != nil {
		s.beginLocked()
		c.chatter = 0
	} else if c.chatter++; why == nil && c.chatter > chatterMost {
		why = broken(http2.ErrCodeEnhanceYourCalm, "too many frames that carry nothing")
	}
	return s, why
}

// spoilt is the end of the connection by a header block, which the peer's later ones build on. The stream at fault is told so; the
// others are lost with it.
func (c *Conn) spoilt(s *stream, why *Error) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == nil || s.over {
		return broken(why.code, why.Text)
	}
	c.finishLocked(s, why)
	c.told = append(c.told, s)
	others := why.beside()
	others.code = why.code
	return others
}

// decode reads a header block, also one for a stream that is over: the compression has one memory for all of them.
func (c *Conn) decode(id uint32, s *stream, block []byte, ends bool) *Error {
	h := &c.head
	c.mu.Lock()
	if s != nil && s.over {
		s = nil
	}
	if s != nil {
		h.begin(s.headLeft, s.fieldsLeft)
	}
	c.mu.Unlock()
	c.dec.SetEmitEnabled(s != nil)
	_, err := c.dec.Write(block)
	if err == nil {
		err = c.dec.Close()
	}
	switch {
	case errors.Is(err, hpack.ErrStringLength):
		return c.spoilt(s, &Error{Kind: TooLarge, Text: "a field over the limit", code: http2.ErrCodeEnhanceYourCalm})
	case err != nil:
		return c.spoilt(s, broken(http2.ErrCodeCompression, "a header block that cannot be decompressed"))
	case s == nil:
		return nil
	}
	c.mu.Lock()
	defer func() {
		c.mu.Unlock()
		c.hurry()
	}()
	if s = c.streams[id]; s != nil {
		c.headLocked(s, h, ends)
	}
	return nil
}

// headLocked takes an interim head, the final one, or the trailers (RFC 9113 §8.1).
func (c *Conn) headLocked(s *stream, h *head, ends bool) {
	s.headLeft, s.fieldsLeft = h.left, h.fieldsLeft
	malformed := func(text string) { c.breakLocked(s, broken(http2.ErrCodeProtocol, text)) }
	switch {
	case h.large != "":
		c.breakLocked(s, &Error{Kind: TooLarge, Text: h.large})
	case h.problem != "":
		malformed(h.problem)
	case s.head && (h.status != 0 || !ends):
		malformed("a second head")
	case s.head:
		s.trailers = h.kept(barredTrailer)
		c.answeredLocked(s)
	case h.status == 0:
		malformed("no status")
	case h.status == 101:
		malformed("101 to a request that asked for no upgrade")
	case h.status < 200 && ends:
		malformed("an interim answer that ends the stream")
	case h.status < 200:
		if s.interim++; s.interim > maxInterim {
			c.breakLocked(s, &Error{Kind: TooLarge, Text: "too many interim answers"})
		}
	default:
		c.finalLocked(s, h, ends)
	}
}

func (c *Conn) finalLocked(s *stream, h *head, ends bool) {
	s.head, s.status, s.fields, s.declared = true, h.status, h.kept(nil), h.length
	if s.lim.Heard != nil {
		s.lim.Heard.Store(int32(h.status)) //nolint:gosec // three digits
	}
	s.bodyless = s.req.method == "HEAD" || s.status == 204 || s.status == 304
	switch {
	case ends:
		c.answeredLocked(s)
	case s.lim.Sink == nil && !s.bodyless && s.declared > max(s.lim.BodyBytes, 0):
		c.breakLocked(s, &Error{Kind: TooLarge, Text: "declared length over the limit"})
	case s.lim.HeaderTimeout > 0 || s.lim.IdleBody > 0 || s.lim.Sink != nil:
		c.told = append(c.told, s)
	}
}

// head is a header block while it is read.
type head struct {
	dec              *hpack.Decoder
	left, fieldsLeft int
	status           int
	regular          bool  // a field that is no pseudo-header was there
	length           int64 // declared; -1: not
	fields           []call.Header
	problem, large   string            // why it is not taken
	names            map[string]string // as HTTP/1.1 writes them
}

func (h *head) begin(left, fieldsLeft int) {
	clear(h.fields)
	*h = head{dec: h.dec, left: left, fieldsLeft: fieldsLeft, length: -1, fields: h.fields[:0], names: h.names}
}

// add takes one field as it is decompressed. After the first reason not to take the head nothing more is kept.
func (h *head) add(f hpack.HeaderField) {
	h.problem, h.large = h.judge(f)
	if h.problem != "" || h.large != "" {
		h.dec.SetEmitEnabled(false)
	}
}

func (h *head) judge(f hpack.HeaderField) (problem, large string) {
	if h.left -= len(f.Name) + len(f.Value) + len(": \r\n"); h.left < 0 {
		return "", "a head over the limit"
	}
	if f.IsPseudo() {
		if f.Name != ":status" || h.regular || h.status != 0 {
			return "a pseudo-header that has no place there", ""
		}
		if h.status = parseStatus(f.Value); h.status == 0 {
			return "status outside 100 to 599", ""
		}
		return "", ""
	}
	h.regular = true
	if h.fieldsLeft--; h.fieldsLeft < 0 {
		return "", "too many fields"
	}
	name, ok := h.canonical(f.Name)
	if !ok {
		return "field name", ""
	}
	value := trimBlanks(f.Value)
	if !call.ValidFieldValue(value) {
		return "control byte in a field value", ""
	}
	if name == "Content-Length" {
		if h.length, problem = parseLength(value, h.length); problem != "" {
			return problem, ""
		}
	}
	h.fields = append(h.fields, call.Header{Name: name, Value: value})
	return "", ""
}

// canonical is the name as HTTP/1.1 writes it; false for one that is no token in lower case (RFC 9113 §8.2.1).
func (h *head) canonical(name string) (string, bool) {
	if known, ok := h.names[name]; ok {
		return known, true
	}
	if !call.ValidToken(name) || slices.ContainsFunc([]byte(name), func(b byte) bool { return 'A' <= b && b <= 'Z' }) {
		return "", false
	}
	written := textproto.CanonicalMIMEHeaderKey(name)
	if len(h.names) < namesMost && len(name) <= nameKept {
		h.names[name] = written
	}
	return written, true
}

// nameKept is the longest name worth remembering.
const nameKept = 64

// kept is a copy for the answer, without what is barred.
func (h *head) kept(barred func(string) bool) []call.Header {
	if barred != nil {
		h.fields = slices.DeleteFunc(h.fields, func(f call.Header) bool { return barred(f.Name) })
	}
	if len(h.fields) == 0 {
		return nil
	}
	return slices.Clone(h.fields)
}

// barredTrailer names framing, routing and hop-by-hop fields (RFC 9110 §6.5.1, §7.6.1).
func barredTrailer(name string) bool {
	switch name {
	case "Content-Length", "Transfer-Encoding", "Trailer", "Host", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade",
		"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info":
		return true
	}
	return false
}
