package broker

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
)

type hangUpKey struct{}

// hangUps gives every RPC the means to end its reading, which gRPC ties to the context that a tap handle returns and to no later
// one. The handle refuses nothing itself: grpc-go keeps the timer of an RPC refused here until the deadline its client chose, so that
// refusals would pile up.
func hangUps(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, hangUp := context.WithCancelCause(ctx) // ended by its parent, when the RPC is over
	return context.WithValue(ctx, hangUpKey{}, hangUp), nil
}

func hangUpOf(ctx context.Context) (hangUp context.CancelCauseFunc, ok bool) {
	hangUp, ok = ctx.Value(hangUpKey{}).(context.CancelCauseFunc)
	return hangUp, ok
}

// received is a stream whose messages come in through a reception.
type received struct {
	grpc.ServerStream
	by    *reception
	whose string
	only  bool // one message, and then the end
}

// RecvMsg reads a message within the limits of the reception.
func (s *received) RecvMsg(m any) error { return s.by.receive(s.Context(), s.whose, m, s.only) }

// lateReading describes a service to gRPC with its unary RPCs as streams of one message each way. On the wire they are the same. But
// a unary interceptor runs when the message is in memory, and these run before anything of it is read. grpc-go calls no stream
// interceptor for a stream of this shape, so they are called here.
func lateReading(desc grpc.ServiceDesc, guarded grpc.StreamServerInterceptor, a *access) *grpc.ServiceDesc {
	streams, unary := slices.Clone(desc.Streams), a.unary
	for _, m := range desc.Methods {
		info := &grpc.StreamServerInfo{FullMethod: "/" + desc.ServiceName + "/" + m.MethodName}
		answer := func(srv any, ss grpc.ServerStream) error {
			reply, err := m.Handler(srv, ss.Context(), ss.RecvMsg, unary)
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
