package broker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// access lets an RPC in: the broker is not draining, the caller is known, and has the role the RPC needs.
type access struct {
	identities       atomic.Pointer[Identities]
	authorities      *Authorities // nil: nobody is known by a certificate
	log              *slog.Logger
	gate             *gate
	calls, strangers *reception
	chunks           *reception // those of streams in flight
}

// unary lets in an RPC whose message has been received, since by now the broker may drain and the token be gone.
func (a *access) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if open(info.FullMethod) != "" {
		return next(ctx, req)
	}
	number, err := a.enter(ctx, false)
	if err != nil {
		return nil, err
	}
	defer a.gate.leave(number)
	caller, err := a.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(withCaller(ctx, caller), req)
}

// stream lets in an RPC of which nothing but its head has been read.
func (a *access) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if service := open(info.FullMethod); service != "" {
		return next(srv, &received{ServerStream: ss, by: a.strangers, whose: service, only: !info.IsClientStream})
	}
	ctx := ss.Context()
	number, err := a.enter(ctx, watches(info.FullMethod))
	if err != nil {
		return err
	}
	defer a.gate.leave(number)
	caller, err := a.admit(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	ctx = withCaller(ctx, caller)
	var in grpc.ServerStream = &admitted{ServerStream: ss, ctx: ctx}
	if info.IsClientStream {
		in = &streamed{ServerStream: in, calls: a.calls, chunks: a.chunks, whose: caller.name}
	} else {
		in = &received{ServerStream: in, by: a.calls, whose: caller.name, only: true}
	}
	if err := next(srv, in); !sentHome(ctx) {
		return err
	}
	return draining()
}

// greet has the message of a unary RPC read only if its caller may come in. It passes the gate in unary: a drain does not wait for
// what has not been received.
func (a *access) greet(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if service := open(info.FullMethod); service != "" {
		return next(srv, &received{ServerStream: ss, by: a.strangers, whose: service, only: true})
	}
	if a.gate.isShut() {
		return draining()
	}
	caller, err := a.admit(ss.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return next(srv, &received{ServerStream: ss, by: a.calls, whose: caller.name, only: true})
}

// admitted is a stream with the caller in its context.
type admitted struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // the interface of grpc.ServerStream asks for it
}

func (s *admitted) Context() context.Context { return s.ctx }

// enter passes the gate, to be sent home when it is shut if the RPC only watches. Who is sent away is hung up on: what is said after
// that still reaches the caller.
func (a *access) enter(ctx context.Context, watches bool) (number uint64, err error) {
	hangUp, ok := hangUpOf(ctx)
	if !ok {
		return 0, untapped()
	}
	if number, ok = a.gate.enter(hangUp, watches); !ok {
		return 0, draining()
	}
	return number, nil
}

// admit tells whose RPC it is, if that caller may make it.
func (a *access) admit(ctx context.Context, method string) (identity, error) {
	id, err := a.who(ctx)
	if err != nil {
		return identity{}, err
	}
	role, ok := roleFor(method)
	if !ok {
		return identity{}, notBuilt(method)
	}
	if !id.may(role) {
		return identity{}, refusal(codes.PermissionDenied, reasonRoleRequired, fmt.Sprintf("needs the role %s", role))
	}
	return id, nil
}

// unknown answers RPCs that nobody registered at this endpoint, so that their error too says that nothing was sent.
func unknown(elsewhere []Service) grpc.StreamHandler {
	return func(_ any, ss grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(ss)
		for _, s := range elsewhere {
			if strings.HasPrefix(method, "/"+s.Desc.ServiceName+"/") {
				return refusal(codes.Unimplemented, reasonNotBuilt, method+" is served on another listener of this broker (--admin)")
			}
		}
		return notBuilt(method)
	}
}

func draining() error {
	return refusal(codes.Unavailable, reasonDraining, "this broker is shutting down; ask another one")
}

// open gives the service of an RPC that is for everybody, draining or not: health and reflection; "" for all others. Its messages are
// received in the name of the service, since its callers have none: what they do to reflection they do not do to health.
func open(method string) string {
	for _, service := range []string{"/grpc.health.v1.Health/", "/grpc.reflection."} {
		if strings.HasPrefix(method, service) {
			return service
		}
	}
	return ""
}
