package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// operationCells is one line for an operation.
func operationCells(o *pb.Operation, at time.Time) []string {
	outcome, status := none, none
	if o.GetOutcome() != pb.Outcome_OUTCOME_UNSPECIFIED {
		outcome = outcomeName(o.GetOutcome())
	}
	if s := lastStatus(o); s != 0 {
		status = strconv.FormatUint(uint64(s), 10)
	}
	effect := none
	if o.GetEffect() != pb.Effect_EFFECT_UNSPECIFIED {
		effect = effectName(o.GetEffect())
	}
	return []string{
		o.GetOperationId(), operationStateWord(o.GetState()), outcome, effect, status, strconv.Itoa(len(o.GetAttempts())),
		age(o.GetCreateTime(), at) + " ago", age(o.GetUpdateTime(), at) + " ago",
	}
}

func operationStateWord(s pb.OperationState) string { return word(s.String(), "OPERATION_STATE_") }

// lastStatus is that of the answer; where its body is no longer kept, that of the last attempt which had one.
func lastStatus(o *pb.Operation) uint32 {
	if o.GetResponse() != nil {
		return o.GetResponse().GetStatus()
	}
	for _, a := range slices.Backward(o.GetAttempts()) {
		if a.GetStatus() != 0 && a.GetEvidence() == pb.Evidence_EVIDENCE_ANSWERED {
			return a.GetStatus()
		}
	}
	return 0
}

// printOperation shows an operation as a call is shown: its attempts, how it ended, what to do, and the answer.
func printOperation(w io.Writer, o *pb.Operation, at time.Time) {
	sayf(w, "%s", wrap("", plain(o.GetOperationId())+": "+operationStateWord(o.GetState())))
	sayf(w, "  created  %s, %s ago\n", instant(o.GetCreateTime()), age(o.GetCreateTime(), at))
	sayf(w, "  changed  %s, %s ago\n", instant(o.GetUpdateTime()), age(o.GetUpdateTime(), at))
	sayf(w, "%s", attemptLines(o.GetAttempts()))
	sayf(w, "%s\n", operationEnd(o))
	sayf(w, "%s%s", wrap("next: ", operationNext(o)), answer(o.GetResponse()))
	if s := lastStatus(o); o.GetResponse() == nil && s != 0 {
		sayf(w, "\nthe answer was %d; its body is no longer kept\n", s)
	}
}

// operationEnd says what its caller was told, and what is known of the effect.
func operationEnd(o *pb.Operation) string {
	effect := "  effect " + effectName(o.GetEffect())
	if o.GetEffect() == pb.Effect_EFFECT_UNSPECIFIED {
		effect = ""
	}
	if o.GetOutcome() == pb.Outcome_OUTCOME_UNSPECIFIED {
		return "its caller still waits" + effect
	}
	text := "its caller got " + outcomeName(o.GetOutcome())
	if o.GetReason() != pb.Reason_REASON_UNSPECIFIED {
		text += " (" + reasonWord(o.GetReason()) + ")"
	}
	return text + effect
}

// definitive: the status tells what became of the operation, and a ledger stores it. A new token or a later time mends those left out.
func definitive(status uint32) bool {
	return status != 0 && status < 500 && !slices.Contains([]uint32{401, 403, 407, 408, 425, 429}, status) || status == 501 || status == 505
}

// operationNext says in plain words what whoever holds the id should do. It is the rule of NextStep, told of the id: what the ledger
// stores comes back under it, and what it gave free may be sent again.
func operationNext(o *pb.Operation) string {
	switch o.GetState() {
	case pb.OperationState_OPERATION_STATE_RUNNING:
		if o.GetOutcome() == pb.Outcome_OUTCOME_UNSPECIFIED || o.GetOutcome() == pb.Outcome_OUTCOME_DEFERRED {
			return "ask later, it is still running; a call under this id waits for the same answer"
		}
		return "ask later: its caller has been answered, and an attempt that was sent is still under way; its answer may yet settle it"
	case pb.OperationState_OPERATION_STATE_UNKNOWN:
		return "find out what the upstream did before anything else is sent; it may have happened. Where the policy has a status_probe, " +
			"sallyport operation reconcile asks it; else a person has to find out"
	case pb.OperationState_OPERATION_STATE_FINISHED:
		return finishedNext(o)
	}
	return operationStateWord(o.GetState()) // of a later version
}

func finishedNext(o *pb.Operation) string {
	const mend = "change the request, the policy or the upstream; the same again would end the same way"
	stored := o.GetEffect() == pb.Effect_EFFECT_ANSWERED && definitive(lastStatus(o))
	switch o.GetOutcome() {
	case pb.Outcome_OUTCOME_SUCCESS:
		return "nothing, it is done; a call under this id gets the same answer, and nothing is sent"
	case pb.Outcome_OUTCOME_OPERATION_CONFLICT:
		return "take a new operation id for what is another operation; this one was used with another payload"
	case pb.Outcome_OUTCOME_DENIED, pb.Outcome_OUTCOME_UNREACHABLE, pb.Outcome_OUTCOME_RESPONSE_REJECTED:
		if o.GetEffect() != pb.Effect_EFFECT_UNKNOWN {
			return mend
		}
	case pb.Outcome_OUTCOME_UNKNOWN, pb.Outcome_OUTCOME_CANCELLED:
		if stored {
			return fmt.Sprintf("go by the answer, a %d that its caller did not get; a call under this id gets it, and nothing is sent", lastStatus(o))
		}
	case pb.Outcome_OUTCOME_HTTP_ERROR:
		if stored {
			return mend + ". Take a new operation id for what you changed"
		}
	}
	switch o.GetEffect() {
	case pb.Effect_EFFECT_NONE:
		return "send it again if you want it done: nothing happened, and the id is free"
	case pb.Effect_EFFECT_UNKNOWN:
		return "send it again under this id and no other: it may be repeated, and the id is free"
	}
	return "send it again under this id once what stopped it is mended (a new token, a later time): the id is free"
}
