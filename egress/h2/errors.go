package h2

import (
	"fmt"

	"golang.org/x/net/http2"
)

// Kind says what went wrong, for callers that branch on it.
type Kind uint8

// The kinds.
const (
	// Malformed: the peer's frames or fields are no HTTP/2 answer that can be taken.
	Malformed Kind = iota + 1
	// TooLarge: the answer breaks one of the [Limits], or a fixed bound on interim answers or header blocks.
	TooLarge
	// Lost: the connection ended, or the answer did, before it was complete.
	Lost
	// Reset: the peer gave the stream up.
	Reset
	// Refused: the peer gave the stream up and says that it did not process it (REFUSED_STREAM).
	Refused
	// GoneAway: the peer's GOAWAY says that it did not and will not process the stream.
	GoneAway
	// Timeout: one of the times of [Limits] passed.
	Timeout
	// Cancelled: the context ended.
	Cancelled
	// NotTaken: the connection took no new stream; nothing was written.
	NotTaken
	// Illegal: the request cannot be written as asked; nothing of it was.
	Illegal
)

func (k Kind) String() string {
	names := [...]string{
		"", "malformed answer", "answer over a limit", "lost", "stream reset", "stream refused", "stream left out by GOAWAY", "timed out",
		"cancelled", "stream not taken", "request refused",
	}
	if int(k) < len(names) && k > 0 {
		return names[k]
	}
	return "unknown kind"
}

// Error is the only type of error that leaves this package.
type Error struct {
	Kind Kind
	// Text is what happened, in plain words. It quotes nothing of the peer but codes and numbers: answers carry secrets.
	Text string
	// Err is the connection's own error, if that was the cause.
	Err error

	code http2.ErrCode // what to tell the peer; NO_ERROR: nothing
}

func (e *Error) Error() string { return e.Kind.String() + ": " + e.Text }

func (e *Error) Unwrap() error { return e.Err }

// broken is a rule of the protocol that the peer broke; the connection ends with that code.
func broken(code http2.ErrCode, text string) *Error {
	return &Error{Kind: Malformed, Text: text, code: code}
}

// beside is what a broken connection means for streams that are not at fault: they are lost with it.
func (e *Error) beside() *Error {
	return &Error{Kind: Lost, Text: "the connection was ended, since another answer on it broke it: " + e.Text}
}

// farewell is what the peer said in its GOAWAY.
type farewell struct {
	last uint32
	code http2.ErrCode
}

func (g farewell) String() string { return fmt.Sprintf("GOAWAY (%s), last stream %d", g.code, g.last) }
