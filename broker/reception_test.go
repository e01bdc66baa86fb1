package broker

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// The tests of this file are over sockets, with what unfriendly and unlucky callers send.

// reachable is a broker on a port of loopback, for clients of any kind.
type reachable struct {
	*running
	address string
}

func onSockets(t *testing.T, s setup) *reachable {
	t.Helper()
	l, dialer := listen(t, false)
	s.listener = l
	if s.sender == nil {
		s.sender = senderFunc(func(context.Context, *call.Call) call.Result { return answered(200) })
	}
	r := &reachable{running: start(t, s), address: l.Addr().String()}
	r.conn = dial(t, dialer)
	r.calls = pb.NewCallServiceClient(r.conn)
	return r
}

func (r *reachable) raw(t *testing.T) *rawClient {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(within(t), "tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	return rawDial(t, conn, false)
}

// until waits for what a frame brings.
func (c *rawClient) until(t *testing.T, what string, there func() bool) {
	t.Helper()
	for ctx := within(t); !there(); {
		select {
		case <-c.news:
		case <-c.gone:
			t.Fatalf("the connection ended without %s", what)
		case <-ctx.Done():
			t.Fatalf("no %s", what)
		}
	}
}

// taken waits until the server has read what was written.
func (c *rawClient) taken(t *testing.T) {
	t.Helper()
	c.ping()
	c.until(t, "an answer to a ping", func() bool {
		return slices.ContainsFunc(c.all(http2.FramePing), func(f frame) bool { return f.ack })
	})
}

// soon is less than anybody waits for a place or a slot.
const soon = receivePatience - time.Second

// as makes a call of that size as an identity, soon.
func (r *reachable) as(t *testing.T, token string, size int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := r.calls.Call(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), ofSize(t, "http://127.0.0.1/", size))
	return err
}

func (r *reachable) health(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	resp, err := healthpb.NewHealthClient(r.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: pb.CallService_ServiceDesc.ServiceName})
	if err == nil && resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v", resp)
	}
	return err
}

func TestUnfinishedMessagesOfOneCallerShutNobodyOut(t *testing.T) {
	bearer := [2]string{"authorization", "Bearer a"}
	for name, begin := range map[string]func(c *rawClient, stream uint32){
		"heads only": func(c *rawClient, stream uint32) {
			c.open(stream, pb.CallService_Call_FullMethodName, 0, false, bearer)
		},
		"small messages": func(c *rawClient, stream uint32) { c.half(stream, pb.CallService_Call_FullMethodName, 1000, bearer) },
		"large messages": func(c *rawClient, stream uint32) { c.half(stream, pb.CallService_Call_FullMethodName, large, bearer) },
	} {
		t.Run(name, func(t *testing.T) {
			r := onSockets(t, setup{identities: known(map[string][]Role{"a": {RoleCaller}, "b": {RoleCaller}})})
			c := r.raw(t)
			for n := range uint32(900) {
				begin(c, 2*n+1)
			}
			c.taken(t)
			for _, row := range []struct {
				who  string
				size int
			}{{"b", 1000}, {"b", 1 << 20}, {"a", 1000}} {
				if err := r.as(t, row.who, row.size); err != nil {
					t.Errorf("%s with %d bytes: %v", row.who, row.size, err)
				}
			}
		})
	}
}

// More than there are places: an identity that has fewer loses none of them.
func TestPlacesAreSharedByIdentity(t *testing.T) {
	r := onSockets(t, setup{limits: Limits{MaxCalls: 10}, identities: known(map[string][]Role{"a": {RoleCaller}, "b": {RoleCaller}})})
	slow := r.raw(t)
	slow.half(1, pb.CallService_Call_FullMethodName, 1000, [2]string{"authorization", "Bearer b"})
	slow.taken(t)
	clients := []*rawClient{r.raw(t), r.raw(t), r.raw(t)}
	for _, c := range clients {
		for n := range uint32(900) {
			c.open(2*n+1, pb.CallService_Call_FullMethodName, 0, false, [2]string{"authorization", "Bearer a"})
		}
		c.taken(t)
	}
	refusedAsFull(t, clients[0].answer(1), "being received")
	if err := r.as(t, "b", 1000); err != nil {
		t.Errorf("b meanwhile: %v", err)
	}
	if err, ok := slow.status(1); ok {
		t.Errorf("b's slow one was given up: %v", err)
	}
}

