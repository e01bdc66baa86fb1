package broker

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

const reflectionMethod = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"

// large is a message that needs a slot.
const large = 19 << 20

// send writes the begin of a message that is said to be of that size.
func (c *rawClient) send(stream uint32, size int, content []byte) {
	c.write(func() error {
		return c.framer.WriteData(stream, false, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), content...))
	})
}

// half begins an RPC whose message of that size is never finished.
func (c *rawClient) half(stream uint32, method string, size int, more ...[2]string) {
	c.open(stream, method, 0, false, more...)
	c.send(stream, size, make([]byte, min(size/2, 1000)))
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

// refusedAsLate fails unless the error says that the message did not arrive in that time, and that nothing was sent.
func refusedAsLate(t *testing.T, err error, within string) {
	t.Helper()
	if status.Code(err) != codes.DeadlineExceeded || unsent(err) != "INVALID_REQUEST" || !strings.HasSuffix(err.Error(), "the message did not arrive whole within "+within) {
		t.Errorf("%v, unsent reason %q; want it late after %s", err, unsent(err), within)
	}
}

func TestMessageThatDoesNotArriveIsGivenUp(t *testing.T) {
	for _, row := range []struct {
		name, method string
		begin        func(c *rawClient, method string)
		grants       bool
	}{
		{"call", pb.CallService_Call_FullMethodName, func(c *rawClient, m string) { c.half(1, m, large) }, true},
		{"small call", pb.CallService_Call_FullMethodName, func(c *rawClient, m string) { c.half(1, m, 1000) }, false},
		{"call without a begin", pb.CallService_Call_FullMethodName, func(c *rawClient, m string) { c.open(1, m, 0, false) }, false},
		{"call without an end", pb.CallService_Call_FullMethodName, func(c *rawClient, m string) { c.half(1, m, 0) }, false},
		{"health", healthpb.Health_Check_FullMethodName, func(c *rawClient, m string) { c.half(1, m, 1000) }, false},
		{"watch", healthpb.Health_Watch_FullMethodName, func(c *rawClient, m string) { c.half(1, m, 1000) }, false},
		{"reflection", reflectionMethod, func(c *rawClient, m string) { c.half(1, m, 1000) }, false},
		{"idle reflection", reflectionMethod, func(c *rawClient, m string) { c.open(1, m, 0, false) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := rawDial(t, rawBroker(t).dial(), false)
				row.begin(c, row.method)
				time.Sleep(30*time.Second - 1)
				synctest.Wait()
				if h := c.all(http2.FrameHeaders); len(h) != 0 {
					t.Fatalf("ended before its time: %+v", h)
				}
				if got := c.granted(1) != 0; got != row.grants {
					t.Errorf("window beyond the first: %v, want %v", got, row.grants)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				err, ok := c.status(1)
				if !ok {
					t.Fatal("not given up after 30s")
				}
				refusedAsLate(t, err, "30s")
			})
		})
	}
}

// What does not arrive by the deadline is refused before it, with the word that nothing was sent.
func TestMessageThatMissesItsDeadlineIsRefusedInTime(t *testing.T) {
	for _, row := range []struct{ timeout, after, told string }{
		{"2S", "1.9s", "1.9s"}, {"100m", "90ms", "90ms"}, {"10S", "9.75s", "9.75s"}, {"31S", "30s", "30s"}, {"4m", "2ms", "2ms"},
	} {
		t.Run(row.timeout, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := rawDial(t, rawBroker(t).dial(), false)
				began := time.Now()
				c.half(1, pb.CallService_Call_FullMethodName, large, [2]string{"grpc-timeout", row.timeout})
				refusedAsLate(t, c.answer(1), row.told)
				if took := time.Since(began).String(); took != row.after {
					t.Errorf("after %s, want %s", took, row.after)
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
	ids, err := parseTokens("test", []byte("tokens: [{identity: a, sha256: 945d1c1a89b8508016b97c6303225022f0b0b407c89eb89df700dbc1c43a5447, roles: [caller]}]"), Proofs{})
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
	for _, row := range []struct {
		method string
		code   codes.Code
	}{
		{pb.CallService_Call_FullMethodName, codes.Unauthenticated},
		{healthpb.Health_Check_FullMethodName, codes.ResourceExhausted},
		{healthpb.Health_Watch_FullMethodName, codes.ResourceExhausted},
		{reflectionMethod, codes.ResourceExhausted},
	} {
		t.Run(row.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				start(t, setup{listener: p, sender: senderFunc(nil), identities: known(map[string][]Role{"a": {RoleCaller}})})
				c := rawDial(t, p.dial(), false)
				c.half(1, row.method, large)
				synctest.Wait()
				if err, _ := c.status(1); status.Code(err) != row.code || c.granted(1) != 0 {
					t.Errorf("%v, %d bytes more granted", err, c.granted(1))
				}
			})
		})
	}
}

func TestLargeMessagesOnTheirWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		r := start(t, setup{listener: p, sender: senderFunc(func(context.Context, *call.Call) call.Result { return answered(200) }), limits: Limits{MaxBytes: 20 << 20}})
		c := rawDial(t, p.dial(), false)
		conn := dial(t, func(context.Context, string) (c net.Conn, err error) { return p.dial(), nil })
		calls := pb.NewCallServiceClient(conn)
		const most = minSlots / 2 // one identity leaves as many
		for n := range uint32(most) {
			c.half(2*n+1, pb.CallService_Call_FullMethodName, large)
		}
		synctest.Wait()
		ask := func(size int) error {
			_, err := calls.Call(t.Context(), ofSize(t, "http://127.0.0.1/", size))
			return err
		}
		if err := ask(inWindow); err != nil {
			t.Errorf("one within the window: %v", err)
		}
		began := time.Now()
		refusedAsFull(t, ask(inWindow+1), "being received")
		if took := time.Since(began); took != receivePatience {
			t.Errorf("refused after %s", took)
		}
		c.half(2*most+1, pb.CallService_Call_FullMethodName, large)
		synctest.Wait()
		if c.granted(1) == 0 || c.granted(2*most+1) != 0 {
			t.Errorf("granted %d bytes to the first, %d to one too many", c.granted(1), c.granted(2*most+1))
		}
		c.write(func() error { return c.framer.WriteRSTStream(1, http2.ErrCodeCancel) }) // one that goes away leaves its slot to the next
		synctest.Wait()
		if c.granted(2*most+1) == 0 {
			t.Error("the one that waited is not read")
		}
		for n := range uint32(most) {
			c.write(func() error { return c.framer.WriteRSTStream(2*n+3, http2.ErrCodeCancel) })
		}
		synctest.Wait()
		if err := ask(inWindow + 1); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		leftEmpty(t, r.server.access.calls, minSlots)
		_ = conn.Close()
	})
}

// leftEmpty fails unless everything was given back, and no identity is remembered.
func leftEmpty(t *testing.T, r *reception, slots int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.here.Len() != 0 || len(r.of) != 0 || r.slots.free != slots || len(r.slots.of) != 0 || len(r.slots.waiting) != 0 {
		t.Errorf("left: %d messages, of %v; %d slots free of %d, of %v, %v wait", r.here.Len(), r.of, r.slots.free, slots, r.slots.of, r.slots.waiting)
	}
}

// Who goes away while it waits for a slot was not refused: it is in no count of refusals.
func TestCallerThatLeavesTheQueueWasNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := newPipes(), counting(t)
		r := start(t, setup{listener: p, sender: senderFunc(nil), observer: o, limits: Limits{MaxBytes: 20 << 20}})
		c := rawDial(t, p.dial(), false)
		const waits = minSlots/2 + 1
		for n := range uint32(waits) {
			c.half(2*n+1, pb.CallService_Call_FullMethodName, large)
		}
		synctest.Wait()
		if got := r.server.Load().Calling.Waiting; got != 1 {
			t.Fatalf("%d wait", got)
		}
		c.write(func() error { return c.framer.WriteRSTStream(2*waits-1, http2.ErrCodeCancel) })
		synctest.Wait()
		if got := r.server.Load().Calling.Waiting; got != 0 {
			t.Errorf("%d wait when it has gone", got)
		}
		if got := failures(t, o)[reasonBrokerFull]; got != "0" {
			t.Errorf("%s refused", got)
		}
	})
}

// The wait for a slot ends before the deadline of the RPC; its caller would not learn otherwise that nothing was sent.
func TestWaitForASlotEndsBeforeTheDeadline(t *testing.T) {
	for timeout, after := range map[string]time.Duration{"2S": 1900 * time.Millisecond, "100m": 90 * time.Millisecond, "6S": receivePatience} {
		t.Run(timeout, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				start(t, setup{listener: p, sender: senderFunc(nil), limits: Limits{MaxBytes: 20 << 20}})
				c := rawDial(t, p.dial(), false)
				for n := range uint32(minSlots / 2) {
					c.half(2*n+1, pb.CallService_Call_FullMethodName, large)
				}
				synctest.Wait()
				began := time.Now()
				const last = minSlots + 1
				c.half(last, pb.CallService_Call_FullMethodName, large, [2]string{"grpc-timeout", timeout})
				refusedAsFull(t, c.answer(last), "being received")
				if took := time.Since(began); took != after {
					t.Errorf("refused after %s, want %s", took, after)
				}
			})
		})
	}
}

// A packed message may be as large as any once it is unpacked, so that it needs a slot whatever its size.
func TestPackedMessageNeedsASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		start(t, setup{listener: p, sender: senderFunc(nil), limits: Limits{MaxBytes: 20 << 20}})
		c := rawDial(t, p.dial(), false)
		for n := range uint32(minSlots / 2) {
			c.half(2*n+1, pb.CallService_Call_FullMethodName, large)
		}
		synctest.Wait() // each RPC has a goroutine of its own: the packed message comes when the others have the slots
		const last = minSlots + 1
		c.open(last, pb.CallService_Call_FullMethodName, 0, false, [2]string{"grpc-encoding", "gzip"})
		c.write(func() error { return c.framer.WriteData(last, false, []byte{1, 0, 0, 0, 100}) })
		refusedAsFull(t, c.answer(last), "being received")
	})
}

