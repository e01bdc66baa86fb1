package broker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

// CallService makes outbound calls for its callers.
type CallService struct {
	pb.UnimplementedCallServiceServer
	engine   *engine.Engine
	observer tracing.Observer
	brokerID string
	log      *slog.Logger
	table    atomic.Pointer[policy.Table]
}

// NewCallService makes the service. brokerID names this process in replies; log hears what callers may not, such as why a
// destination is denied.
func NewCallService(e *engine.Engine, t *policy.Table, brokerID string, log *slog.Logger) *CallService {
	s := &CallService{engine: e, brokerID: brokerID, log: log}
	s.table.Store(t)
	return s
}

// Call makes one outbound HTTP call with whole bodies in memory.
func (s *CallService) Call(ctx context.Context, req *pb.CallRequest) (*pb.CallResponse, error) {
	taken := false
	defer markPanic(&taken)
	c, violations := decode(ctx, req, callerOf(ctx), time.Now())
	if err := invalid(violations); err != nil {
		return nil, err
	}
	table := s.table.Load() // one table from start to end
	effective := table.Match(c)
	if err := invalid(fit(c, req.GetRequest().GetHeaders(), effective, table)); err != nil {
		return nil, err
	}
	traceparent, tracestate := traceContext(ctx)
	ctx, traceID := s.observer.Begin(ctx, traceparent, tracestate)
	taken = true
	final := s.engine.Do(ctx, c, effective)
	if final.Outcome == call.OutcomeDenied {
		s.log.WarnContext(ctx, "egress denied", "caller", c.Caller, "origin", c.Target.Origin, "policy", effective.Policy,
			"rule", final.Note, "trace_id", traceID)
	}
	resp := encode(&final, c, req.GetReport())
	resp.TraceId, resp.Policy, resp.BrokerId = traceID, effective.Policy, s.brokerID
	return resp, nil
}

// StreamCall is not built in this version.
func (*CallService) StreamCall(grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error {
	return notBuilt("StreamCall")
}

// FanOut is not built in this version.
func (*CallService) FanOut(context.Context, *pb.FanOutRequest) (*pb.FanOutResponse, error) {
	return nil, notBuilt("FanOut")
}

// GetOperation is not built in this version.
func (*CallService) GetOperation(context.Context, *pb.GetOperationRequest) (*pb.GetOperationResponse, error) {
	return nil, notBuilt("GetOperation")
}

// ListOperations is not built in this version.
func (*CallService) ListOperations(context.Context, *pb.ListOperationsRequest) (*pb.ListOperationsResponse, error) {
	return nil, notBuilt("ListOperations")
}

// ReconcileOperation is not built in this version.
func (*CallService) ReconcileOperation(context.Context, *pb.ReconcileOperationRequest) (*pb.ReconcileOperationResponse, error) {
	return nil, notBuilt("ReconcileOperation")
}

// traceContext is the caller's W3C Trace Context. Two traceparents are none (Trace Context §3.2).
func traceContext(ctx context.Context) (traceparent, tracestate string) {
	if v := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(v) == 1 {
		traceparent = v[0]
	}
	if v := metadata.ValueFromIncomingContext(ctx, "tracestate"); len(v) == 1 {
		tracestate = v[0]
	}
	return traceparent, tracestate
}
