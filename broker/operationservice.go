package broker

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
)

// GetOperation tells what is known of an operation.
func (s *CallService) GetOperation(ctx context.Context, req *pb.GetOperationRequest) (*pb.GetOperationResponse, error) {
	key, err := s.operationKey(ctx, req)
	if err != nil {
		return nil, err
	}
	r, err := s.cfg.Operations.Get(ctx, key)
	if err != nil {
		return nil, s.operationError(err)
	}
	o, err := encodeOperation(&r)
	if err != nil {
		return nil, s.operationError(err)
	}
	return &pb.GetOperationResponse{
		OperationId: o.GetOperationId(), State: o.GetState(), Outcome: o.GetOutcome(), Effect: o.GetEffect(), Reason: o.GetReason(),
		Attempts: o.GetAttempts(), Response: o.GetResponse(), CreateTime: o.GetCreateTime(), UpdateTime: o.GetUpdateTime(),
		Detail: o.GetDetail(), Next: o.GetNext(), RetrySafe: o.GetRetrySafe(), Policy: o.GetPolicy(), Probes: o.GetProbes(), Free: o.GetFree(),
	}, nil
}

// ListOperations lists those of a caller, the newest first.
func (s *CallService) ListOperations(ctx context.Context, req *pb.ListOperationsRequest) (*pb.ListOperationsResponse, error) {
	d := decoder{}
	state := operation.State(d.enum("state", req.GetState(), pb.OperationState_name))
	if err := invalid(d.violations); err != nil {
		return nil, err
	}
	caller, err := s.askedCaller(ctx, req.GetCaller())
	if err != nil {
		return nil, err
	}
	p, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	after, err := p.operation()
	if err != nil {
		return nil, err
	}
	resp := &pb.ListOperationsResponse{}
	for {
		some, err := s.cfg.Operations.List(ctx, caller, state, after, batch)
		if err != nil {
			return nil, s.operationError(err)
		}
		for i := range some {
			o, err := encodeOperation(&some[i])
			if err != nil {
				return nil, s.operationError(err)
			}
			if r := o.GetResponse(); r != nil { // a page is of many; GetOperation has the body
				r.BodyOmitted, r.Body = r.GetBodyOmitted() || len(r.GetBody()) > 0, nil
			}
			if !p.takes(o) {
				resp.NextPageToken = pageToken(operationMark(&after))
				return resp, nil
			}
			resp.Operations = append(resp.Operations, o)
			after = operation.Cursor{CreateTime: some[i].CreateTime, ID: some[i].ID}
		}
		if len(some) < batch {
			return resp, nil
		}
	}
}

// ReconcileOperation asks the status probe now.
func (s *CallService) ReconcileOperation(ctx context.Context, req *pb.ReconcileOperationRequest) (*pb.ReconcileOperationResponse, error) {
	key, err := s.operationKey(ctx, req)
	if err != nil {
		return nil, err
	}
	r, err := s.cfg.Operations.Get(ctx, key)
	if err == nil && r.State == operation.StateUnknown {
		r, err = s.reconcile(ctx, &r)
	}
	if err != nil {
		return nil, s.operationError(err)
	}
	o, err := encodeOperation(&r)
	if err != nil {
		return nil, s.operationError(err)
	}
	return &pb.ReconcileOperationResponse{Operation: o}, nil
}

// reconcile asks about an operation that is unknown: of a deferred call through the queue, which goes on with it by what was found.
func (s *CallService) reconcile(ctx context.Context, r *operation.Record) (operation.Record, error) {
	if r.Deferred == "" || s.queue == nil {
		return s.cfg.Operations.Reconcile(ctx, r.Key, s.probeFor(r.Caller))
	}
	if _, err := s.queue.Reconcile(ctx, r.Caller, r.Deferred); err != nil && !errors.Is(err, deferred.ErrNotFound) { // purged meanwhile
		return *r, err
	}
	return s.cfg.Operations.Get(ctx, r.Key)
}

