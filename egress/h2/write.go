package h2

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// frameBytes is the size of our frames: what every peer must take (RFC 9113 §4.2).
	frameBytes = 16 << 10
	// batchBytes is about what one Write takes, so that no stream waits long for another one's body.
	batchBytes = 64 << 10
	// keptBytes is how large a buffer may stay with an idle connection.
	keptBytes = 32 << 10
	// namesMost bounds the memory of field names, each way.
	namesMost = 256
)

// mark is where the request of a stream begins in a batch; whole: it also ends there.
type mark struct {
	s      *stream
	start  int // -1: it began in an earlier batch
	wholly bool
}

// write is the writer: it alone numbers streams, compresses and writes.
func (c *Conn) write() {
	for {
		batch, ok := c.gather()
		if !ok {
			return
		}
		if len(batch) == 0 {
			<-c.wake
			continue
		}
		n, err := c.c.Write(batch)
		if !c.wrote(n, err) {
			return
		}
	}
}

// gather takes what there is to write: answers to the peer's own frames first, then heads and bodies in turn. False: the end.
func (c *Conn) gather() (batch []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.leaving:
	case c.why != nil:
		return nil, false
	default:
		c.fillLocked()
	}
	c.out, c.spare = c.spare[:0], c.out
	c.writing = len(c.spare) > 0
	return c.spare, true
}

// wrote settles what one Write proved: what the connection did not take was not sent. False: the writer has nothing more to do.
func (c *Conn) wrote(n int, err error) bool {
	told, why := c.settle(n, err)
	tell(told)
	switch {
	case why != nil:
		c.end(why)
	case err != nil:
		c.announce()
	default:
		return true
	}
	return false
}

// settle leaves the connection to the reader when a write failed: an answer, or a GOAWAY that tells more, may have come before that.
func (c *Conn) settle(n int, err error) (told []*stream, why *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = false
	for _, m := range c.marks {
		switch {
		case m.s.over:
		case err != nil:
			if m.s.sent && m.start >= n {
				m.s.sent = false
				c.requests.Add(^uint64(0))     // one less
				c.queue = append(c.queue, m.s) // unsent, like the others there
			}
		case m.wholly:
			m.s.whole = true
			if m.s.lim.HeaderTimeout > 0 {
				told = append(told, m.s)
			}
		}
	}
	clear(c.marks)
	c.marks = c.marks[:0]
	c.dropLargeLocked()
	if c.leaving = false; err == nil || c.why != nil {
		return told, c.why
	}
	c.mute = true
	c.judgeLocked()
	for _, s := range c.queue {
		if !s.over && !s.sent {
			c.finishLocked(s, &Error{Kind: Lost, Text: "the connection was lost; nothing was sent", Err: err})
			told = append(told, s)
		}
	}
	c.queue = nil
	return told, nil
}

// fillLocked puts frames of streams into the batch, as many as fit into it and into the peer's windows.
func (c *Conn) fillLocked() {
	for len(c.queue) > 0 && len(c.out) < batchBytes {
		s := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		s.queued = false
		if s.over {
			continue
		}
		c.chatter = 0
		if s.id == 0 {
			if !s.req.Departure.Depart() {
				continue // it was kept back, and whoever did so ends the wait for it
			}
			c.openLocked(s)
		}
		c.bodyLocked(s)
	}
}

// openLocked gives the stream its number and writes its head.
func (c *Conn) openLocked(s *stream) {
	s.id = c.nextID
	c.nextID += 2
	if c.nextID > streamsEver {
		c.stale = true
		c.judgeLocked()
	}
	c.streams[s.id] = s
	c.requests.Add(1)
	s.window, s.sent, s.handed = c.peerWindow, true, len(s.rest) == 0 && !s.more
	c.marks = append(c.marks, mark{s: s, start: len(c.out), wholly: s.handed})

	block := c.encodeLocked(s.req)
	first, rest := cut(block)
	must(c.frame.WriteHeaders(http2.HeadersFrameParam{
		StreamID: s.id, BlockFragment: first, EndStream: s.handed, EndHeaders: len(rest) == 0,
	}))
	for len(rest) > 0 {
		first, rest = cut(rest)
		must(c.frame.WriteContinuation(s.id, len(rest) == 0, first))
	}
}

// bodyLocked writes one frame of the body, if the windows allow it; a WINDOW_UPDATE puts the stream back into the queue otherwise.
func (c *Conn) bodyLocked(s *stream) {
	if s.handed {
		return
	}
	n := int(max(0, min(int64(len(s.rest)), frameBytes, s.window, c.window)))
	if n == 0 && (len(s.rest) > 0 || s.more) {
		s.feedLocked()
		return
	}
	s.handed = n == len(s.rest) && !s.more
	must(c.frame.WriteData(s.id, s.handed, s.rest[:n]))
	s.rest = s.rest[n:]
	s.window -= int64(n)
	c.window -= int64(n)
	if s.handed {
		c.marks = append(c.marks, mark{s: s, start: -1, wholly: true})
		return
	}
	s.feedLocked() // while the windows are shut, too: what comes next may be the end, which the peer may wait for, and which takes no window
	c.queueLocked(s)
}

// queueLocked lets a stream write when it is its turn.
func (c *Conn) queueLocked(s *stream) {
	if !s.queued && !s.over && !s.handed && (min(s.window, c.window) > 0 || s.ending()) {
		s.queued = true
		c.queue = append(c.queue, s)
	}
}

// dropLargeLocked keeps what a body took from costing memory as long as the connection lives. While a stream is open there may be more of
// one, which would make the buffer anew for each batch.
func (c *Conn) dropLargeLocked() {
	if c.writing || len(c.streams) > 0 {
		return
	}
	if cap(c.spare) > keptBytes {
		c.spare = nil
	}
	if cap(c.out) > keptBytes && len(c.out) == 0 {
		c.out = nil
	}
}

func cut(block []byte) (first, rest []byte) {
	n := min(len(block), frameBytes)
	return block[:n], block[n:]
}

// encodeLocked compresses a head (RFC 9113 §8.3.1). The block is valid until the next one.
func (c *Conn) encodeLocked(r *Request) []byte {
	c.block.Reset()
	put := func(name, value string, unindexed bool) {
		must(c.enc.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: unindexed}))
	}
	put(":method", r.method, false)
	put(":scheme", "https", false)
	put(":authority", r.authority, false)
	put(":path", r.path, false)
	for i := range r.fields {
		f := &r.fields[i]
		put(c.lowerLocked(f.Name), f.Value, r.unindexed(f.Name))
	}
	if !r.Bodyless && r.Next == nil {
		put("content-length", strconv.Itoa(len(r.Body)), true)
	}
	block := c.block.Bytes()
	if c.block.Cap() > keptBytes {
		c.block = bytes.Buffer{} // the block stays valid, and goes with its batch
	}
	return block
}

// lowerLocked remembers names: the same few come with every request.
func (c *Conn) lowerLocked(name string) string {
	lower, ok := c.names[name]
	if !ok {
		lower = strings.ToLower(name)
		if len(c.names) < namesMost {
			c.names[name] = lower
		}
	}
	return lower
}
