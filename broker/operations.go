package broker

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

// ledgerRetryDelay is when a caller may ask again where the ledger failed.
const ledgerRetryDelay = time.Second

// NewOperations keeps the operations of this broker in a ledger, until they are closed.
func NewOperations(cfg operation.Config, o *tracing.Observer) *operation.Operations {
	cfg.Observer = operationObserver{o}
	return operation.New(cfg)
}

// operationObserver tells the observer in words of its own: packages of one ring do not know each other.
type operationObserver struct{ to *tracing.Observer }

func (o operationObserver) Asked(ctx context.Context, how operation.How) {
	o.to.OperationAsked(ctx, string(how))
}

func (o operationObserver) Probed(ctx context.Context, f *operation.Finding) {
	o.to.StatusProbed(ctx, f.Verdict.String(), f.Status, f.Counts)
}

func (o operationObserver) LedgerFailed(what string) { o.to.LedgerFailed(what) }

// made is what became of a call.
type made struct {
	call.Final
	policy   string
	replayed bool
	deferred string // the id of the deferred call that has the operation, with OUTCOME_DEFERRED
}

// make has the call made: under its operation id by the ledger of operations, else at once, as a stream always, whose id is its key alone. room is given back when nothing of the call
// runs any more.
func (s *CallService) make(ctx context.Context, c *call.Call, p *policy.Effective, given bool, room room) (made, error) {
	if c.OperationID == "" || c.Stream != nil || !given && s.cfg.Operations == nil {
		defer room.giveBack()
		return made{Final: s.cfg.Engine.Do(ctx, c, p), policy: p.Policy}, nil
	}
	if s.cfg.Operations == nil {
		room.giveBack()
		return made{}, notShared()
	}
	sending := &sending{engine: s.cfg.Engine, policy: p, room: room}
	defer sending.giveBack()
	ask := &operation.Ask{
		Call: c, Policy: p.Policy, Work: engine.WorkDeadline(c, &p.Deadline), Send: sending.do,
		MustNotRepeat: p.Repeatability(c) == policy.RepeatNever, HandOver: s.handOver(c, p),
	}
	if p.Keyed(c) {
		ask.KeyField, ask.KeyTTL = p.Idempotency.Header, p.Idempotency.KeyTTL
	}
	if ask.MustNotRepeat {
		ask.Probe = s.probeOf(c, p)
	}
	answer, err := s.cfg.Operations.Do(ctx, ask)
	if err != nil {
		if !given && !sending.began { // its id was made by us, and nobody knows it
			return made{Final: sending.do(ctx, c), policy: p.Policy}, nil
		}
		return made{}, ledgerError(err)
	}
	return made{answer.Final, answer.Policy, answer.Replayed, answer.Deferred}, nil
}

// maker is the engine.
type maker interface {
	Do(ctx context.Context, c *call.Call, p *policy.Effective) call.Final
}

// sending makes a call under an id, perhaps twice.
type sending struct {
	engine maker
	policy *policy.Effective
	room   room
	began  bool
	late   bool
}

func (s *sending) do(ctx context.Context, c *call.Call) call.Final {
	s.began = true
	f := s.engine.Do(ctx, c, s.policy)
	if f.Late == nil {
		return f
	}
	// What runs on holds the bodies, so the room is its own.
	s.late = true
	landed, passedOn := f.Late, make(chan call.Final, 1) // receives one value, is never closed
	go func() {
		defer s.room.giveBack()
		passedOn <- <-landed
	}()
	f.Late = passedOn
	return f
}

func (s *sending) giveBack() {
	if !s.late {
		s.room.giveBack()
	}
}

// ledgerError is that of a ledger that cannot be used. Nothing was sent.
func ledgerError(err error) error {
	if errors.Is(err, context.Canceled) {
		return refusal(codes.Canceled, reasonLedger, "the caller went away before the ledger of operations had answered; nothing was sent")
	}
	return refusal(codes.Unavailable, reasonLedger, "the ledger of operations cannot be used now, and this needs it; nothing was sent. Ask again with the same operation id",
		&errdetails.RetryInfo{RetryDelay: durationpb.New(ledgerRetryDelay)})
}

func notShared() error {
	return refusal(codes.FailedPrecondition, reasonNotShared,
		"this broker is one of several (--replicas) without a shared ledger, and could not tell whether another one knows this operation id; nothing was sent. Call without operation_id, or share a ledger")
}
