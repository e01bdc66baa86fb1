package h2

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// settingsLocked takes the peer's settings and acknowledges them (RFC 9113 §6.5.3).
func (c *Conn) settingsLocked(f *http2.SettingsFrame) *Error {
	if f.IsAck() {
		return nil
	}
	var broke *Error
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingEnablePush:
			if s.Val != 0 {
				return http2.ConnectionError(http2.ErrCodeProtocol)
			}
		case http2.SettingHeaderTableSize:
			c.enc.SetMaxDynamicTableSize(min(s.Val, tableBytes))
		case http2.SettingMaxConcurrentStreams:
			c.peerMax = s.Val
		case http2.SettingInitialWindowSize:
			broke = c.initialWindowLocked(int64(s.Val))
		}
		return nil
	})
	if broke != nil {
		return broke
	}
	if err != nil {
		code := http2.ErrCodeProtocol
		if ce, ok := errors.AsType[http2.ConnectionError](err); ok {
			code = http2.ErrCode(ce)
		}
		return broken(code, "settings out of their range")
	}
	if c.speaksLocked() {
		must(c.frame.WriteSettingsAck())
	}
	c.greeted = true
	c.judgeLocked()
	return nil
}

// initialWindowLocked moves the window of every stream by the difference; below zero it may fall (RFC 9113 §6.9.2).
func (c *Conn) initialWindowLocked(size int64) *Error {
	by := size - c.peerWindow
	c.peerWindow = size
	for _, s := range c.streams {
		if s.window += by; s.window > largestWindow {
			return broken(http2.ErrCodeFlowControl, "a window over its maximum")
		}
		c.queueLocked(s)
	}
	return nil
}

func (c *Conn) windowLocked(f *http2.WindowUpdateFrame) *Error {
	if f.StreamID == 0 {
		shut := c.window <= 0
		if c.window += int64(f.Increment); c.window > largestWindow {
			return broken(http2.ErrCodeFlowControl, "a window over its maximum")
		}
		if shut {
			for _, s := range c.streams {
				c.queueLocked(s)
			}
		}
		return nil
	}
	s, why := c.recipientLocked(f.StreamID)
	if s == nil {
		return why
	}
	if s.window += int64(f.Increment); s.window > largestWindow {
		c.breakLocked(s, broken(http2.ErrCodeFlowControl, "a window over its maximum"))
		return nil
	}
	c.queueLocked(s)
	return nil
}

// rstLocked: the peer gave a stream up. Only REFUSED_STREAM says that it was not processed (RFC 9113 §8.7), and not once anything of an
// answer was there.
func (c *Conn) rstLocked(f *http2.RSTStreamFrame) *Error {
	s, why := c.recipientLocked(f.StreamID)
	if s == nil {
		return why
	}
	gaveUp := &Error{Kind: Reset, Text: "the server reset the stream: " + f.ErrCode.String()}
	if f.ErrCode == http2.ErrCodeRefusedStream && !s.begun {
		gaveUp = &Error{Kind: Refused, Text: "the server refused the stream: " + f.ErrCode.String()}
	}
	c.finishLocked(s, gaveUp)
	c.told = append(c.told, s)
	return nil
}

// goAwayLocked: the peer takes no new streams, and says which of the open ones it will not process (RFC 9113 §6.8). Those at or below
// its last one go on. A second GOAWAY may lower the last one; it cannot raise it.
func (c *Conn) goAwayLocked(f *http2.GoAwayFrame) *Error {
	said := farewell{last: f.LastStreamID, code: f.ErrCode}
	if c.away == nil || said.last < c.away.last {
		c.away = &said
	}
	c.judgeLocked()
	for id, s := range c.streams {
		if id > c.away.last && !s.begun {
			c.finishLocked(s, &Error{Kind: GoneAway, Text: fmt.Sprintf("the server sent %s, which leaves this one out: stream %d", c.away, id)})
			c.told = append(c.told, s)
		}
	}
	for _, s := range c.queue {
		if s.id == 0 && !s.over {
			c.finishLocked(s, &Error{Kind: NotTaken, Text: "the server sent " + c.away.String() + "; nothing was sent"})
			c.told = append(c.told, s)
		}
	}
	if len(c.streams) == 0 {
		return &Error{Kind: Lost, Text: "the server sent " + c.away.String()}
	}
	return nil
}
