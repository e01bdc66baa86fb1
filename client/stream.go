package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// streamChunk is how much of a body one message carries. With its heads it fits into the window of a stream (64 KiB): for a larger message the
// broker has few places, and one that finds none for some time ends the call.
const streamChunk = 64<<10 - 32

// The two ends of a stream that are not the broker's: an error of either ends the call and is what Stream returns.
var (
	// ErrBody says that the body of the request could not be read to its end.
	ErrBody = errors.New("the body of the request was not read to its end")
	// ErrAnswer says that the body of the answer could not be written.
	ErrAnswer = errors.New("the body of the answer was not written")
)

// Answer takes an answer as it comes.
type Answer struct {
	// Head, if set, is given the status and the fields before the first byte of the body.
	Head func(*pb.HttpResponse) error
	// Body, if set, is written the body; nil drops it.
	Body io.Writer
}

// Stream makes one outbound call whose bodies may be of any size: body is read as the upstream takes it, and the answer is written as it
// comes, so that neither is in memory whole. A nil body is none; one ends with io.EOF itself, and any other error ends the call. req has
// no body, no operation id and no allow_deferral.
//
// The result is that of Call; its response has the status, the fields and the trailers of the answer, and no body. Where it has no response,
// what was written, if anything, is a part of an answer that broke off. An error is as that of Call, or says [ErrBody] or [ErrAnswer], after
// which the effect is unknown.
//
// Stream may return while a Read of body is under way, as when the upstream answers early; nothing is read after that one.
func (c *Client) Stream(ctx context.Context, req *pb.CallRequest, body io.Reader, answer Answer) (*pb.CallResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := c.calls.StreamCall(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Head{Head: req}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err //nolint:wrapcheck // its gRPC status is the contract; after io.EOF Recv tells what the broker said
	}
	if body == nil {
		_ = stream.CloseSend() // as above
	} else {
		go upload(ctx, cancel, stream, body) // it ends with ctx, but for a Read that blocks
	}
	result, err := answer.take(stream)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrBody) {
		return nil, cause //nolint:wrapcheck // of our own making
	}
	return result, err
}

// upload sends the body until its end, or that of the stream.
func upload(ctx context.Context, cancel context.CancelCauseFunc, stream grpc.BidiStreamingClient[pb.StreamCallRequest, pb.StreamCallResponse], body io.Reader) {
	for ctx.Err() == nil {
		p := make([]byte, streamChunk) // a message must not change after it was sent
		n, err := body.Read(p)
		if n > 0 && stream.Send(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Chunk{Chunk: p[:n]}}) != nil {
			return // it is over, and Recv tells why
		}
		switch {
		case ctx.Err() != nil: // it is over; and a body that ended with its context may not be whole
			return
		case err == io.EOF: // that very value: an error that wraps it says that the body broke off
			_ = stream.CloseSend() // as above
			return
		case err != nil:
			cancel(fmt.Errorf("%w: %w", ErrBody, err))
			return
		}
	}
}

// take reads the messages of a stream to the last one.
func (a Answer) take(stream grpc.BidiStreamingClient[pb.StreamCallRequest, pb.StreamCallResponse]) (*pb.CallResponse, error) {
	var result *pb.CallResponse
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && result != nil:
			return result, nil
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err //nolint:wrapcheck // as in Stream
		}
		switch part := m.GetPart().(type) {
		case *pb.StreamCallResponse_Head:
			if a.Head != nil {
				err = a.Head(part.Head)
			}
		case *pb.StreamCallResponse_Chunk:
			if a.Body != nil {
				_, err = a.Body.Write(part.Chunk)
			}
		case *pb.StreamCallResponse_Result:
			result = part.Result
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
		}
	}
}