func TestStrangersDoNotDisturbHealth(t *testing.T) {
	for name, begin := range map[string]func(c *rawClient, stream uint32){
		"idle reflection":         func(c *rawClient, stream uint32) { c.open(stream, reflectionMethod, 0, false) },
		"half reflection":         func(c *rawClient, stream uint32) { c.half(stream, reflectionMethod, 1000) },
		"health without messages": func(c *rawClient, stream uint32) { c.open(stream, healthpb.Health_Check_FullMethodName, 0, false) },
		"half health":             func(c *rawClient, stream uint32) { c.half(stream, healthpb.Health_Check_FullMethodName, 1000) },
		"watchers":                func(c *rawClient, stream uint32) { c.watch(stream) },
		"half watches":            func(c *rawClient, stream uint32) { c.half(stream, healthpb.Health_Watch_FullMethodName, 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			r := onSockets(t, setup{identities: known(map[string][]Role{"a": {RoleCaller}})})
			slow := r.raw(t)
			slow.half(1, healthpb.Health_Check_FullMethodName, 1000)
			slow.taken(t)
			for range 2 { // more than there are places
				c := r.raw(t)
				for n := range uint32(900) {
					begin(c, 2*n+1)
				}
				c.taken(t)
			}
			for range 3 {
				if err := r.health(t); err != nil {
					t.Errorf("health: %v", err)
				}
			}
			if err, ok := slow.status(1); ok && strings.HasSuffix(name, "reflection") {
				t.Errorf("a slow message to health: %v", err)
			}
			if err := r.as(t, "a", 1<<20); err != nil {
				t.Errorf("a call: %v", err)
			}
		})
	}
}

func TestCallerHearsBeforeItsDeadlineThatNothingWasSent(t *testing.T) {
	t.Parallel() // it takes its time
	const patience = 4 * time.Second
	t.Run("no slot", func(t *testing.T) {
		t.Parallel()
		r := onSockets(t, setup{limits: Limits{MaxBytes: 20 << 20}})
		c := r.raw(t)
		for n := range uint32(minSlots) {
			c.half(2*n+1, pb.CallService_Call_FullMethodName, large)
		}
		c.until(t, "the slots that one identity gets", func() bool {
			granted := 0
			for n := range uint32(minSlots) {
				granted += int(min(c.granted(2*n+1), 1))
			}
			return granted == minSlots/2
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := r.calls.Call(ctx, ofSize(t, "http://127.0.0.1/", 1<<20))
		refusedAsFull(t, err, "being received")
	})
	t.Run("no message", func(t *testing.T) {
		t.Parallel()
		r := onSockets(t, setup{})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := unsentMessage(ctx, t, r.conn, pb.CallService_Call_FullMethodName)
		if status.Code(err) != codes.DeadlineExceeded || unsent(err) != "INVALID_REQUEST" {
			t.Errorf("%v, unsent reason %q", err, unsent(err))
		}
	})
}

// A drain waits for calls, and for no message: neither for those that are on their way when it begins, nor for what strangers hold.
func TestDrainDoesNotWaitForMessages(t *testing.T) {
	r := onSockets(t, setup{})
	c := r.raw(t)
	methods := []string{pb.CallService_Call_FullMethodName, healthpb.Health_Check_FullMethodName, healthpb.Health_Watch_FullMethodName, reflectionMethod}
	for n, m := range methods {
		c.half(uint32(4*n+1), m, 1000)
		c.open(uint32(4*n+3), m, 0, false)
	}
	c.taken(t)
	began := time.Now()
	r.server.Drain(t.Context())
	if took := time.Since(began); took > soon {
		t.Errorf("the drain took %s", took)
	}
	for n := range methods {
		for _, stream := range []uint32{uint32(4*n + 1), uint32(4*n + 3)} {
			if err := c.answer(stream); status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
				t.Errorf("stream %d: %v, unsent reason %q", stream, err, unsent(err))
			}
		}
	}
}
