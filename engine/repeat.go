package engine

import (
	"slices"
	"strings"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// worth says whether the result is of a kind worth repeating at all, and if not, how the call ends (semantics.md §2.3).
func (p *Plan) worth(r *call.Result) (reason call.Reason, outcome call.Outcome, ok bool) {
	if r.Evidence == call.EvidenceAnswered {
		return p.worthAnswer(r)
	}
	switch r.Failure {
	case call.FailureDenied:
		return call.ReasonEgressDenied, call.OutcomeDenied, false
	case call.FailureResponseTooLarge:
		return call.ReasonResponseTooLarge, call.OutcomeResponseRejected, false
	}
	switch {
	case r.Terminal:
		return call.ReasonFailureNotRetryable, call.OutcomeUnreachable, false
	case r.Failure == call.FailureProtocol:
		return call.ReasonMalformedResponse, call.OutcomeResponseRejected, false
	}
	return call.ReasonFailureRetryable, call.OutcomeUnspecified, true
}

func (p *Plan) worthAnswer(r *call.Result) (reason call.Reason, outcome call.Outcome, ok bool) {
	if p.keyed && p.policy.Idempotency.MismatchStatuses.Has(r.Status) {
		return call.ReasonOperationConflict, call.OutcomeOperationConflict, false
	}
	ok = p.policy.Retry.Statuses.Has(r.Status) || p.inProgress(r.Status)
	switch p.verdict(r.Response) {
	case verdictStop:
		ok = false
	case verdictRetry:
		ok = true
	}
	if ok {
		return call.ReasonStatusRetryable, call.OutcomeUnspecified, true
	}
	return call.ReasonStatusNotRetryable, call.OutcomeHTTPError, false
}

// upstreamVerdict is what the answer itself says of repeating (retry.verdict_header).
type upstreamVerdict uint8

const (
	verdictSilent upstreamVerdict = iota
	verdictRetry
	verdictStop
)

func (p *Plan) verdict(r *call.Response) upstreamVerdict {
	vh := &p.policy.Retry.VerdictHeader
	if !vh.Enabled || r == nil {
		return verdictSilent
	}
	said := verdictSilent
	for _, value := range fieldValues(r.Headers, vh.Name) {
		same := func(v string) bool { return strings.EqualFold(v, value) }
		if slices.ContainsFunc(vh.StopValues, same) {
			return verdictStop // a stop is never outvoted
		}
		if slices.ContainsFunc(vh.RetryValues, same) {
			said = verdictRetry
		}
	}
	return said
}

// bars is what forbids to make the operation again after this result; unspecified when nothing does.
func (p *Plan) bars(r *call.Result) call.Reason {
	switch {
	case !p.safeToRepeat(r):
		return call.ReasonNotRepeatable
	case !p.replayable(r):
		return call.ReasonBodyNotReplayable
	}
	return call.ReasonUnspecified
}

// safeToRepeat decides from the evidence of this attempt (semantics.md §2.4).
func (p *Plan) safeToRepeat(r *call.Result) bool {
	switch {
	case r.Evidence == call.EvidenceNotSent, r.Evidence == call.EvidenceRefused:
		return true
	case p.call.RepeatSafety == call.RepeatSafetyNever:
		return false
	case p.repeat != policy.RepeatNever:
		return true
	}
	return r.Evidence == call.EvidenceAnswered && p.policy.Retry.RejectionStatuses.Has(r.Status)
}

// replayable: the body can be sent again (semantics.md §2.5). A body of which nothing was read yet always can.
func (p *Plan) replayable(r *call.Result) bool {
	return r.Evidence == call.EvidenceNotSent || p.bodyTwice()
}

// bodyTwice: the body may be read a second time.
func (p *Plan) bodyTwice() bool {
	if s := p.call.Stream; s != nil {
		return s.Upload.Replayable()
	}
	size := len(p.call.Body)
	return size == 0 || !p.call.SingleUseBody && uint64(size) <= p.policy.Body.ReplayBytes
}
