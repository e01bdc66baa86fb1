package broker

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// web is an upstream for streams, over one of the protocols.
type web struct {
	*httptest.Server

	rule policy.Rule
	ends chan error // of requests whose handler was left because its client had gone
}

var protocols = []string{"HTTP/1.1", "HTTP/2"}

func newWeb(t testing.TB, protocol string, handle http.HandlerFunc) *web {
	t.Helper()
	w := &web{rule: policy.Rule{Name: "policies/web", Revision: 1, File: true}, ends: make(chan error, 16)}
	w.Server = httptest.NewUnstartedServer(handle)
	if protocol == "HTTP/2" {
		w.EnableHTTP2 = true
		w.StartTLS()
		w.rule.Attempt.Protocols = []policy.Protocol{policy.ProtocolHTTP2}
		w.rule.Egress.TLS.CAPEM = new(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})))
	} else {
		w.Start()
	}
	w.rule.Retry.Backoff.Base, w.rule.Retry.Backoff.Cap = new(time.Millisecond), new(time.Millisecond)
	t.Cleanup(w.Close)
	return w
}

// heard is what a caller got of a stream.
type heard struct {
	head   *pb.HttpResponse
	body   []byte
	result *pb.CallResponse
	err    error
	chunks int
}

func headOf(method, url string) *pb.CallRequest {
	return &pb.CallRequest{Request: &pb.HttpRequest{Method: method, Url: url}}
}

// open begins a stream.
func (r *running) open(ctx context.Context, t testing.TB, req *pb.CallRequest) grpc.BidiStreamingClient[pb.StreamCallRequest, pb.StreamCallResponse] {
	t.Helper()
	s, err := r.calls.StreamCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Head{Head: req}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func chunk(p []byte) *pb.StreamCallRequest {
	return &pb.StreamCallRequest{Part: &pb.StreamCallRequest_Chunk{Chunk: p}}
}

// stream makes a call with that body, in chunks of 32 KiB.
func (r *running) stream(ctx context.Context, t testing.TB, req *pb.CallRequest, body io.Reader) heard {
	t.Helper()
	return talk(t, r.open(ctx, t, req), body)
}

// talk sends the body, and listens.
func talk(t testing.TB, s grpc.BidiStreamingClient[pb.StreamCallRequest, pb.StreamCallResponse], body io.Reader) heard {
	t.Helper()
	go func() {
		for p := make([]byte, 32<<10); body != nil; {
			n, err := body.Read(p)
			if n > 0 && s.Send(chunk(bytes.Clone(p[:n]))) != nil {
				return // to end the stream now would say that this was all
			}
			if err != nil {
				break
			}
		}
		_ = s.CloseSend()
	}()
	return listenTo(t, s)
}

// listenTo reads a stream to its end, and wants its messages in order.
func listenTo(t testing.TB, s grpc.BidiStreamingClient[pb.StreamCallRequest, pb.StreamCallResponse]) (h heard) {
	t.Helper()
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return h
		}
		if h.err = err; err != nil {
			return h
		}
		switch part := m.GetPart().(type) {
		case *pb.StreamCallResponse_Head:
			if h.head != nil || h.result != nil {
				t.Error("a head after another message")
			}
			h.head = part.Head
		case *pb.StreamCallResponse_Chunk:
			if h.head == nil || h.result != nil || len(part.Chunk) > 64<<10 || len(part.Chunk) == 0 {
				t.Errorf("a chunk of %d bytes out of order", len(part.Chunk))
			}
			h.body, h.chunks = append(h.body, part.Chunk...), h.chunks+1
		case *pb.StreamCallResponse_Result:
			if h.result != nil {
				t.Error("two results")
			}
			h.result = part.Result
		default:
			t.Errorf("a message without its part")
		}
	}
}

// says is outcome, reason, effect, and evidence of the attempts.
func (h *heard) says() string {
	if h.err != nil {
		return h.err.Error()
	}
	r := h.result
	text, separator := fmt.Sprint(r.GetOutcome(), "/", r.GetReason(), "/", r.GetEffect()), ": "
	for _, a := range r.GetAttempts() {
		text += separator + a.GetEvidence().String()
		separator = ","
	}
	return strings.NewReplacer("OUTCOME_", "", "REASON_", "", "EFFECT_", "", "EVIDENCE_", "").Replace(text)
}

func (h *heard) wants(t testing.TB, says string, statusCode uint32, body string) {
	t.Helper()
	if got := h.says(); got != says {
		t.Errorf("%s (%s), want %s", got, h.result.GetDetail(), says)
	}
	if h.head.GetStatus() != statusCode || string(h.body) != body {
		t.Errorf("status %d, body of %d bytes %.100q", h.head.GetStatus(), len(h.body), h.body)
	}
	if len(h.result.GetResponse().GetBody()) > 0 || len(h.head.GetBody()) > 0 {
		t.Error("a body beside the chunks")
	}
}
