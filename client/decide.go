package client

import (
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// Step is what a caller does next.
type Step int

const (
	// StepDone is nothing: the call did what was asked.
	StepDone Step = iota + 1
	// StepFix is to change the request, the policy or the upstream; the same again would end the same way.
	StepFix
	// StepRetry is to submit it again, not before [Advice.After].
	StepRetry
	// StepRetrySameID is to submit it again under [Advice.OperationID] and no other id, not before [Advice.After].
	StepRetrySameID
	// StepReconcile is to find out what the upstream did before anything else is sent; it may have happened.
	StepReconcile
	// StepWait is to ask later: it still runs.
	StepWait
)

// String gives the words that the clients of all languages use.
func (s Step) String() string {
	switch s {
	case StepDone:
		return "done"
	case StepFix:
		return "fix"
	case StepRetry:
		return "retry"
	case StepRetrySameID:
		return "retry same id"
	case StepReconcile:
		return "reconcile"
	case StepWait:
		return "wait"
	default:
		return "none"
	}
}

// Advice is what to do after a call.
type Advice struct {
	// Step is what to do.
	Step Step
	// After is the wait before the same is submitted again; 0: not known, a backoff of the caller's own must do.
	After time.Duration
	// OperationID is the id to use with StepRetrySameID.
	OperationID string
}

// Decide says what to do after an answer of the broker.
func Decide(resp *pb.CallResponse) Advice {
	after := resp.GetRetryAfter().AsDuration()
	switch resp.GetNext() {
	case pb.NextStep_NEXT_STEP_DONE:
		return Advice{Step: StepDone}
	case pb.NextStep_NEXT_STEP_FIX_REQUEST:
		return Advice{Step: StepFix}
	case pb.NextStep_NEXT_STEP_RETRY:
		return Advice{Step: StepRetry, After: after}
	case pb.NextStep_NEXT_STEP_RETRY_SAME_ID:
		return Advice{Step: StepRetrySameID, After: after, OperationID: resp.GetOperationId()}
	case pb.NextStep_NEXT_STEP_RECONCILE:
		return Advice{Step: StepReconcile}
	case pb.NextStep_NEXT_STEP_WAIT:
		return Advice{Step: StepWait, After: after}
	default: // a step that a later broker knows: the effect alone tells
		switch resp.GetEffect() {
		case pb.Effect_EFFECT_NONE:
			return Advice{Step: StepRetry, After: after}
		case pb.Effect_EFFECT_ANSWERED:
			return Advice{Step: StepFix}
		default:
			return Advice{Step: StepReconcile}
		}
	}
}

// DecideError says what to do after an error of [Client.Call] for that request. underContract is the caller's word that an
// idempotency contract covers the call, so that the same operation id has one effect however often it is submitted.
func DecideError(err error, req *pb.CallRequest, underContract bool) Advice {
	refusal := Explain(err)
	if refusal.NothingSent {
		switch refusal.Code {
		case codes.Unavailable, codes.ResourceExhausted, codes.Internal: // the broker's own trouble: later, or another broker
			return Advice{Step: StepRetry, After: refusal.RetryAfter}
		default:
			return Advice{Step: StepFix}
		}
	}
	// Nobody knows what was sent. What the caller itself knows of the operation decides.
	switch {
	case req.GetRepeatSafety() == pb.RepeatSafety_REPEAT_SAFETY_NEVER:
		return Advice{Step: StepReconcile}
	case underContract && req.GetOperationId() != "":
		return Advice{Step: StepRetrySameID, OperationID: req.GetOperationId()}
	case repeatable(req.GetRequest().GetMethod()):
		return Advice{Step: StepRetry}
	default:
		return Advice{Step: StepReconcile}
	}
}

// repeatable are the methods that may be sent twice (RFC 9110 §9.2.2), as the policy has them that comes with the broker.
func repeatable(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	default:
		return false
	}
}
