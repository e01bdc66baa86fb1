package broker

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"
)

// tapped is the context of an RPC from its very begin.
type tapped struct {
	context.Context //nolint:containedctx // it is a context
	hangUp          context.CancelCauseFunc
	// metadata are those of the RPC, for reading only. The names are in lower case, as HTTP/2 has them (RFC 9113 §8.2.1).
	metadata metadata.MD
}

type tappedKey struct{}

// Value gives the context itself under its own key.
func (t *tapped) Value(key any) any {
	if _, ok := key.(tappedKey); ok {
		return t
	}
	return t.Context.Value(key)
}

// hangUps gives every RPC the means to end its reading, which gRPC ties to the context that a tap handle returns and to no later
// one. The handle refuses nothing itself: grpc-go keeps the timer of an RPC refused here until the deadline its client chose, so that
// refusals would pile up.
func hangUps(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx, hangUp := context.WithCancelCause(ctx) // ended by its parent, when the RPC is over
	return &tapped{Context: ctx, hangUp: hangUp, metadata: info.Header}, nil
}

func hangUpOf(ctx context.Context) (hangUp context.CancelCauseFunc, ok bool) {
	if t, ok := ctx.Value(tappedKey{}).(*tapped); ok {
		return t.hangUp, true
	}
	return nil, false
}

// valuesOf are the values of a field in the metadata of an RPC. The name is in lower case. [metadata.ValueFromIncomingContext] would copy
// them, and look at every name there is for one that is not.
func valuesOf(ctx context.Context, name string) []string {
	if t, ok := ctx.Value(tappedKey{}).(*tapped); ok {
		return t.metadata[name]
	}
	return nil
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
