package main

import (
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// operationCells is one line for an operation.
func operationCells(o *pb.Operation, at time.Time) []string {
	outcome, effect, status := none, none, none
	if o.GetOutcome() != pb.Outcome_OUTCOME_UNSPECIFIED {
		outcome = outcomeName(o.GetOutcome())
	}
	if o.GetEffect() != pb.Effect_EFFECT_UNSPECIFIED {
		effect = effectName(o.GetEffect())
	}
	if o.GetResponse() != nil {
		status = strconv.FormatUint(uint64(o.GetResponse().GetStatus()), 10)
	}
	return []string{
		o.GetOperationId(), operationStateWord(o.GetState()), outcome, effect, status, strconv.Itoa(len(o.GetAttempts())),
		age(o.GetCreateTime(), at) + " ago", age(o.GetUpdateTime(), at) + " ago",
	}
}

func operationStateWord(s pb.OperationState) string { return word(s.String(), "OPERATION_STATE_") }

// printOperation shows an operation as a call is shown: its attempts, how it ended, what to do, and the answer.
func printOperation(w io.Writer, o *pb.Operation, at time.Time) {
	head, policy := plain(o.GetOperationId())+": "+operationStateWord(o.GetState()), plain(o.GetPolicy())
	if utf8.RuneCountInString(head) <= width/2 {
		sayf(w, "%s", title(head, policy))
	} else { // every letter of an id counts
		sayf(w, "%s", wrap("", head))
		if policy != "" {
			sayf(w, "%s", wrap("  ", policy))
		}
	}
	sayf(w, "  created  %s, %s ago\n", instant(o.GetCreateTime()), age(o.GetCreateTime(), at))
	sayf(w, "  changed  %s, %s ago\n", instant(o.GetUpdateTime()), age(o.GetUpdateTime(), at))
	sayf(w, "%s", attemptLines(o.GetAttempts()))
	for _, p := range o.GetProbes() {
		sayf(w, "  %s\n", probeText(p))
	}
	sayf(w, "%s\n", operationEnd(o))
	if o.GetDetail() != "" {
		sayf(w, "%s", wrap("", plain(o.GetDetail())))
	}
	sayf(w, "%s%s", wrap("next: ", plain(operationNext(o))), answer(o.GetResponse()))
}

// probeText tells one status probe.
func probeText(p *pb.ProbeFinding) string {
	text := "status probe  " + instant(p.GetTime()) + "  "
	if p.GetStatus() == 0 {
		text += "---"
	} else {
		text += strconv.FormatUint(uint64(p.GetStatus()), 10)
	}
	text += "  " + word(p.GetVerdict().String(), "PROBE_VERDICT_")
	if p.GetVerdict() == pb.ProbeVerdict_PROBE_VERDICT_NOT_APPLIED && !p.GetCounts() {
		text += ", which does not count" // not authoritative, or settle has not passed
	}
	return text
}

// operationEnd says how it ended, and what is known of the effect, a late answer included.
func operationEnd(o *pb.Operation) string {
	if o.GetOutcome() == pb.Outcome_OUTCOME_UNSPECIFIED {
		return "its caller still waits"
	}
	text := outcomeName(o.GetOutcome()) + "  effect " + effectName(o.GetEffect())
	if o.GetReason() != pb.Reason_REASON_UNSPECIFIED {
		text += "  (" + reasonWord(o.GetReason()) + ")"
	}
	return text
}

// operationNext says in plain words what whoever holds the id should do, and what a call under it would meet.
func operationNext(o *pb.Operation) string {
	switch {
	case o.GetState() == pb.OperationState_OPERATION_STATE_UNKNOWN:
		return "find out what the upstream did before anything else is sent; it may have happened. Where the policy has a status_probe, " +
			"sallyport operation reconcile asks it; else a person has to find out"
	case o.GetState() != pb.OperationState_OPERATION_STATE_RUNNING:
	case o.GetOutcome() == pb.Outcome_OUTCOME_UNSPECIFIED || o.GetOutcome() == pb.Outcome_OUTCOME_DEFERRED:
		return "ask later, it is still running; a call under this id waits for the same answer"
	default:
		return "ask later: its caller has been answered, and an attempt that was sent is still under way; its answer may yet settle it"
	}
	text := "go by outcome, effect and status; what else was known is no longer kept"
	if o.GetNext() != pb.NextStep_NEXT_STEP_UNSPECIFIED {
		text = nextWords(&pb.CallResponse{Next: o.GetNext(), OperationId: o.GetOperationId()})
	}
	if o.GetFree() {
		return text + fmt.Sprintf("; the id is free, a call under %s is sent", o.GetOperationId())
	}
	return text + "; a call under this id gets the same answer, and nothing is sent"
}