// namesOperation is a request that names one.
type namesOperation interface {
	GetOperationId() string
	GetCaller() string
}

// operationKey reads which operation a request names.
func (s *CallService) operationKey(ctx context.Context, req namesOperation) (operation.Key, error) {
	id := req.GetOperationId()
	if !validOperationID(id) {
		d := decoder{}
		d.add("operation_id", "not 1 to 255 visible ASCII characters; give the id of the call")
		return operation.Key{}, invalid(d.violations)
	}
	caller, err := s.askedCaller(ctx, req.GetCaller())
	return operation.Key{Caller: caller, ID: id}, err
}

// askedCaller is whose operations a request is about: his own, or for an operator anybody's.
func (s *CallService) askedCaller(ctx context.Context, named string) (string, error) {
	own := callerOf(ctx)
	switch {
	case s.cfg.Operations == nil:
		return "", notShared()
	case named == "" || named == own:
		return own, nil
	case !mayOperate(ctx):
		return "", refusal(codes.PermissionDenied, reasonRoleRequired, "another caller's operations need the role operator; leave caller out for your own")
	}
	return named, nil
}

// operationError is an error of the ledger for the one who asked it.
func (s *CallService) operationError(err error) error {
	switch {
	case errors.Is(err, operation.ErrNotFound):
		ledger, since := s.cfg.Operations.Identity()
		return refusalWith(codes.NotFound, reasonNotFound, "this ledger does not know the operation id: nobody asked under it, or longer ago than it remembers",
			map[string]string{"ledger": ledger, "known_since": since.UTC().Format(time.RFC3339)})
	case errors.Is(err, errNoProbe), errors.Is(err, errUnfilled), errors.Is(err, errElsewhere), errors.Is(err, errNoURL), errors.Is(err, errInvalidNow):
		return refusal(codes.FailedPrecondition, reasonWrongState, err.Error()+"; nothing was asked")
	}
	return ledgerError(err)
}

// encodeOperation writes what is known. The enums of package operation have the numbers of the wire.
func encodeOperation(r *operation.Record) (*pb.Operation, error) {
	k, err := r.Known()
	if err != nil {
		return nil, err
	}
	o := &pb.Operation{
		OperationId: r.ID, State: pb.OperationState(r.State),
		Outcome: pb.Outcome(r.Outcome), Effect: pb.Effect(r.Effect), Reason: pb.Reason(r.Reason),
		Attempts: encodeAttempts(k.Attempts), Response: encodeResponse(k.Response),
		CreateTime: timestamppb.New(r.CreateTime), UpdateTime: timestamppb.New(r.UpdateTime),
		Detail: k.Detail, Next: pb.NextStep(k.Next), RetrySafe: k.RetrySafe, Policy: k.Policy, Free: r.Free(),
	}
	if r.State == operation.StateRunning { // by now it may have been sent, and nobody knows yet
		o.Effect, o.Next = pb.Effect_EFFECT_UNKNOWN, pb.NextStep(call.NextStepWait)
	}
	for i := range k.Probes {
		f := &k.Probes[i]
		o.Probes = append(o.Probes, &pb.ProbeFinding{
			Time: timestamppb.New(f.Time), Verdict: pb.ProbeVerdict(f.Verdict), Status: uint32(f.Status), Counts: f.Counts, //nolint:gosec // 0 or 100 to 599
		})
	}
	return o, nil
}

// operationMark is where a page ended.
func operationMark(c *operation.Cursor) string {
	return strconv.FormatInt(c.CreateTime.UnixNano(), 10) + " " + c.ID
}

// operation reads it; the zero value for the first page.
func (p *page) operation() (operation.Cursor, error) {
	if p.after == "" {
		return operation.Cursor{}, nil
	}
	at, id, ok := strings.Cut(p.after, " ")
	n, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || !validOperationID(id) {
		d := decoder{}
		d.add("page_token", notAToken)
		return operation.Cursor{}, invalid(d.violations)
	}
	return operation.Cursor{CreateTime: time.Unix(0, n).UTC(), ID: id}, nil
}
