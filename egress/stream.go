package egress

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/h1"
	"github.com/sallyport/sallyport/egress/h2"
	"github.com/sallyport/sallyport/policy"
)

const (
	// heldAnswer is how much of an answer to a streamed call is read, after which another attempt might follow, before it is forwarded after all.
	heldAnswer = 64 << 10
	// streamIdle is attempt.idle_body_timeout in a stream where the policy sets none (contract.md §1, StreamCall).
	streamIdle = 30 * time.Second
)

// openBody begins the body of a streamed request. A method to which a body means nothing has one only if there is a first byte, which is waited
// for before a connection is taken. False: that did not come in the attempt's time, or the caller went away.
func openBody(ctx context.Context, c *call.Call, a *call.Attempt) (call.Result, bool) {
	if c.Stream.Upload == nil {
		return call.Result{}, true
	}
	body := c.Stream.Upload.Open()
	if definesBody(c.Method) {
		a.Stream.Body = body
		return call.Result{}, true
	}
	waits, cancel := context.WithDeadline(ctx, a.Deadline)
	defer cancel()
	empty, err := body.Empty(waits)
	if err != nil {
		res := notSent(ctx, a, call.Result{Failure: call.FailureConnectionLost, Detail: "nothing was sent: the caller's body did not begin"})
		res.Starved = true
		return res, false
	}
	if !empty {
		a.Stream.Body = body
	}
	return call.Result{}, true
}

// passage takes the answer to a streamed call as it comes: what may be followed by another attempt is held, all else forwarded.
type passage struct {
	answer    call.Answer
	attempt   *call.Attempt
	forwarded bool
	head      *call.Response
	held      []byte
	took      time.Duration // until the head was there
}

func newPassage(c *call.Call, a *call.Attempt) *passage {
	return &passage{answer: c.Stream.Answer, attempt: a}
}

// begin takes the head. From then on the attempt has the call's time.
func (s *passage) begin(head *call.Response) (time.Time, error) {
	a := s.attempt
	s.head, s.took = head, max(1, time.Since(a.Start))
	if a.Stream.Body != nil {
		a.Stream.Body.CallerWasSlow() // from now on
	}
	a.Deadline = a.Start.Add(a.Remaining)
	if !a.Stream.Forwards(head) {
		return a.Deadline, nil
	}
	s.forwarded = true
	return a.Deadline, s.answer.Head(head)
}

// piece takes the next bytes of the body.
func (s *passage) piece(p []byte) error {
	if s.forwarded {
		return s.answer.Piece(p)
	}
	if len(s.held)+len(p) <= heldAnswer {
		s.held = append(s.held, p...)
		return nil
	}
	s.forwarded = true
	if err := s.answer.Head(s.head); err != nil {
		return err
	}
	if len(s.held) > 0 {
		if err := s.answer.Piece(s.held); err != nil {
			return err
		}
	}
	s.held = nil
	return s.answer.Piece(p)
}

// paused gives what tells that the peer may be waiting for the caller; nil: it has all of the request.
func (s *passage) paused() func() bool {
	if s.attempt.Stream.Body == nil {
		return nil
	}
	return s.attempt.Stream.Body.CallerWasSlow
}

// http1 gives what an HTTP/1.1 connection hands the answer to, which it reads into answer.
func (s *passage) http1(answer *h1.Response) *h1.Sink {
	return &h1.Sink{Head: func() (time.Time, error) { return s.begin(response(answer)) }, Piece: s.piece, Paused: s.paused()}
}

// http2 gives what an HTTP/2 connection hands the answer to.
func (s *passage) http2() *h2.Sink {
	head := func(status int, fields []call.Header) (time.Time, error) {
		return s.begin(responseHTTP2(&h2.Response{Status: status, Fields: slices.Clone(fields)}))
	}
	return &h2.Sink{Head: head, Piece: s.piece, Paused: s.paused()}
}

// tell adds to the result what the caller has got.
func (s *passage) tell(r *call.Result) {
	if s == nil {
		return
	}
	r.Forwarded, r.Head = s.forwarded, s.took
	r.Starved = r.TimedOut && s.attempt.Stream.Body.Starved()
	if r.Failure == call.FailureAttemptTimeout && s.head == nil && !s.attempt.Stream.Body.Whole() {
		r.Detail += "; the body was not sent whole by then"
		if !s.attempt.Clipped {
			r.Detail += ", and a longer attempt.timeout gives it more time"
		}
	}
	if r.Response != nil && !s.forwarded {
		r.Response.Body = s.held
	}
}

// pieces gives those of the body of the request, until its end or that of ctx. broken is called when the caller breaks off.
func pieces(ctx context.Context, body *call.UploadReader, broken func()) func() ([]byte, error) {
	return func() ([]byte, error) {
		p, err := body.Next(ctx)
		if err != nil && !errors.Is(err, io.EOF) {
			broken()
		}
		return p, err
	}
}

// streamed: the request of this attempt has a body that is streamed.
func streamed(a *call.Attempt) bool { return a.Stream != nil && a.Stream.Body != nil }

// idleBody is how long a body may pause.
func idleBody(p *policy.Effective, a *call.Attempt) time.Duration {
	if p.Attempt.IdleBodyTimeout == 0 && a.Stream != nil {
		return streamIdle
	}
	return p.Attempt.IdleBodyTimeout
}
