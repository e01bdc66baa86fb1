package egress

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/h1"
	"github.com/sallyport/sallyport/policy"
)

// inlineBody is the size up to which a body is written before the answer is read: it fits into what the kernel takes at once.
// A larger one is written beside the reading, since a peer may answer early and stop reading (RFC 9112 §9.3, §9.6).
const inlineBody = 32 << 10

// looksLater: the look at an idle connection can wait for the request of this attempt, which then leaves in the same moment, without being
// asked for, and waits for its answer without a time-out of its own.
func looksLater(c *call.Call, p *policy.Effective, a *call.Attempt) bool {
	return a.Departure == nil && a.Stream == nil && len(c.Body) <= inlineBody && p.Attempt.HeaderTimeout == 0
}

// exchange sends the request on a connection of its own, whose deadline is set, and reads the answer. Not used: a look was due, and the
// connection is closed, without a byte of the request on it.
func (t *Transport) exchange(ctx context.Context, cn *conn, c *call.Call, p *policy.Effective, a *call.Attempt) (res call.Result, used bool) {
	lookDue := cn.lookDue
	if d := withheld(c, p, cn.raw); d != nil {
		cn.close() // no exchange took place: it must not look as if it had just been used
		return *d, true
	}
	if ctx.Err() != nil { // the caller went away while a connection was looked for
		cn.close()
		return notSent(ctx, a, call.Result{Failure: call.FailureConnectionLost, Detail: "nothing was sent", Reused: cn.served}), true
	}
	if !departs(a, cn.raw.remote, cn.served) {
		cn.close()
		return stayed(ctx, a, cn.served), true
	}
	if a.Departure != nil {
		_ = cn.top.SetDeadline(a.Deadline) // fails on a closed connection only; before an interruption is possible, which it would undo
	}
	uncancel := context.AfterFunc(ctx, cn.interrupt)
	t.writeHead(cn.http, c, p, a)
	answer := &cn.answer
	requests := cn.http.Requests()
	lim := limits(c, p, a)
	var through *passage
	if c.Stream != nil {
		through = newPassage(c, a)
		lim.Sink = through.http1(answer)
	}
	err := roundTrip(ctx, cn, c, a, lim, answer)
	quiet := uncancel()
	t.pool.census.exchanged(cn, requests)
	if lookDue {
		if errors.Is(err, errNotQuiet) {
			t.pool.bury(cn)
			return res, false
		}
		t.pool.census.reused.Add(1)
	}
	if err != nil {
		drain(cn, a.Deadline, err)
		cn.close()
		if cn.served && !answer.Begun && quiet && !isTimeout(err) {
			t.pool.census.diedInUse.Add(1)
			t.pool.life.died(cn.key.origin, cn.seen(), a.Start.Sub(cn.idleSince)) // the close and the request crossed on the way
		}
		res = t.failed(ctx, cn, a, err)
		through.tell(&res)
		return res, true
	}
	if cn.served && answer.Status == 408 {
		t.pool.life.died(cn.key.origin, cn.seen(), a.Start.Sub(cn.idleSince)) // the server's good-bye to an idle connection (RFC 9110 §15.5.9)
	}
	res = answered(cn, answer)
	through.tell(&res)
	if quiet && cn.http.Reusable() && !maybeUnread(c, a, answer) {
		cn.served = true
		cn.keepAlive = believed(answer.KeepAlive)
		answer.Body = nil // an idle connection holds on to nobody's answer
		clear(answer.Fields)
		clear(answer.Trailers)
		t.pool.put(cn, time.Now())
	} else {
		cn.close()
	}
	return res, true
}

