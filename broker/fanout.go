package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/fanout"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

const (
	// mostBranches bounds the calls of a fan-out.
	mostBranches = 64
	// fanOutAnswers is what the bodies of all its answers may have together, so that the reply fits a stock client's message of 4 MiB.
	fanOutAnswers = 3 << 20
)

// errOver is what a loser is told.
var errOver = errors.New("the fan-out was over before this branch was")

// FanOut makes several calls under one deadline.
func (s *CallService) FanOut(ctx context.Context, req *pb.FanOutRequest) (*pb.FanOutResponse, error) {
	now := time.Now()
	traceparent, tracestate := traceContext(ctx)
	ctx, span := s.cfg.Observer.BeginFanOut(ctx, traceparent, tracestate)
	taken := false
	defer markPanic(&taken, span)
	f := &fanOut{service: s, arrived: now, span: span, tracestate: tracestate}
	if err := f.take(ctx, req); err != nil {
		reason, _ := ownReason(err)
		span.Refuse(reason)
		return nil, err
	}
	taken = true
	resp := f.make(ctx, req)
	span.EndFanOut(callerOf(ctx), resp.GetOutcome().String()[len("FAN_OUT_OUTCOME_"):], len(f.branches))
	return resp, nil
}

// fanOut is one on its way.
type fanOut struct {
	service    *CallService
	arrived    time.Time
	span       *tracing.Call
	tracestate string
	branches   []branch
}

// branch is one call of it, and what became of that.
type branch struct {
	call   *call.Call
	policy *policy.Effective
	given  bool // its caller gave the operation id
	report pb.Report
	reply  *pb.CallResponse // nil until it has ended, and for one that never began
}

// take reads the request and finds what rules each branch. What is wrong with one refuses the whole, and nothing is sent.
func (f *fanOut) take(ctx context.Context, req *pb.FanOutRequest) error {
	if err := invalid(fanOutProblems(req)); err != nil {
		return err
	}
	var violations []*call.InvalidError
	table := f.service.table.Load()
	deadline, work := f.ends(ctx, table)
	for i, b := range req.GetBranches() {
		field := fmt.Sprintf("branches[%d]", i)
		c, problems := decode(ctx, b.GetCall(), callerOf(ctx), f.arrived)
		d := decoder{}
		reserve := d.duration("reserve_after", b.GetReserveAfter())
		violations = append(violations, prefixed(field, d.violations)...)
		p, given := (*policy.Effective)(nil), false
		if len(problems) == 0 {
			p = table.Match(c)
			given, problems = fit(c, b.GetCall().GetRequest().GetHeaders(), p, table)
		}
		violations = append(violations, prefixed(field+".call", problems)...)
		c.Deadline, c.Latest = deadline, work.Add(-reserve)
		most := uint64(fanOutAnswers / len(req.GetBranches()))
		if c.MaxResponseBytes == 0 || c.MaxResponseBytes > most {
			c.MaxResponseBytes = most
		}
		f.branches = append(f.branches, branch{call: c, policy: p, given: given, report: b.GetCall().GetReport()})
	}
	if err := invalid(violations); err != nil {
		return err
	}
	return f.ledger(ctx)
}

// ends is when the caller's time is up, and when the work must be over: as policies/default says, whatever rules the branches.
func (f *fanOut) ends(ctx context.Context, table *policy.Table) (deadline, work time.Time) {
	whole := &call.Call{Arrived: f.arrived}
	if d, ok := ctx.Deadline(); ok {
		whole.Deadline = d
	}
	p := table.Default()
	work = engine.WorkDeadline(whole, &p.Deadline)
	if deadline = whole.Deadline; deadline.IsZero() {
		deadline = f.arrived.Add(p.Deadline.DefaultTimeout)
	}
	return deadline, work
}

// ledger refuses a fan-out whose branches need a ledger that cannot be had.
func (f *fanOut) ledger(ctx context.Context) error {
	for i := range f.branches {
		b := &f.branches[i]
		switch operations := f.service.cfg.Operations; {
		case !b.given:
		case operations == nil:
			return notShared()
		default:
			_, err := operations.Get(ctx, operation.Key{Caller: b.call.Caller, ID: b.call.OperationID})
			if err != nil && !errors.Is(err, operation.ErrNotFound) {
				return ledgerError(err)
			}
		}
	}
	return nil
}

