package h2

import (
	"math"
	"strings"

	"golang.org/x/net/http2"
)

// growBytes is how far a body grows ahead of its bytes at first: what a peer declares must not allocate what it never sends.
const growBytes = 64 << 10

// dataLocked takes a piece of a body. Its whole length counts in the windows, padding too, and also for a stream that is over (RFC
// 9113 §6.9.1).
func (c *Conn) dataLocked(f *http2.DataFrame) *Error {
	size := int64(f.Length)
	if c.recvWindow -= size; c.recvWindow < 0 {
		return broken(http2.ErrCodeFlowControl, "more than the window allows")
	}
	if c.recvOwed += size; c.recvOwed >= connWindow/2 {
		c.giveBackLocked(0, &c.recvWindow, &c.recvOwed)
	}
	s, why := c.recipientLocked(f.StreamID)
	if s == nil {
		return why
	}
	s.beginLocked()
	if problem := c.appendLocked(s, f.Data(), size); problem != nil {
		c.breakLocked(s, problem)
		return nil
	}
	switch {
	case f.StreamEnded():
		c.answeredLocked(s)
		return nil
	case len(f.Data()) == 0:
		return nil // chatter, unless it ends the stream
	}
	c.chatter = 0
	if s.lim.Sink != nil {
		s.recvOwed += size - int64(len(f.Data())) // the rest when it was taken, so that nobody sends more than that ahead
	} else if s.recvOwed += size; s.recvOwed >= streamWindow/2 {
		c.giveBackLocked(s.id, &s.recvWindow, &s.recvOwed)
	}
	if s.lim.IdleBody > 0 || s.lim.Sink != nil {
		c.told = append(c.told, s)
	}
	return nil
}

func (c *Conn) giveBackLocked(id uint32, window, owed *int64) {
	if c.speaksLocked() {
		must(c.frame.WriteWindowUpdate(id, uint32(*owed))) //nolint:gosec // within a window
	}
	*window += *owed
	*owed = 0
}

func (c *Conn) appendLocked(s *stream, data []byte, size int64) *Error {
	if s.recvWindow -= size; s.recvWindow < 0 {
		return broken(http2.ErrCodeFlowControl, "more than the window allows")
	}
	got := s.got + int64(len(data))
	switch {
	case !s.head:
		return broken(http2.ErrCodeProtocol, "a body before its head")
	case len(data) == 0:
		return nil
	case s.bodyless:
		return broken(http2.ErrCodeProtocol, "a body where there can be none")
	case s.declared >= 0 && got > s.declared:
		return broken(http2.ErrCodeProtocol, "a body longer than declared")
	case s.lim.Sink == nil && got > max(s.lim.BodyBytes, 0):
		return &Error{Kind: TooLarge, Text: "body over the limit"}
	}
	s.got = got
	if s.lim.Sink != nil {
		s.backlog.add(data)
		return nil
	}
	if s.body == nil && s.declared > 0 {
		s.body = make([]byte, 0, min(s.declared, max(growBytes, int64(len(data)))))
	}
	s.body = append(s.body, data...)
	return nil
}

// answeredLocked: the peer ended the answer. A request that was not sent whole by then never will be (RFC 9113 §8.1).
func (c *Conn) answeredLocked(s *stream) {
	var why *Error
	if s.declared >= 0 && !s.bodyless && s.got < s.declared {
		why = &Error{Kind: Lost, Text: "the answer ended before it was complete: its body is shorter than declared"}
	}
	if !s.handed {
		c.resetLocked(s.id, http2.ErrCodeCancel)
	}
	c.finishLocked(s, why)
	c.told = append(c.told, s)
}

// parseStatus takes three digits, 100 to 599; 0 for anything else.
func parseStatus(s string) int {
	if len(s) != 3 || !isDigit(s[0]) || !isDigit(s[1]) || !isDigit(s[2]) || s[0] < '1' || s[0] > '5' {
		return 0
	}
	return int(s[0]-'0')*100 + int(s[1]-'0')*10 + int(s[2]-'0')
}

// parseLength takes one Content-Length field. A list of equal values is the one value (RFC 9110 §8.6), as are several fields; known is
// what an earlier one said, or -1.
func parseLength(value string, known int64) (length int64, problem string) {
	for part := range strings.SplitSeq(value, ",") {
		n, ok := parseDigits(trimBlanks(part))
		switch {
		case !ok:
			return 0, "Content-Length"
		case known >= 0 && known != n:
			return 0, "different Content-Length values"
		}
		known = n
	}
	return known, ""
}

// parseDigits takes 1*DIGIT that fit an int64; no sign, no blank.
func parseDigits(s string) (n int64, ok bool) {
	for i := range len(s) {
		if !isDigit(s[i]) || n > (math.MaxInt64-int64(s[i]-'0'))/10 {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, s != ""
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func trimBlanks(s string) string { return strings.Trim(s, " \t") }
