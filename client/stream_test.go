package client_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func (f *fake) StreamCall(s grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error {
	if f.stream != nil {
		return f.stream(s)
	}
	return f.err
}

func partHead(code uint32) *pb.StreamCallResponse {
	return &pb.StreamCallResponse{Part: &pb.StreamCallResponse_Head{Head: &pb.HttpResponse{Status: code}}}
}

func partResult(o pb.Outcome) *pb.StreamCallResponse {
	return &pb.StreamCallResponse{Part: &pb.StreamCallResponse_Result{Result: &pb.CallResponse{Outcome: o}}}
}

func partChunk(p []byte) *pb.StreamCallResponse {
	return &pb.StreamCallResponse{Part: &pb.StreamCallResponse_Chunk{Chunk: p}}
}

// echo says back what it hears.
func echo(s grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error {
	m, err := s.Recv()
	if err != nil || m.GetHead().GetRequest().GetUrl() != "http://127.0.0.1/" {
		return status.Error(codes.InvalidArgument, "no head")
	}
	err = s.Send(partHead(201))
	for err == nil {
		if m, err = s.Recv(); err == nil {
			err = s.Send(partChunk(m.GetChunk()))
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return s.Send(partResult(pb.Outcome_OUTCOME_SUCCESS))
}

func TestStreamCarriesBothBodies(t *testing.T) {
	f := &fake{stream: echo}
	c := dial(t, serve(t, "tcp", "127.0.0.1:0", f).Addr().String(), client.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req := &pb.CallRequest{Request: &pb.HttpRequest{Url: "http://127.0.0.1/"}}
	big := strings.Repeat("0123456789", 50_000)
	for name, body := range map[string]io.Reader{
		"":     nil,
		"word": strings.NewReader("word"),
		big:    iotest.HalfReader(strings.NewReader(big)),
		"last": iotest.DataErrReader(strings.NewReader("last")),
	} {
		var got bytes.Buffer
		var code uint32
		r, err := c.Stream(ctx, req, body, client.Answer{Body: &got, Head: func(h *pb.HttpResponse) error { code = h.GetStatus(); return nil }})
		if err != nil || r.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || code != 201 || got.String() != name {
			t.Errorf("%.10s: %v, %v, status %d, %d bytes", name, r, err, code, got.Len())
		}
	}
	if r, err := c.Stream(ctx, req, strings.NewReader("dropped"), client.Answer{}); err != nil || r.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("%v, %v", r, err)
	}
}

func TestStreamSaysWhichEndBroke(t *testing.T) {
	f := &fake{stream: echo}
	c := dial(t, serve(t, "tcp", "127.0.0.1:0", f).Addr().String(), client.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req := &pb.CallRequest{Request: &pb.HttpRequest{Url: "http://127.0.0.1/"}}
	ours := errors.New("ours")
	if r, err := c.Stream(ctx, req, io.MultiReader(strings.NewReader("x"), iotest.ErrReader(ours)), client.Answer{}); r != nil || !errors.Is(err, client.ErrBody) || !errors.Is(err, ours) {
		t.Errorf("body: %v, %v", r, err)
	}
	refuses := func(*pb.HttpResponse) error { return ours }
	if r, err := c.Stream(ctx, req, strings.NewReader("x"), client.Answer{Head: refuses}); r != nil || !errors.Is(err, client.ErrAnswer) || !errors.Is(err, ours) {
		t.Errorf("answer: %v, %v", r, err)
	}
	if r, err := c.Stream(ctx, &pb.CallRequest{}, strings.NewReader("x"), client.Answer{}); r != nil || status.Code(err) != codes.InvalidArgument {
		t.Errorf("refused: %v, %v", r, err)
	}
	f.stream = func(s grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error {
		return s.Send(partHead(200))
	}
	if r, err := c.Stream(ctx, req, nil, client.Answer{}); r != nil || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("no result: %v, %v", r, err)
	}
}

// once gives some bytes and an error together, and is at its end after that.
type once struct {
	text string
	err  error
}

func (o *once) Read(p []byte) (int, error) {
	n, err := copy(p, o.text), cmp.Or(o.err, io.EOF)
	*o = once{}
	return n, err
}

// The broker must not hear the end of a body that broke off: the upstream would take the part for the whole.
func TestStreamEndsNoBodyThatBrokeOff(t *testing.T) {
	ended := make(chan bool, 1) // receives one value per call
	f := &fake{stream: func(s grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error {
		var err error
		for err == nil {
			_, err = s.Recv()
		}
		ended <- errors.Is(err, io.EOF)
		return s.Send(partResult(pb.Outcome_OUTCOME_SUCCESS))
	}}
	c := dial(t, serve(t, "tcp", "127.0.0.1:0", f).Addr().String(), client.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, body := range map[string]io.Reader{
		"an error beside the last bytes": &once{"a part", io.ErrUnexpectedEOF},
		"an error that wraps io.EOF":     iotest.ErrReader(fmt.Errorf("the source hung up: %w", io.EOF)),
	} {
		r, err := c.Stream(ctx, &pb.CallRequest{}, body, client.Answer{})
		if r != nil || !errors.Is(err, client.ErrBody) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		if <-ended {
			t.Errorf("%s: the broker heard the end of the body", name)
		}
	}
}

// A body that a caller ends as he leaves may be a part.
func TestStreamEndsNoBodyOfACallerWhoLeft(t *testing.T) {
	ended := make(chan bool, 1) // receives one value per call
	f := &fake{stream: func(s grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error {
		var err error
		for err == nil {
			_, err = s.Recv()
		}
		ended <- errors.Is(err, io.EOF)
		return err
	}}
	c := dial(t, serve(t, "tcp", "127.0.0.1:0", f).Addr().String(), client.Config{})
	for range 100 { // the end of the call and that of the body are on their way together
		ctx, leave := context.WithCancel(t.Context())
		r, err := c.Stream(ctx, &pb.CallRequest{}, io.MultiReader(strings.NewReader("a part"), leaver(leave)), client.Answer{})
		if r != nil || status.Code(err) != codes.Canceled {
			t.Errorf("%v, %v", r, err)
		}
		if <-ended {
			t.Fatal("the broker heard the end of the body")
		}
	}
}

// leaver is at its end as soon as it is read.
type leaver context.CancelFunc

func (l leaver) Read([]byte) (int, error) {
	l()
	return 0, io.EOF
}

// An early answer ends the call, although the rest of the body never comes.
func TestStreamWaitsForNoBodyOnceItIsOver(t *testing.T) {
	f := &fake{stream: func(s grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error {
		return errors.Join(s.Send(partHead(413)), s.Send(partResult(pb.Outcome_OUTCOME_HTTP_ERROR)))
	}}
	c := dial(t, serve(t, "tcp", "127.0.0.1:0", f).Addr().String(), client.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	body, end := io.Pipe()
	r, err := c.Stream(ctx, &pb.CallRequest{}, body, client.Answer{})
	if err != nil || r.GetOutcome() != pb.Outcome_OUTCOME_HTTP_ERROR {
		t.Errorf("%v, %v", r, err)
	}
	_ = end.Close() // the Read that was under way ends, and with it its goroutine
}

// Each message fits into the window of a stream, with the head that gRPC puts before it: no broker makes it wait for a place.
func TestStreamSendsMessagesThatFitTheWindow(t *testing.T) {
	const window, before = 64 << 10, 5
	largest := 0
	f := &fake{stream: func(s grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error {
		for {
			m, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return s.Send(partResult(pb.Outcome_OUTCOME_SUCCESS))
			}
			if err != nil {
				return err
			}
			largest = max(largest, proto.Size(m))
		}
	}}
	c := dial(t, serve(t, "tcp", "127.0.0.1:0", f).Addr().String(), client.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Stream(ctx, &pb.CallRequest{}, bytes.NewReader(make([]byte, 1<<20)), client.Answer{}); err != nil {
		t.Fatal(err)
	}
	if largest+before > window || largest < window/2 {
		t.Errorf("messages of %d bytes", largest)
	}
}
