package broker

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/tracing"
)

// Load says how full the broker is.
func (s *Server) Load() tracing.Load {
	load := s.calls.capacity.load()
	load.Calling, load.Strangers = s.access.calls.load(), s.access.strangers.load()
	return load
}

func (c *capacity) load() tracing.Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	return tracing.Load{Calls: c.calls, MaxCalls: c.limits.MaxCalls, Bytes: c.bytes, MaxBytes: c.limits.MaxBytes}
}

func (r *reception) load() tracing.Reception {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting, slots := r.slots.count()
	return tracing.Reception{Receiving: int64(r.here.Len() - waiting), Waiting: int64(waiting), Slots: int64(slots)}
}

// counted counts the RPCs that end with an error of the broker's own, but for what [recovered] counts.
func counted(o *tracing.Observer, inner grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		err := inner(srv, ss, info, next)
		if err == nil {
			return nil
		}
		if reason, ok := ownReason(err); ok {
			o.RPCFailed(reason)
		}
		return err
	}
}

// ownReason is the reason of an error of the broker's own. What has none is no word of the broker: its caller went away or sent no
// message (wire.go), or a panic ended it after something may have been sent, which [recovered] counts.
func ownReason(err error) (string, bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			return info.GetReason(), true
		}
	}
	return "", false
}