// roundTrip writes the request and reads the answer. The answer counts even when the writing failed: a server that refuses an
// upload answers, stops reading and hangs up.
func roundTrip(ctx context.Context, cn *conn, c *call.Call, a *call.Attempt, lim h1.Limits, answer *h1.Response) error {
	bodyless := len(c.Body) == 0 && !definesBody(c.Method)
	switch {
	case len(c.Body) > inlineBody:
		return roundTripBeside(cn, lim, answer, func() error { return cn.http.Send(c.Body, false) }, func() {})
	case streamed(a):
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		next := pieces(ctx, a.Stream.Body, cn.interrupt)
		return roundTripBeside(cn, lim, answer, func() error { return cn.http.SendStream(next) }, stop)
	}
	sendErr := cn.send(c.Body, bodyless)
	if sendErr != nil && cn.http.Written() == 0 {
		return sendErr
	}
	if err := cn.http.ReadResponse(answer, lim); err != nil {
		if sendErr != nil && !answer.Begun {
			return sendErr
		}
		return err
	}
	return nil
}

// The bounds of what is read of a body that is not wanted any more.
const (
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
)

// drain reads a little of a body that broke a limit, so that a peer which is just about to end sees no reset (semantics.md §9).
func drain(cn *conn, deadline time.Time, err error) {
	if e, ok := errors.AsType[*h1.Error](err); !ok || e.Kind != h1.TooLarge || e.Phase != h1.PhaseBody {
		return
	}
	if cn.top.SetReadDeadline(earlier(deadline, time.Now().Add(drainTime))) == nil {
		_, _ = io.CopyN(io.Discard, cn.top, drainBytes) // how it ends does not matter
	}
}

// maybeUnread: an error in answer to a large upload may have come before the upload was read. The kernel may have taken all of
// it, so that it looks sent; but a peer that stopped reading would leave the next request on this connection without an answer.
func maybeUnread(c *call.Call, a *call.Attempt, answer *h1.Response) bool {
	return (len(c.Body) > inlineBody || streamed(a)) && answer.Status >= 400
}

// roundTripBeside writes a large body on a second goroutine, and waits for it in every case. stop ends the waiting for more of one.
func roundTripBeside(cn *conn, lim h1.Limits, answer *h1.Response, send func() error, stop func()) error {
	type sending struct {
		err      error
		panicked any
	}
	sent := make(chan sending, 1) // receives one value, is never closed
	go func() {
		var s sending
		defer func() { s.panicked = recover(); sent <- s }() // a panic belongs to this call, not to the process
		s.err = send()
	}()
	err := cn.http.ReadResponse(answer, lim)
	stop()
	_ = cn.top.SetWriteDeadline(time.Unix(1, 0)) // whatever came, the rest of the body is of no use; what was written stays counted
	s := <-sent
	if s.panicked != nil {
		panic(s.panicked)
	}
	sendErr := s.err
	if err != nil && !answer.Begun && sendErr != nil && cn.http.Written() == 0 {
		return sendErr
	}
	return err
}

// definesBody: the method gives a request body a meaning, so that an empty one is told by Content-Length: 0 (RFC 9110 §8.6).
func definesBody(method string) bool {
	switch method {
	case "POST", "PUT", "PATCH":
		return true
	}
	return false
}

func limits(c *call.Call, p *policy.Effective, a *call.Attempt) h1.Limits {
	bodyBytes := p.Body.MaxResponseBytes
	if c.MaxResponseBytes != 0 {
		bodyBytes = min(bodyBytes, c.MaxResponseBytes)
	}
	lim := h1.Limits{
		HeaderBytes:   int(p.Response.MaxHeaderBytes), //nolint:gosec // validated when the policy was read
		Headers:       maxFields,
		BodyBytes:     int64(bodyBytes), //nolint:gosec // at most 16 MiB
		Deadline:      a.Deadline,
		HeaderTimeout: p.Attempt.HeaderTimeout,
		IdleBody:      idleBody(p, a),
	}
	if a.Departure != nil {
		lim.Heard = &a.Departure.Heard
	}
	return lim
}

// maxFields bounds the number of fields of an answer.
const maxFields = 256

// believed is how long a connection may be idle when the server names a time: a little less, since a request needs a moment.
func believed(keepAlive time.Duration) time.Duration { return keepAlive - keepAlive/10 }
