package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

const (
	// chunkBytes is how large a chunk to the caller is at most.
	chunkBytes = 64 << 10
	// maxChunk is how large one from him may be.
	maxChunk = 1 << 20
	// aheadBytes is what an HTTP/2 upstream may send ahead of a slow caller: the window of a stream (egress/h2).
	aheadBytes = 1 << 20
	// streamGrace is how long after its end a stream is cut whose caller does not take what he is sent.
	streamGrace = 5 * time.Second
)

// errNotTaken is the cause of a stream that was cut then.
var errNotTaken = errors.New("the time of the stream was over, and the caller took nothing")

// StreamCall makes one outbound HTTP call whose bodies are streamed.
func (s *CallService) StreamCall(ss grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error {
	ctx, now := ss.Context(), time.Now()
	traceparent, tracestate := traceContext(ctx)
	ctx, span := s.cfg.Observer.Begin(ctx, traceparent, tracestate)
	taken := false
	defer markPanic(&taken, span)
	refused := func(err error) error {
		reason, _ := ownReason(err)
		span.Refuse(reason)
		return err
	}
	req, err := head(ss)
	if err != nil {
		return refused(err)
	}
	c, p, err := s.takeStream(ctx, req, now)
	if err != nil {
		return refused(err)
	}
	room, err := s.capacity.take(heldByStream(c, p))
	if err != nil {
		return refused(err)
	}
	taken = true
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	up, down := newUpstreamBody(ss, end), &downstream{to: ss}
	c.Stream = &call.Stream{Upload: up.upload(c, p), Answer: down}
	defer s.cutOff(ctx, c, p)()
	go up.receive(ctx)
	resp, final, err := s.run(ctx, c, p, false, room, span, req.GetReport())
	if err != nil {
		return err
	}
	if err := up.broken(ctx); err != nil { // what the caller did wrong ended the call
		if p, ours := errors.AsType[*panicked](err); ours {
			panic(p)
		}
		return sentOrNot(err, final)
	}
	return down.finish(resp, final)
}

// head reads the first message.
func head(ss grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) (*pb.CallRequest, error) {
	m, err := ss.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err //nolint:wrapcheck // it is the status of the RPC
	}
	req := m.GetHead()
	if req == nil {
		return nil, invalid([]*call.InvalidError{{Field: "head", Problem: "missing; the first message is the head of the call, and no other is"}})
	}
	return req, nil
}

// takeStream is take for a stream.
func (s *CallService) takeStream(ctx context.Context, req *pb.CallRequest, now time.Time) (*call.Call, *policy.Effective, error) {
	d := decoder{}
	if len(req.GetRequest().GetBody()) > 0 {
		d.add("request.body", "not empty; in a stream the body follows in chunks")
	}
	if req.GetOperationId() != "" {
		d.add("operation_id", "not in a stream: its body is not kept, so that nobody could tell payloads apart; leave it out, or use Call")
	}
	if req.GetAllowDeferral() {
		d.add("allow_deferral", "not in a stream; leave it out")
	}
	if err := invalid(prefixed("head", d.violations)); err != nil {
		return nil, nil, err
	}
	c, violations := decode(ctx, req, callerOf(ctx), now)
	if err := invalid(prefixed("head", violations)); err != nil {
		return nil, nil, err
	}
	c.Stream = &call.Stream{} // what it is made of comes later
	table := s.table.Load()
	p := table.Match(c)
	given, violations := fit(c, req.GetRequest().GetHeaders(), p, table)
	if given && len(violations) == 0 {
		d.add("request.headers", p.Idempotency.Header+" is the operation id under this policy, and there is none in a stream; leave it out")
		violations = d.violations
	}
	return c, p, invalid(prefixed("head", violations))
}

// heldByStream is what a stream counts: what is kept of its body to be sent again, a chunk each way, an answer that is held, and over HTTP/2
// what the upstream may send ahead.
func heldByStream(c *call.Call, p *policy.Effective) uint64 {
	held := uint64(answerShare + chunkBytes)
	if slices.Contains(p.Attempt.Protocols, policy.ProtocolHTTP2) {
		held += aheadBytes
	}
	if !call.Safe(c.Method) { // a body is rare there
		held += replayBytes(c, p) + maxChunk
	}
	return held
}

// replayBytes is how much of the body is kept.
func replayBytes(c *call.Call, p *policy.Effective) uint64 {
	switch {
	case c.SingleUseBody:
		return 0
	case call.Safe(c.Method):
		return min(p.Body.ReplayBytes, chunkBytes)
	}
	return p.Body.ReplayBytes
}

// cutOff ends a stream some time after it should be over: whoever does not take what he is sent cannot be told anything either.
func (s *CallService) cutOff(ctx context.Context, c *call.Call, p *policy.Effective) (stop func()) {
	hangUp, ok := hangUpOf(ctx)
	if !ok {
		return func() {}
	}
	timer := time.AfterFunc(time.Until(engine.Deadline(c, &p.Deadline))+streamGrace, func() { hangUp(errNotTaken) })
	return func() { timer.Stop() }
}

// upstreamBody is the body of a streamed call as its caller sends it.
type upstreamBody struct {
	from   grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]
	end    context.CancelCauseFunc // of the call
	pieces chan []byte             // closed when there are no more
	why    chan error              // receives why, once, before that; is never closed
	ended  error                   // once pieces is closed: io.EOF when the caller has sent all, else why there are no more
	bodied bool                    // there may be a body
}

func newUpstreamBody(from grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse], end context.CancelCauseFunc) *upstreamBody {
	return &upstreamBody{from: from, end: end, pieces: make(chan []byte), why: make(chan error, 1)}
}

