package broker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

// CallService makes outbound calls for its callers.
type CallService struct {
	pb.UnimplementedCallServiceServer
	cfg      CallConfig
	table    atomic.Pointer[policy.Table]
	capacity *capacity
	queue    *deferred.Queue // nil: no call goes on as a deferred one
}

// CallConfig is what a CallService stands on; everything but Operations, AccessLog and Limits is required.
type CallConfig struct {
	Engine   *engine.Engine
	Observer *tracing.Observer
	// BrokerID names this process in replies.
	BrokerID string
	// Log hears what callers may not, such as why a destination is denied.
	Log *slog.Logger
	// Operations keep what is asked under operation ids; nil: such calls are refused, since another broker may know their ids.
	Operations *operation.Operations
	// AccessLog writes a line for every finished call.
	AccessLog bool
	// Limits bound all calls together; the zero value has the defaults.
	Limits Limits
}

// NewCallService makes the service, with the policies it begins with.
func NewCallService(cfg CallConfig, t *policy.Table) *CallService {
	s := &CallService{cfg: cfg, capacity: newCapacity(cfg.Limits)}
	s.table.Store(t)
	return s
}

// Replace puts another table in force for the calls that come from now on. Those in flight keep theirs to their end.
func (s *CallService) Replace(t *policy.Table) { s.table.Store(t) }

// Table is the one in force.
func (s *CallService) Table() *policy.Table { return s.table.Load() }

// Call makes one outbound HTTP call with whole bodies in memory.
func (s *CallService) Call(ctx context.Context, req *pb.CallRequest) (*pb.CallResponse, error) {
	now := time.Now()
	traceparent, tracestate := traceContext(ctx)
	ctx, span := s.cfg.Observer.Begin(ctx, traceparent, tracestate)
	taken := false
	defer markPanic(&taken, span)
	c, effective, given, err := s.take(ctx, req, now)
	if err != nil {
		span.Refuse(reasonInvalidRequest)
		return nil, err
	}
	taking, err := s.capacity.take(held(c, effective))
	if err != nil {
		span.Refuse(reasonBrokerFull)
		return nil, err
	}
	taken = true
	resp, _, err := s.run(ctx, c, effective, given, taking, span, req.GetReport())
	return resp, err
}

// run makes a call that was taken, and tells what became of it.
func (s *CallService) run(ctx context.Context, c *call.Call, p *policy.Effective, given bool, room room, span *tracing.Call, report pb.Report) (*pb.CallResponse, *call.Final, error) {
	m, err := s.make(ctx, c, p, given, room)
	if err != nil {
		reason, _ := ownReason(err)
		span.Refuse(reason)
		return nil, nil, err
	}
	final := &m.Final
	if final.Outcome == call.OutcomeCancelled && aborted(ctx) {
		final.Detail = errEnded.Error() // the engine cannot tell that from a caller that went away
	}
	span.End(c, final, m.policy) //nolint:contextcheck // what it measures is of the span, not of the RPC
	s.tell(ctx, c, final, m.policy, span.TraceID())
	resp := encode(final, report)
	resp.TraceId, resp.Policy, resp.BrokerId, resp.Replayed = span.TraceID(), m.policy, s.cfg.BrokerID, m.replayed
	if m.deferred != "" {
		resp.DeferredCall = deferredPrefix + m.deferred
	}
	return resp, final, nil
}

// take reads a request and finds the policy that rules it; the table is one from start to end. given: the caller gave the operation id.
func (s *CallService) take(ctx context.Context, req *pb.CallRequest, now time.Time) (c *call.Call, p *policy.Effective, given bool, err error) {
	c, violations := decode(ctx, req, callerOf(ctx), now)
	if err := invalid(violations); err != nil {
		return nil, nil, false, err
	}
	table := s.table.Load()
	p = table.Match(c)
	given, violations = fit(c, req.GetRequest().GetHeaders(), p, table)
	if err := invalid(violations); err != nil {
		return nil, nil, false, err
	}
	return c, p, given, nil
}

// tell logs a finished call: every one where the operator wants that, a denied one always. No URL, since a query may hold secrets.
func (s *CallService) tell(ctx context.Context, c *call.Call, f *call.Final, policyName, traceID string) {
	if denied := f.Outcome == call.OutcomeDenied; denied || s.cfg.AccessLog {
		s.log(ctx, c, f, policyName, traceID, denied)
	}
}

// log is apart from tell, since what it needs on the stack would be set aside for every call.
func (s *CallService) log(ctx context.Context, c *call.Call, f *call.Final, policyName, traceID string, denied bool) {
	level, message, status := slog.LevelInfo, "call", 0
	if f.Response != nil {
		status = f.Response.Status
	}
	attrs := []slog.Attr{
		slog.String("caller", c.Caller), slog.String("method", c.Method), slog.String("origin", c.Target.Origin),
		slog.String("outcome", f.Outcome.String()), slog.String("effect", f.Effect.String()), slog.String("reason", f.Reason.String()),
		slog.Int("status", status), slog.Int("attempts", len(f.Attempts)), slog.Uint64("sends", uint64(f.Sends)),
		slog.Duration("elapsed", f.Elapsed), slog.String("policy", policyName), slog.String("trace_id", traceID),
	}
	if f.OperationID != "" {
		attrs = append(attrs, slog.String("operation_id", f.OperationID))
	}
	if denied {
		level, message = slog.LevelWarn, "egress denied"
		attrs = append(attrs, slog.String("rule", f.Note))
	}
	s.cfg.Log.LogAttrs(ctx, level, message, attrs...)
}

// traceContext is the caller's W3C Trace Context. Two traceparents are none, and without one the tracestate means nothing (Trace
// Context §3.2, §3.3).
func traceContext(ctx context.Context) (traceparent, tracestate string) {
	v := valuesOf(ctx, "traceparent")
	if len(v) != 1 {
		return "", ""
	}
	traceparent = v[0]
	if v := valuesOf(ctx, "tracestate"); len(v) == 1 {
		tracestate = v[0]
	}
	return traceparent, tracestate
}
