package h2

import (
	"context"
	"errors"
	"time"

	"github.com/sallyport/sallyport/call"
)

// RoundTrip sends the request on a stream of its own and waits for the answer, until ctx ends or a time of lim passes. Any error is an
// [*Error]; the Response then holds what was learned before it. The connection lives on after a failure that is the stream's own.
func (c *Conn) RoundTrip(ctx context.Context, r *Request, lim Limits) (Response, error) {
	s, err := c.enter(r, lim)
	if err != nil {
		return Response{}, err
	}
	if r.Next == nil {
		c.wait(ctx, s)
	} else {
		c.waitFeeding(ctx, s)
	}
	if s.why == nil {
		return Response{Status: s.status, Fields: s.fields, Trailers: s.trailers, Body: s.body, Begun: true, Sent: true}, nil
	}
	c.mu.Lock()
	crashed := c.crash
	c.mu.Unlock()
	if crashed != nil {
		panic(crashed)
	}
	return Response{Status: s.status, Begun: s.begun, Sent: s.sent}, s.why
}

// enter puts a request into the queue of the writer.
func (c *Conn) enter(r *Request, lim Limits) (*stream, error) {
	if r.Bodyless && len(r.Body) > 0 {
		r.refuse("a body where none was announced")
	}
	if r.refused != "" {
		return nil, &Error{Kind: Illegal, Text: r.refused}
	}
	s := &stream{
		req: r, lim: lim, changed: make(chan struct{}, 1), rest: r.Body, queued: true, declared: -1, more: r.Next != nil,
		headLeft: lim.HeaderBytes, fieldsLeft: lim.Headers, recvWindow: streamWindow,
	}
	if s.more {
		s.hungry = make(chan struct{}, 1)
	}
	c.mu.Lock()
	taken := c.limit.Load() >= 0
	if taken {
		s.frames = c.frames
		c.queue = append(c.queue, s)
	}
	c.mu.Unlock()
	if !taken {
		return nil, &Error{Kind: NotTaken, Text: "the connection takes no new stream; nothing was sent"}
	}
	c.hurry()
	return s, nil
}

// waitFeeding is wait while a goroutine beside it supplies the body, which ends before this returns.
func (c *Conn) waitFeeding(ctx context.Context, s *stream) {
	feeding, stop := context.WithCancel(ctx)
	fed := make(chan any, 1) // receives what it panicked with, once, is never closed
	go func() {
		defer func() { fed <- recover() }()
		c.feed(feeding, s)
	}()
	c.wait(ctx, s)
	stop()
	if s.req.Stop != nil {
		s.req.Stop()
	}
	if v := <-fed; v != nil {
		panic(v) // it belongs to this call, not to the process
	}
}

// wait returns when the stream is over. One of the two shorter times runs at most: that for the head from the moment the request is
// written, that for the body anew with every piece of it.
func (c *Conn) wait(ctx context.Context, s *stream) {
	timer := time.NewTimer(time.Until(s.lim.Deadline))
	defer timer.Stop()
	heading := false // the time for the head runs
	var f flow
	for {
		select {
		case <-s.changed:
			over, head, whole := c.look(s)
			if s.lim.Sink != nil {
				if why := c.hand(s, &f); why != nil {
					if c.giveUp(s, why); over {
						s.why = why
					}
					return
				}
			}
			switch {
			case over:
				return
			case head && s.lim.IdleBody > 0:
				timer.Reset(min(s.lim.IdleBody, time.Until(s.lim.Deadline)))
			case head && (heading || s.lim.Sink != nil):
				timer.Reset(time.Until(s.lim.Deadline))
			case !head && whole && s.lim.HeaderTimeout > 0:
				heading = true
				timer.Reset(min(s.lim.HeaderTimeout, time.Until(s.lim.Deadline)))
			}
		case <-timer.C:
			if s.pauses(&f) {
				timer.Reset(min(s.lim.IdleBody, time.Until(s.lim.Deadline)))
				continue
			}
			c.giveUp(s, &Error{Kind: Timeout, Text: "no complete answer within the attempt's time"})
			return
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if errors.Is(cause, call.ErrTimeUp) {
				c.giveUp(s, &Error{Kind: Timeout, Text: "no complete answer within the attempt's time"})
				return
			}
			c.giveUp(s, &Error{Kind: Cancelled, Text: "the attempt was cancelled", Err: cause})
			return
		}
	}
}

// pauses: the time of the body is up, and the request pauses too.
func (s *stream) pauses(f *flow) bool {
	sink := s.lim.Sink
	return sink != nil && sink.Paused != nil && f.headed && s.lim.IdleBody > 0 && time.Now().Before(s.lim.Deadline) && sink.Paused()
}