// upload gives the body for attempts. TRACE has none (RFC 9110 §9.3.8).
func (u *upstreamBody) upload(c *call.Call, p *policy.Effective) *call.Upload {
	if u.bodied = c.Method != "TRACE"; !u.bodied {
		return nil
	}
	return call.NewUpload(u.next, replayBytes(c, p))
}

// next waits for a piece. One is read ahead of whoever asks, and gRPC has a window's worth.
func (u *upstreamBody) next(ctx context.Context) ([]byte, error) {
	select {
	case p, ok := <-u.pieces:
		if ok {
			return p, nil
		}
		return nil, u.ended
	case <-ctx.Done():
		return nil, context.Cause(ctx) //nolint:wrapcheck // it ends in the result of an attempt
	}
}

// receive reads messages until the caller has sent all, or is gone, or the call is over. What is wrong ends the call, as a panic does, which
// the handler's goroutine takes up.
func (u *upstreamBody) receive(ctx context.Context) {
	defer close(u.pieces)
	defer func() {
		if v := recover(); v != nil {
			u.ended = &panicked{value: v, stack: debug.Stack(), taken: true}
			u.fail(u.ended)
		}
	}()
	u.ended = u.read(ctx)
}

// read gives the pieces, and says why there are no more. Only io.EOF lets an attempt end its body as a whole one: a caller who left in the
// midst of it has not sent all.
func (u *upstreamBody) read(ctx context.Context) error {
	var buffers [2]piece // while one is with an attempt, the other is read into; an attempt gives one back by asking for the next
	for i := 0; ; i ^= 1 {
		m := &buffers[i]
		err := u.from.RecvMsg(m)
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		if err == nil {
			err = u.judge(m)
		}
		if err != nil {
			// Else the call is over, or its caller has gone: he is told what is known. A message that we gave up ends the call by itself.
			// The reading ends with the RPC, and so may be ahead of ctx, which ends by it.
			rpc := u.from.Context()
			if ctx.Err() == nil && rpc.Err() == nil || errors.Is(context.Cause(rpc), errGivenUp) { //nolint:contextcheck // the two are told apart here
				u.fail(err)
			}
			return err
		}
		select {
		case u.pieces <- m.chunk:
		case <-ctx.Done():
			return context.Cause(ctx) //nolint:wrapcheck // as in next
		}
	}
}

// fail ends the call for what was wrong.
func (u *upstreamBody) fail(err error) {
	u.why <- err
	u.end(err)
}

// judge names what is wrong with a message after the head.
func (u *upstreamBody) judge(m *piece) error {
	if m.other != nil {
		m.chunk = m.other.GetChunk()
	}
	var problem string
	switch _, chunk := m.other.GetPart().(*pb.StreamCallRequest_Chunk); {
	case m.other == nil, chunk:
		if u.bodied || len(m.chunk) == 0 {
			return nil
		}
		problem = "a TRACE request has no body (RFC 9110 §9.3.8); end the stream after its head"
	case m.other.GetHead() != nil:
		problem = "a second head; after the first message there are chunks only"
	default:
		problem = "a message without its part; send chunks, and then end the stream"
	}
	return invalid([]*call.InvalidError{{Field: "part", Problem: problem}})
}

// broken is what ended the reading; nil when nothing did, as far as is known. It is asked when the call is over.
func (u *upstreamBody) broken(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errGivenUp) {
		for range u.pieces {
			continue // the reader is about to say why, and to end
		}
	}
	select {
	case err := <-u.why:
		return err
	default:
		return nil
	}
}

// sentOrNot is the error of a stream that its caller broke: it says that nothing was sent only where that is proved.
func sentOrNot(err error, f *call.Final) error {
	if reason, ok := ownReason(err); !ok || reason == "" || f.Sends == 0 {
		return err
	}
	return status.Error(status.Code(err), fmt.Sprintf("%s (the call was under way, and its effect is %s)", status.Convert(err).Message(), f.Effect))
}

// downstream is the answer as its caller gets it.
type downstream struct {
	to    grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]
	begun bool
}

// Head sends the head of the answer.
func (d *downstream) Head(r *call.Response) error {
	d.begun = true
	answer := encodeResponse(r)
	answer.Body, answer.Trailers = nil, nil
	return d.to.Send(&pb.StreamCallResponse{Part: &pb.StreamCallResponse_Head{Head: answer}}) //nolint:wrapcheck // it ends the call
}

// Piece sends the next bytes of its body; gRPC has encoded them when this returns.
func (d *downstream) Piece(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), chunkBytes)
		if err := d.to.Send(&pb.StreamCallResponse{Part: &pb.StreamCallResponse_Chunk{Chunk: p[:n]}}); err != nil {
			return err //nolint:wrapcheck // as above
		}
		p = p[n:]
	}
	return nil
}

// finish sends the answer that the call ended with, unless it was forwarded as it came, and the result.
func (d *downstream) finish(resp *pb.CallResponse, f *call.Final) error {
	if r := f.Response; r != nil && !d.begun {
		if err := errors.Join(d.Head(r), d.Piece(r.Body)); err != nil {
			return err
		}
	}
	if resp.GetResponse() != nil {
		resp.Response.Body = nil
	}
	return d.to.Send(&pb.StreamCallResponse{Part: &pb.StreamCallResponse_Result{Result: resp}}) //nolint:wrapcheck // the status of the RPC
}

// tooMuch is what a chunk is told that is too large.
func tooMuch(size uint32) error {
	return status.Errorf(codes.ResourceExhausted, "a chunk of %d bytes; send at most %d at once", size, maxChunk)
}
