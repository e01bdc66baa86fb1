package main

import (
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// The steps of what all callers of an origin share. Policies of their own keep their breakers and budgets apart from the other
// steps'; a hold is the origin's, and so its step comes last.

func demoBreaker() demoStep {
	get := demoCall{method: "GET", path: "/weather", timeout: 5 * time.Second}
	trips, refused, probe := get, get, get
	trips.about = "The call that opens it: the fourth attempt is refused, and the upstream's last answer stays in the reply."
	trips.outcome, trips.effect, trips.next = pb.Outcome_OUTCOME_BREAKER_OPEN, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_RETRY
	trips.requests = 3
	refused.about = "The next call, of whatever caller, is refused at once. Nothing is sent, and it is told when to come again."
	refused.outcome, refused.effect, refused.next = pb.Outcome_OUTCOME_BREAKER_OPEN, pb.Effect_EFFECT_NONE, pb.NextStep_NEXT_STEP_RETRY
	refused.reason = pb.Reason_REASON_BREAKER_OPEN
	probe.about = "After that time one attempt goes through, the probe. It succeeds, and the breaker closes."
	probe.patient = true
	probe.outcome, probe.effect, probe.next = pb.Outcome_OUTCOME_SUCCESS, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_DONE
	probe.kind, probe.requests = pb.AttemptKind_ATTEMPT_KIND_PROBE, 1
	closed := probe
	closed.about = "Closed again: an ordinary call."
	closed.patient, closed.kind = false, pb.AttemptKind_ATTEMPT_KIND_PRIMARY
	return demoStep{
		title: "A breaker that opens and recovers",
		about: "The upstream is down. After three failures in a row the breaker opens for a second and leaves the upstream alone.",
		calls: []demoCall{trips, refused, probe, closed},
	}
}

func demoBudget() demoStep {
	return demoStep{
		title: "A retry storm that does not happen",
		about: "Ten callers make the same call at once and the upstream answers all of them 503. Three attempts each would be 30 " +
			"requests. The budget that all callers share allows four retries to ten first attempts, and the others end at once.",
		calls: []demoCall{{
			method: "GET", path: "/news", timeout: 5 * time.Second, callers: stormCallers,
			outcome: pb.Outcome_OUTCOME_BUDGET_EXHAUSTED, effect: pb.Effect_EFFECT_ANSWERED, next: pb.NextStep_NEXT_STEP_RETRY,
			reason: pb.Reason_REASON_BUDGET_EXHAUSTED, requests: stormCallers + 4,
		}},
	}
}

func demoHedge() demoStep {
	return demoStep{
		title: "A hedge",
		about: "The upstream takes two seconds over one request, by bad luck: another one it answers at once. After 150ms the broker " +
			"makes a second attempt beside the first, takes the answer that comes first and cancels the other. It costs one more request.",
		calls: []demoCall{{
			method: "GET", path: "/quotes", timeout: 5 * time.Second,
			outcome: pb.Outcome_OUTCOME_SUCCESS, effect: pb.Effect_EFFECT_ANSWERED, next: pb.NextStep_NEXT_STEP_DONE,
			winner: pb.AttemptKind_ATTEMPT_KIND_HEDGE, requests: 2,
		}},
	}
}

func demoHold() demoStep {
	get := demoCall{method: "GET", path: "/tickets"}
	first, hasty, waits := get, get, get
	first.about = "The caller that is told so allows one attempt only, and is done."
	first.timeout, first.maxAttempts = 5*time.Second, 1
	first.outcome, first.effect, first.next = pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_RETRY
	first.requests = 1
	hasty.about = "The next one has no time to wait until then: it is told at once, and nothing is sent."
	hasty.timeout = 300 * time.Millisecond
	hasty.outcome, hasty.effect, hasty.next = pb.Outcome_OUTCOME_THROTTLED, pb.Effect_EFFECT_NONE, pb.NextStep_NEXT_STEP_RETRY
	hasty.reason = pb.Reason_REASON_ORIGIN_HELD
	waits.about = "The third has the time. Its first attempt waits for the end of the hold, and succeeds."
	waits.timeout = 5 * time.Second
	waits.outcome, waits.effect, waits.next = pb.Outcome_OUTCOME_SUCCESS, pb.Effect_EFFECT_ANSWERED, pb.NextStep_NEXT_STEP_DONE
	waits.kind, waits.requests = pb.AttemptKind_ATTEMPT_KIND_PRIMARY, 1
	return demoStep{
		title: "A hold",
		about: "The upstream answers 503 and asks for two seconds. What it asked of one caller holds for all: its origin is held.",
		calls: []demoCall{first, hasty, waits},
	}
}