// RPCs that begin together are received together, and none is refused for it.
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
	leftEmpty(t, r.server.access.calls, minSlots)
}

// Where all places are taken, what waits longest makes room for what comes: nobody keeps others out by not sending.
func TestOldestMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		start(t, setup{listener: p, sender: senderFunc(nil)})
		c := rawDial(t, p.dial(), false)
		for n := range uint32(minPlaces) {
			c.open(2*n+1, healthpb.Health_Check_FullMethodName, 0, false)
			synctest.Wait()
		}
		if h := c.all(http2.FrameHeaders); len(h) != 0 {
			t.Fatalf("refused within the limit: %+v", h[0])
		}
		other := rawDial(t, p.dial(), false)
		other.open(1, healthpb.Health_Check_FullMethodName, 0, false)
		synctest.Wait()
		err, _ := c.status(1)
		refusedAsFull(t, err, "being received")
		if h := c.all(http2.FrameHeaders); len(h) != 1 {
			t.Errorf("%d answers", len(h))
		}
		other.send(1, 0, nil)
		other.write(func() error { return other.framer.WriteData(1, true, nil) })
		if err := other.answer(1); err != nil {
			t.Errorf("the one that came: %v", err)
		}
	})
}

func TestFewCallsHavePlacesForABurst(t *testing.T) {
	for _, row := range []struct {
		limits        Limits
		places, slots int
	}{
		{Limits{MaxCalls: 2, MaxBytes: 1 << 30}, 1000, 18},
		{Limits{MaxCalls: 10_000, MaxBytes: 1 << 30}, 10_000, 51},
		{Limits{MaxCalls: 10_000, MaxBytes: MinMaxBytes}, 10_000, 16},
		{Limits{MaxCalls: math.MaxUint64 - minSlots, MaxBytes: math.MaxUint64}, 1 << 30, 1 << 30},
	} {
		if r := receptionOfCalls(row.limits); r.places != row.places || r.slots.free != row.slots {
			t.Errorf("%+v: %d places, %d slots", row.limits, r.places, r.slots.free)
		}
	}
}

// cornerStream is the stream of an RPC at a moment that no client can hit.
type cornerStream struct {
	grpc.ServerTransportStream
	read func(n int) (mem.BufferSlice, error)
}

func (s *cornerStream) RecvCompress() string { return "" }
func (s *cornerStream) ReadMessageHeader(h []byte) error {
	clear(h)
	return nil
}
func (s *cornerStream) Read(n int) (mem.BufferSlice, error) { return s.read(n) }

// under gives the context of an RPC with that stream, and what is closed when its reading was ended.
func under(t *testing.T, s grpc.ServerTransportStream) (context.Context, <-chan struct{}) {
	t.Helper()
	ctx, err := hangUps(t.Context(), &tap.Info{})
	if err != nil {
		t.Fatal(err)
	}
	return grpc.NewContextWithServerTransportStream(ctx, s), ctx.Done()
}

// A message that is there in the moment it is given up is refused: its context has ended, and the call would end as its caller's doing.
func TestMessageThatCameWhileGivenUpIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReception(1, 1, maxMessage)
		s := &cornerStream{}
		ctx, givenUp := under(t, s)
		s.read = func(int) (mem.BufferSlice, error) {
			<-givenUp
			return nil, nil // an empty message
		}
		refusedAsLate(t, r.receive(ctx, "a", &pb.CallRequest{}, false), "30s")
		leftEmpty(t, r, 1)
	})
}

func TestPlaceComesBackFromAPanic(t *testing.T) {
	r := newReception(1, 1, maxMessage)
	s := &cornerStream{read: func(int) (mem.BufferSlice, error) { panic("made for a test") }}
	ctx, _ := under(t, s)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = r.receive(ctx, "a", &pb.CallRequest{}, false)
	}()
	leftEmpty(t, r, 1)
}

// A library that reads messages whole only must not make the limits vanish.
func TestLibraryThatDoesNotTellSizesIsRefused(t *testing.T) {
	ctx, _ := under(t, struct{ grpc.ServerTransportStream }{})
	if err := newReception(1, 1, maxMessage).receive(ctx, "a", &pb.CallRequest{}, false); status.Code(err) != codes.Internal || unsent(err) != "INTERNAL" {
		t.Error(err)
	}
}

func TestNothingIsReceivedAfterTheEnd(t *testing.T) {
	r := newReception(1, 1, maxMessage)
	r.close()
	ctx, _ := under(t, &cornerStream{})
	if err := r.receive(ctx, "a", &pb.CallRequest{}, false); status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
		t.Error(err)
	}
	leftEmpty(t, r, 1)
}
