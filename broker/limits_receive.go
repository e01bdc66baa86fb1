package broker

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// receiveTime is how long a message may take to arrive, receivePatience how long it may wait until it is read at all.
	receiveTime     = 30 * time.Second
	receivePatience = 5 * time.Second
	// strangerSlots are for health and reflection, which need no token. They are apart, so that strangers cannot crowd out calls.
	strangerSlots = 16
	strangerQueue = 1000
	minSlots      = 16
)

// reception bounds the messages that are being received. gRPC gives a stream the window for a whole message once somebody reads
// it, so each slot may hold maxMessage; a message that waits for a slot holds no more than the flow control windows.
//
// Waiting comes before refusing: in a burst hundreds of RPCs begin before the first of them is read, and most are small and there
// already.
type reception struct {
	slots chan struct{} // holds one value for each message being received
	most  int64         // messages that are received or wait
	here  atomic.Int64
}

func newReception(slots, most uint64) *reception {
	return &reception{slots: make(chan struct{}, slots), most: int64(min(most, 1<<62))}
}

// slotsFor lets messages on their way hold as much again as the bodies of calls.
func slotsFor(l Limits) uint64 { return min(max(minSlots, l.MaxBytes/maxMessage), l.MaxCalls+minSlots) }

// receive reads one message within the limits.
func (r *reception) receive(ctx context.Context, read func() error) error {
	defer r.here.Add(-1)
	if r.here.Add(1) > r.most {
		return crowded()
	}
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer func() { <-r.slots }()
	hangUp, ok := ctx.Value(hangUpKey{}).(context.CancelFunc)
	if !ok {
		return read()
	}
	slow := time.AfterFunc(receiveTime, hangUp)
	err := read()
	if !slow.Stop() && err == nil {
		// It came whole in the moment it was given up: its context has ended, and a call under it would look cancelled by its caller.
		return refusal(codes.Canceled, reasonBrokerFull, fmt.Sprintf("the message took more than %s to arrive", receiveTime))
	}
	return err
}

func (r *reception) enter(ctx context.Context) error {
	select {
	case r.slots <- struct{}{}:
		return nil
	default:
	}
	patience := time.NewTimer(receivePatience)
	defer patience.Stop()
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-patience.C:
	case <-ctx.Done(): // nobody reads this any more
	}
	return crowded()
}

func crowded() error {
	return refusal(codes.ResourceExhausted, reasonBrokerFull, "the broker is full: too many messages are being received; ask again later, or another broker",
		&errdetails.RetryInfo{RetryDelay: durationpb.New(fullRetryDelay)})
}

type hangUpKey struct{}

// hangUps gives every RPC the means to end its reading, which gRPC ties to the context that a tap handle returns and to no later
// one. The handle refuses nothing itself: grpc-go keeps the timer of an RPC refused here until the deadline its client chose, so that
// refusals would pile up.
func hangUps(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx) // ended by its parent, when the RPC is over
	return context.WithValue(ctx, hangUpKey{}, cancel), nil
}

// received is a stream whose messages come in through a reception.
type received struct {
	grpc.ServerStream
	by *reception
}

// RecvMsg reads a message within the limits of the reception.
func (s *received) RecvMsg(m any) error {
	return s.by.receive(s.Context(), func() error { return s.ServerStream.RecvMsg(m) })
}

// lateReading describes a service to gRPC with its unary RPCs as streams of one message each way. On the wire they are the same. But
// a unary interceptor runs when the message is in memory, and these run before anything of it is read. grpc-go calls no stream
// interceptor for a stream of this shape, so they are called here.
func lateReading(desc grpc.ServiceDesc, guarded grpc.StreamServerInterceptor, a *access) *grpc.ServiceDesc {
	streams := slices.Clone(desc.Streams)
	for _, m := range desc.Methods {
		info := &grpc.StreamServerInfo{FullMethod: "/" + desc.ServiceName + "/" + m.MethodName}
		answer := func(srv any, ss grpc.ServerStream) error {
			reply, err := m.Handler(srv, ss.Context(), ss.RecvMsg, a.unary)
			if err != nil {
				return err //nolint:wrapcheck // it is the status of the RPC
			}
			return ss.SendMsg(reply)
		}
		handle := func(srv any, ss grpc.ServerStream) error {
			return guarded(srv, ss, info, func(srv any, ss grpc.ServerStream) error { return a.greet(srv, ss, info, answer) })
		}
		streams = append(streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: handle})
	}
	desc.Methods, desc.Streams = nil, streams
	return &desc
}