// fanOutProblems are those of the request but for its calls.
func fanOutProblems(req *pb.FanOutRequest) []*call.InvalidError {
	d := decoder{}
	branches := req.GetBranches()
	switch mode := req.GetMode(); {
	case mode == pb.FanOutMode_FAN_OUT_MODE_UNSPECIFIED:
		d.add("mode", "missing; say when the fan-out is over, for example FAN_OUT_MODE_ALL")
	case mode == pb.FanOutMode_FAN_OUT_MODE_QUORUM && (req.GetQuorum() == 0 || int64(req.GetQuorum()) > int64(len(branches))):
		d.add("quorum", fmt.Sprintf("%d of %d branches; give a number from 1 to that of the branches", req.GetQuorum(), len(branches)))
	case mode != pb.FanOutMode_FAN_OUT_MODE_QUORUM && req.GetQuorum() != 0:
		d.add("quorum", "counts in FAN_OUT_MODE_QUORUM only; leave it out")
	default:
		d.enum("mode", mode, pb.FanOutMode_name)
	}
	if n := len(branches); n == 0 || n > mostBranches {
		d.add("branches", fmt.Sprintf("%d of them; give 1 to %d", n, mostBranches))
	}
	seen := map[string]bool{}
	for i, b := range branches {
		switch id := b.GetId(); {
		case id == "":
			d.add(fmt.Sprintf("branches[%d].id", i), "missing; it names the branch in the results")
		case seen[id]:
			d.add(fmt.Sprintf("branches[%d].id", i), "names another branch too; give each its own")
		default:
			seen[id] = true
		}
		if b.GetCall().GetAllowDeferral() {
			d.add(fmt.Sprintf("branches[%d].call.allow_deferral", i), "a branch ends with its fan-out; submit a deferred call instead")
		}
	}
	return d.violations
}

// make makes the branches.
func (f *fanOut) make(ctx context.Context, req *pb.FanOutRequest) *pb.FanOutResponse {
	plan := fanout.Plan{
		Mode: fanout.Mode(req.GetMode()), Quorum: int(req.GetQuorum()), MaxParallel: int(req.GetMaxParallel()), Arrived: f.arrived,
	}
	for i := range f.branches {
		b := &f.branches[i]
		plan.Branches = append(plan.Branches, fanout.Branch{
			Optional: req.GetBranches()[i].GetOptional(), Work: b.call.Latest,
			Call: func(ctx context.Context) call.Final { return f.branch(ctx, b) },
		})
	}
	outcome, finals := plan.Run(ctx)
	resp := &pb.FanOutResponse{Outcome: pb.FanOutOutcome(outcome)}
	for i := range f.branches {
		b := &f.branches[i]
		if b.reply == nil { // it never began
			b.reply = encode(&finals[i], b.report)
			b.reply.OperationId, b.reply.Policy, b.reply.BrokerId, b.reply.TraceId = b.call.OperationID, b.policy.Policy, f.service.cfg.BrokerID, f.span.TraceID()
		}
		if b.reply.GetOutcome() == pb.Outcome_OUTCOME_CANCELLED && ctx.Err() == nil {
			b.reply.Detail = errOver.Error() // the engine cannot tell that from a caller that went away
		}
		resp.Results = append(resp.Results, &pb.BranchResult{Id: req.GetBranches()[i].GetId(), Response: b.reply})
	}
	shrink(resp)
	return resp
}

// branch makes one as a call of its own. What would refuse such a call is told as its outcome here: nothing of it was sent.
func (f *fanOut) branch(ctx context.Context, b *branch) call.Final {
	ctx, span := f.service.cfg.Observer.BeginBranch(ctx, f.span, f.tracestate)
	taken := true
	defer markPanic(&taken, span)
	room, err := f.service.capacity.take(held(b.call, b.policy))
	if err == nil {
		var final *call.Final
		if b.reply, final, err = f.service.run(ctx, b.call, b.policy, b.given, room, span, b.report); err == nil {
			return *final
		}
	} else {
		span.Refuse(reasonBrokerFull)
	}
	refused := call.Final{
		Outcome: call.OutcomeOverloaded, Effect: call.EffectNone, Reason: call.ReasonConcurrencyLimit, Detail: status.Convert(err).Message(),
		RetrySafe: true, Next: call.NextStepRetry, RetryAfter: fullRetryDelay, Elapsed: time.Since(f.arrived),
	}
	if ctx.Err() != nil { // while the ledger was asked
		refused.Outcome, refused.Reason, refused.RetryAfter = call.OutcomeCancelled, call.ReasonCancelled, 0
	}
	return refused
}
