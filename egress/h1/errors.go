package h1

import (
	"errors"
	"io"
	"net"
)

// ErrUnsolicited is the cause when bytes wait on a connection that owes no answer.
var ErrUnsolicited = errors.New("bytes that no request asked for")

// Kind says what went wrong, for callers that branch on it.
type Kind uint8

// The kinds.
const (
	// Malformed: the peer's bytes are no HTTP/1 answer that can be taken.
	Malformed Kind = iota + 1
	// TooLarge: the answer breaks one of the [Limits], or a fixed bound on interim answers or chunk extensions.
	TooLarge
	// Lost: the connection ended before the answer was complete.
	Lost
	// Timeout: a deadline of the connection passed, while writing or reading.
	Timeout
	// WriteFailed: the connection took only a part of the request, perhaps nothing. An answer may still be readable.
	WriteFailed
	// Refused: the request cannot be written as asked; nothing of it was.
	Refused
	// NotTaken: the [Sink] did not take the answer.
	NotTaken
)

func (k Kind) String() string {
	switch k {
	case Malformed:
		return "malformed answer"
	case TooLarge:
		return "answer over a limit"
	case Lost:
		return "connection lost"
	case Timeout:
		return "timed out"
	case WriteFailed:
		return "write failed"
	case Refused:
		return "request refused"
	case NotTaken:
		return "answer not taken"
	}
	return "unknown kind"
}

// Phase says where in the exchange an [Error] arose.
type Phase uint8

// The phases, in the order of an exchange.
const (
	PhaseIdle Phase = iota
	PhaseSend
	PhaseHead
	PhaseBody
	PhaseTrailers
)

func (p Phase) String() string {
	switch p {
	case PhaseIdle:
		return "idle"
	case PhaseSend:
		return "send"
	case PhaseHead:
		return "head"
	case PhaseBody:
		return "body"
	case PhaseTrailers:
		return "trailers"
	}
	return "unknown phase"
}

// Error is the only type of error that leaves this package. Its text never quotes the peer: answers carry secrets.
type Error struct {
	Kind  Kind
	Phase Phase
	// Problem names the rule that was broken, or "" when Err tells all.
	Problem string
	// Err is the connection's own error, if that was the cause.
	Err error
}

func (e *Error) Error() string {
	s := e.Kind.String() + " (" + e.Phase.String() + ")"
	if e.Problem != "" {
		s += ": " + e.Problem
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// broken is an answer refused, of the given kind, in the phase the reader is in.
func (c *Conn) broken(k Kind, problem string) error {
	return &Error{Kind: k, Phase: c.phase, Problem: problem}
}

// readFailed classifies the connection's own error. A clean end is as much a loss as a reset where more was due; where
// an end is the proper end of a body, the caller looks before it asks here.
func (c *Conn) readFailed(err error) error {
	k := Lost
	if isTimeout(err) {
		k = Timeout
	}
	if errors.Is(err, io.EOF) {
		return &Error{Kind: k, Phase: c.phase, Problem: "ended by the peer before the answer was complete", Err: err}
	}
	return &Error{Kind: k, Phase: c.phase, Err: err}
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}
