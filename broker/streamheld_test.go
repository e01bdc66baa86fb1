package broker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// torn is a stream whose second message panics.
type torn struct {
	grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]

	ctx context.Context //nolint:containedctx // it stands for a stream
	req *pb.CallRequest
}

func (s *torn) Context() context.Context { return s.ctx }
func (s *torn) Recv() (*pb.StreamCallRequest, error) {
	return &pb.StreamCallRequest{Part: &pb.StreamCallRequest_Head{Head: s.req}}, nil
}
func (s *torn) Send(*pb.StreamCallResponse) error { return nil }
func (s *torn) SendMsg(any) error                 { return nil }
func (s *torn) RecvMsg(any) error                 { panic("torn") }

// A panic where messages are read belongs to that call: it ends in the goroutine of its handler, where it is recovered.
func TestPanicWhileReadingAStreamIsOfItsCall(t *testing.T) {
	w := newWeb(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	r := start(t, setup{rules: []policy.Rule{w.rule}})
	defer func() {
		if p, ok := recover().(*panicked); !ok || p.value != "torn" || !p.taken || !strings.Contains(string(p.stack), "RecvMsg") {
			t.Errorf("got %+v", p)
		}
	}()
	err := r.service.StreamCall(&torn{ctx: t.Context(), req: headOf("POST", w.URL)})
	t.Errorf("it returned %v", err)
}

func TestStreamCountsWhatItMayHold(t *testing.T) {
	const kept = 7 << 10
	for _, tt := range []struct {
		method    string
		protocols []policy.Protocol
		singleUse bool
		want      uint64
	}{
		{"GET", []policy.Protocol{policy.ProtocolHTTP11}, false, answerShare + chunkBytes},
		{"GET", []policy.Protocol{policy.ProtocolHTTP11, policy.ProtocolHTTP2}, false, answerShare + chunkBytes + 1<<20},
		{"POST", []policy.Protocol{policy.ProtocolHTTP11}, false, answerShare + chunkBytes + 1<<20 + kept},
		{"POST", []policy.Protocol{policy.ProtocolHTTP11}, true, answerShare + chunkBytes + 1<<20},
		{"POST", []policy.Protocol{policy.ProtocolHTTP2}, false, answerShare + chunkBytes + 2<<20 + kept},
	} {
		var p policy.Effective
		p.Attempt.Protocols, p.Body.ReplayBytes = tt.protocols, kept
		if got := heldByStream(&call.Call{Method: tt.method, SingleUseBody: tt.singleUse}, &p); got != tt.want {
			t.Errorf("%s over %v: %d bytes, want %d", tt.method, tt.protocols, got, tt.want)
		}
	}
}

// crammed is a stream whose second message finds no place, and is given up.
type crammed struct {
	torn

	giveUp context.CancelCauseFunc
}

func (s *crammed) RecvMsg(any) error {
	s.giveUp(errGivenUp)
	return crowded()
}

// A message that the broker gave up is not told as a caller who went away.
func TestStreamWhoseMessageWasGivenUpSaysSo(t *testing.T) {
	w := newWeb(t, "HTTP/1.1", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	r := start(t, setup{rules: []policy.Rule{w.rule}})
	ctx, giveUp := context.WithCancelCause(t.Context())
	defer giveUp(nil)
	err := r.service.StreamCall(&crammed{torn: torn{ctx: ctx, req: &pb.CallRequest{Request: &pb.HttpRequest{Method: "POST", Url: w.URL}}}, giveUp: giveUp})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

// leaving is a stream whose caller sends a chunk and goes.
type leaving struct {
	torn

	leave context.CancelFunc
}

func (s *leaving) RecvMsg(m any) error {
	m.(*piece).chunk = []byte("a part")
	s.leave()
	return nil
}

// A caller who goes in the midst of his body has not sent all of it: an upstream that read its end would take the part for the whole.
func TestStreamWhoseCallerLeftHasNoEnd(t *testing.T) {
	for range 100 { // the reader chooses between a piece to give and the end of the call
		ctx, leave := context.WithCancel(t.Context())
		u := newUpstreamBody(&leaving{torn: torn{ctx: ctx}, leave: leave}, nil)
		u.bodied = true
		go u.receive(ctx)
		<-ctx.Done()
		for range 3 {
			if p, err := u.next(t.Context()); errors.Is(err, io.EOF) {
				t.Fatalf("%q, and the body is at its end", p)
			}
		}
		for range u.pieces {
			continue // until the reader has ended
		}
	}
}

// hungUp is a stream whose reading ends with its RPC.
type hungUp struct {
	torn

	hangUp context.CancelFunc
}

func (s *hungUp) RecvMsg(any) error {
	s.hangUp()
	return status.FromContextError(s.ctx.Err()).Err()
}

// A reading that ends with the RPC says nothing that was wrong, also where the context of the call has not ended with it yet.
func TestStreamWhoseRPCEndedHasNoFaultyMessage(t *testing.T) {
	rpc, hangUp := context.WithCancel(t.Context())
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	u := newUpstreamBody(&hungUp{torn: torn{ctx: rpc}, hangUp: hangUp}, end)
	u.receive(ctx)
	if err := u.broken(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("the call ends with %v", err)
	}
	if _, err := u.next(ctx); status.Code(err) != codes.Canceled {
		t.Errorf("the body ends with %v", err)
	}
}
