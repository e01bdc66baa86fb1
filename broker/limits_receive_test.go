package broker

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// send writes the begin of a message that is said to be of that size.
func (c *rawClient) send(stream uint32, size int, content []byte) {
	c.write(func() error {
		return c.framer.WriteData(stream, false, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), content...))
	})
}

// half begins a call whose message is never finished.
func (c *rawClient) half(stream uint32, method string) {
	c.open(stream, method, 0, false)
	c.send(stream, 19<<20, make([]byte, 1000))
}

// watch begins an RPC that is received whole and lasts.
func (c *rawClient) watch(stream uint32) {
	c.open(stream, healthpb.Health_Watch_FullMethodName, 0, false)
	c.write(func() error { return c.framer.WriteData(stream, true, make([]byte, 5)) })
}

// granted is how much more than the first window the client may send on a stream.
func (c *rawClient) granted(stream uint32) (bytes uint32) {
	for _, f := range c.all(http2.FrameWindowUpdate) {
		if f.stream == stream {
			bytes += f.window
		}
	}
	return bytes
}

// unsentMessage begins an RPC without its message, and gives how the server ends it.
func unsentMessage(ctx context.Context, t *testing.T, conn *grpc.ClientConn, method string) error {
	t.Helper()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	return s.RecvMsg(&pb.CallResponse{})
}

func TestMessageThatDoesNotArriveIsGivenUp(t *testing.T) {
	for name, method := range map[string]string{
		"call": pb.CallService_Call_FullMethodName, "health": healthpb.Health_Check_FullMethodName, "watch": healthpb.Health_Watch_FullMethodName,
		"reflection": "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := rawDial(t, rawBroker(t).dial(), false)
				c.half(1, method)
				time.Sleep(30*time.Second - 1)
				synctest.Wait()
				if h := c.all(http2.FrameHeaders); len(h) != 0 {
					t.Fatalf("ended before its time: %+v", h)
				}
				if c.granted(1) == 0 {
					t.Error("the message was not being read")
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if h := c.all(http2.FrameHeaders); len(h) != 1 || !h[0].end {
					t.Errorf("after 30s: %+v", h)
				}
			})
		})
	}
}

// A call has its own time once it is received; that of receiving is over then.
func TestReceivedCallOutlivesTheTimeToReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := policy.Rule{Name: "policies/slow", Revision: 1, File: true}
		rule.Attempt.Timeout = new(time.Minute)
		r := start(t, setup{memory: true, rules: []policy.Rule{rule}, sender: senderFunc(func(ctx context.Context, _ *call.Call) call.Result {
			timer := time.NewTimer(40 * time.Second)
			defer timer.Stop()
			select {
			case <-timer.C:
				return answered(200)
			case <-ctx.Done():
				return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureCancelled}
			}
		})})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		if resp, err := r.calls.Call(ctx, get("http://127.0.0.1/")); err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
			t.Errorf("%v, %v", resp, err)
		}
		_ = r.conn.Close()
	})
}

func TestRefusalComesBeforeTheMessageIsRead(t *testing.T) {
	ids, err := parseTokens("test", []byte("tokens: [{identity: a, sha256: 945d1c1a89b8508016b97c6303225022f0b0b407c89eb89df700dbc1c43a5447, roles: [caller]}]"))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, setup{identities: ids, sender: senderFunc(nil)})
	err = unsentMessage(within(t), t, r.conn, pb.CallService_Call_FullMethodName)
	if status.Code(err) != codes.Unauthenticated || unsent(err) != "UNAUTHENTICATED" {
		t.Errorf("without a token: %v", err)
	}
	r.server.access.gate.close()
	err = unsentMessage(within(t), t, r.conn, pb.CallService_Call_FullMethodName)
	if status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
		t.Errorf("draining: %v", err)
	}
}

func TestStrangerGetsNoWindowForItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		start(t, setup{listener: p, sender: senderFunc(nil), identities: &Identities{tokens: map[[32]byte]identity{{}: {name: "a"}}}})
		c := rawDial(t, p.dial(), false)
		c.half(1, pb.CallService_Call_FullMethodName)
		synctest.Wait()
		if h := c.all(http2.FrameHeaders); len(h) != 1 || !h[0].end || c.granted(1) != 0 {
			t.Errorf("answers %+v, %d bytes more granted", h, c.granted(1))
		}
	})
}

func TestMessagesOnTheirWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		r := start(t, setup{listener: p, sender: senderFunc(func(context.Context, *call.Call) call.Result { return answered(200) }), limits: Limits{MaxBytes: 20 << 20}})
		c := rawDial(t, p.dial(), false)
		conn := dial(t, func(context.Context, string) (c net.Conn, err error) { return p.dial(), nil })
		calls := pb.NewCallServiceClient(conn)
		for n := range uint32(minSlots) {
			c.half(2*n+1, pb.CallService_Call_FullMethodName)
		}
		synctest.Wait()
		began := time.Now()
		_, err := calls.Call(t.Context(), get("http://127.0.0.1/"))
		refusedAsFull(t, err, "being received")
		if took := time.Since(began); took != receivePatience {
			t.Errorf("refused after %s", took)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("health meanwhile: %v", err)
		}
		c.half(2*minSlots+1, pb.CallService_Call_FullMethodName)
		synctest.Wait()
		if c.granted(1) == 0 || c.granted(2*minSlots+1) != 0 {
			t.Errorf("granted %d bytes to the first, %d to one too many", c.granted(1), c.granted(2*minSlots+1))
		}
		time.Sleep(receivePatience)
		for n := range uint32(minSlots) { // clients that go away free their slots
			c.write(func() error { return c.framer.WriteRSTStream(2*n+1, http2.ErrCodeCancel) })
		}
		synctest.Wait()
		if _, err := calls.Call(t.Context(), get("http://127.0.0.1/")); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		if here := r.server.access.callers.here.Load(); here != 0 {
			t.Errorf("%d are left in the count", here)
		}
		_ = conn.Close()
	})
}

// RPCs that begin together are read one after the other, and none is refused for it.
func TestBurstIsNotRefused(t *testing.T) {
	r := start(t, setup{limits: Limits{MaxBytes: 300 * answerShare}, sender: senderFunc(func(context.Context, *call.Call) call.Result { return answered(200) })})
	var callers sync.WaitGroup
	for range 300 {
		callers.Go(func() {
			if _, err := r.calls.Call(within(t), get("http://127.0.0.1/")); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
}

func TestWaitingMessagesAreCounted(t *testing.T) {
	r := newReception(1, 1)
	err := r.receive(t.Context(), func() error {
		err := r.receive(t.Context(), func() error { return nil })
		refusedAsFull(t, err, "being received")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := r.receive(t.Context(), func() error { return nil }); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
