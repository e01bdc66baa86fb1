package h2

import (
	"errors"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// controlMost bounds what waits to be written in answer to the peer's own frames: only a peer that sends and does not read gets there.
	controlMost = 64 << 10
	// chatterMost bounds the frames in a row that carry nothing for anybody.
	chatterMost = 4096
)

// reading is the reader's own state.
type reading struct {
	source source
	in     *http2.Framer
	dec    *hpack.Decoder
	head   head
	// A head that came in several frames, until its last one.
	fragments []byte
	blockID   uint32
	blockEnds bool
	blockCost int
}

// source remembers the connection's own error, from which a verdict of the framer must be told.
type source struct {
	net.Conn

	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

// read is the reader: it takes frames until the connection ends.
func (c *Conn) read() {
	for {
		f, err := c.in.ReadFrame()
		var why *Error
		if err != nil {
			why = c.verdict(err)
		} else {
			why = c.take(f)
		}
		if why != nil {
			c.end(why)
			return
		}
	}
}

// verdict is what an error of ReadFrame means.
func (c *Conn) verdict(err error) *Error {
	if c.source.err != nil {
		return &Error{Kind: Lost, Text: "the connection was lost before the answer was complete", Err: c.source.err}
	}
	if code, ok := errors.AsType[http2.ConnectionError](err); ok {
		return broken(http2.ErrCode(code), "frames that break the protocol ("+http2.ErrCode(code).String()+")")
	}
	if errors.Is(err, http2.ErrFrameTooLarge) {
		return broken(http2.ErrCodeFrameSize, "a frame larger than allowed, or another protocol than HTTP/2")
	}
	return broken(http2.ErrCodeProtocol, "frames that break the protocol")
}

// take takes one frame. An error ends the connection.
func (c *Conn) take(f http2.Frame) (why *Error) {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		why = c.takeHeaders(f)
	case *http2.ContinuationFrame:
		why = c.takeContinuation(f)
	default:
		why = c.takeOther(f)
	}
	tell(c.told)
	clear(c.told)
	c.told = c.told[:0]
	return why
}

// arrivedLocked notes a frame: the first one must be SETTINGS (RFC 9113 §3.4).
func (c *Conn) arrivedLocked(f http2.Frame) *Error {
	c.frames++
	c.silent = 0
	if c.frames > 1 {
		return nil
	}
	if s, ok := f.(*http2.SettingsFrame); !ok || s.IsAck() {
		return broken(http2.ErrCodeProtocol, "the first frame is not SETTINGS")
	}
	return nil
}

func (c *Conn) takeOther(f http2.Frame) (why *Error) {
	limit := c.limit.Load()
	c.mu.Lock()
	defer func() {
		c.mu.Unlock()
		c.hurry()
		if c.limit.Load() != limit {
			c.announce()
		}
	}()
	if first := c.arrivedLocked(f); first != nil {
		return first
	}
	c.chatter++
	switch f := f.(type) {
	case *http2.DataFrame:
		why = c.dataLocked(f)
	case *http2.SettingsFrame:
		why = c.settingsLocked(f)
	case *http2.WindowUpdateFrame:
		why = c.windowLocked(f)
	case *http2.RSTStreamFrame:
		why = c.rstLocked(f)
	case *http2.GoAwayFrame:
		why = c.goAwayLocked(f)
	case *http2.PingFrame:
		if !f.IsAck() && c.speaksLocked() {
			must(c.frame.WritePing(true, f.Data))
		}
	case *http2.PushPromiseFrame:
		why = broken(http2.ErrCodeProtocol, "a push, which was switched off")
	}
	if why == nil && (c.chatter > chatterMost || len(c.out) > controlMost) {
		why = broken(http2.ErrCodeEnhanceYourCalm, "too many frames that carry nothing")
	}
	return why
}

// recipientLocked is the open stream a frame is for; nil for one that is over, whose last frames may still be on their way.
func (c *Conn) recipientLocked(id uint32) (*stream, *Error) {
	if id >= c.nextID || id%2 == 0 {
		return nil, broken(http2.ErrCodeProtocol, "a frame for a stream that was never opened")
	}
	return c.streams[id], nil
}

// breakLocked ends a stream whose answer cannot be taken, and tells the peer; the connection lives on.
func (c *Conn) breakLocked(s *stream, why *Error) {
	code := why.code
	if code == http2.ErrCodeNo {
		code = http2.ErrCodeCancel // a limit of ours, nobody's mistake
	}
	c.resetLocked(s.id, code)
	c.finishLocked(s, why)
	c.told = append(c.told, s)
}
