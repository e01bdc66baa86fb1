package main

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// The words of the timeline. Enums of the wire become what a person would say; a value of a later version keeps its name.

func outcomeName(o pb.Outcome) string { return strings.TrimPrefix(o.String(), "OUTCOME_") }

func effectName(e pb.Effect) string { return strings.TrimPrefix(e.String(), "EFFECT_") }

func kindWord(k pb.AttemptKind) string { return word(k.String(), "ATTEMPT_KIND_") }

func reasonWord(r pb.Reason) string { return word(r.String(), "REASON_") }

// word makes "status not retryable" of REASON_STATUS_NOT_RETRYABLE.
func word(name, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", " "))
}

// whatWord says what one attempt gave.
func whatWord(a *pb.Attempt) string {
	switch a.GetFailure() {
	case pb.Failure_FAILURE_UNSPECIFIED:
		return evidenceWord(a.GetEvidence())
	case pb.Failure_FAILURE_NAME_RESOLUTION:
		return "name not found"
	case pb.Failure_FAILURE_CONNECT:
		return "no connection"
	case pb.Failure_FAILURE_TLS:
		return "no TLS session"
	case pb.Failure_FAILURE_ATTEMPT_TIMEOUT:
		return "timed out"
	case pb.Failure_FAILURE_PROTOCOL:
		if a.GetEvidence() == pb.Evidence_EVIDENCE_NOT_SENT {
			return "no HTTP/2"
		}
		return "malformed answer"
	case pb.Failure_FAILURE_RESPONSE_TOO_LARGE:
		return "answer too large"
	default:
		return word(a.GetFailure().String(), "FAILURE_")
	}
}

// evidenceWord says what is proved of how far an attempt got.
func evidenceWord(e pb.Evidence) string {
	switch e {
	case pb.Evidence_EVIDENCE_SENT_NO_RESPONSE:
		return "sent, no response"
	default:
		return word(e.String(), "EVIDENCE_")
	}
}

func decisionWord(d *pb.Decision) string {
	switch d.GetVerdict() {
	case pb.Verdict_VERDICT_RETRY:
		if d.GetWait().AsDuration() == 0 {
			return "retry at once"
		}
		return "retry in " + brief(d.GetWait().AsDuration())
	case pb.Verdict_VERDICT_FOLLOW:
		return "follow"
	case pb.Verdict_VERDICT_NONE:
		return noneWord(d.GetReason())
	default:
		return "stop"
	}
}

// noneWord says why nothing was decided after an attempt that another one ran beside.
func noneWord(r pb.Reason) string {
	switch r {
	case pb.Reason_REASON_SUPERSEDED:
		return "another won"
	case pb.Reason_REASON_CANCELLED:
		return "stop" // with all the others, since the caller went away
	default:
		return "wait for other"
	}
}

// nextWords says in plain words what the caller should do.
func nextWords(resp *pb.CallResponse) string {
	after := ""
	if d := resp.GetRetryAfter().AsDuration(); d > 0 {
		after = fmt.Sprintf(", not before %s from now", brief(d))
	}
	id := ""
	if resp.GetOperationId() != "" {
		id = ", " + resp.GetOperationId()
	}
	switch resp.GetNext() {
	case pb.NextStep_NEXT_STEP_DONE:
		return "nothing, it is done"
	case pb.NextStep_NEXT_STEP_FIX_REQUEST:
		return "change the request, the policy or the upstream; the same again would end the same way"
	case pb.NextStep_NEXT_STEP_RETRY:
		return "send it again" + after
	case pb.NextStep_NEXT_STEP_RETRY_SAME_ID:
		return "send it again under the same operation id and no other" + id + after
	case pb.NextStep_NEXT_STEP_RECONCILE:
		text := "find out what the upstream did before anything else is sent; it may have happened"
		if id != "" {
			text += ". sallyport operation get " + resp.GetOperationId() + " tells whether its answer has come since"
		}
		return text
	case pb.NextStep_NEXT_STEP_WAIT:
		return "ask later, it is still running" + after
	default:
		return word(resp.GetNext().String(), "NEXT_STEP_")
	}
}

// brief writes a duration to the millisecond, long ones to the tenth of a second.
func brief(d time.Duration) string {
	const long = 10 * time.Second
	if d >= long {
		return d.Round(100 * time.Millisecond).String()
	}
	if d = d.Round(time.Millisecond); d == 0 {
		return "0ms"
	}
	return d.String()
}
