package broker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/tracing"
)

// panicked is a panic on its way to the edge, with what is known of the call it ended.
type panicked struct {
	value any
	stack []byte
	taken bool // a byte of the call may have left
}

// Error is for a panic that comes from another goroutine as an error. Nobody is told what it says.
func (p *panicked) Error() string { return fmt.Sprint("panic: ", p.value) }

// markPanic, deferred, lets a panic pass, ends the call's span, and adds what only the handler knows.
func markPanic(taken *bool, span *tracing.Call) {
	if v := recover(); v != nil {
		span.Refuse(reasonInternal)
		if p, ok := v.(*panicked); ok { // of a branch, whose stack tells where
			p.taken = p.taken || *taken
			panic(p)
		}
		panic(&panicked{value: v, stack: debug.Stack(), taken: *taken})
	}
}

// recovered turns a panic into INTERNAL for that caller alone, under an id that stands in the log beside the stack. It says
// that nothing was sent only where that is sure; elsewhere the error has no reason to be counted by, so it is counted here.
func recovered(log *slog.Logger, o *tracing.Observer) func(context.Context, any) error {
	return func(ctx context.Context, v any) error {
		p, ok := v.(*panicked)
		if !ok {
			p = &panicked{value: v, stack: debug.Stack(), taken: true}
		}
		id := uuid.NewString()
		log.ErrorContext(ctx, "panic", "id", id, "value", fmt.Sprint(p.value), "stack", string(p.stack))
		message := "internal error " + id
		if p.taken {
			o.RPCFailed(reasonInternal)
			return status.Error(codes.Internal, message)
		}
		return refusal(codes.Internal, reasonInternal, message)
	}
}
