package main

import (
	"strings"
	"testing"
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestDemoEndsAsToldWithinItsTime(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	start := time.Now()
	if err := demo(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if took := time.Since(start); took >= 15*time.Second {
		t.Errorf("took %s", took)
	}
	for i, step := range demoSteps() {
		if !strings.Contains(out.String(), step.title+"\n") {
			t.Errorf("call %d, %q, was not shown", i+1, step.title)
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimSpace(line))); n > width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// A demo that overlooks what goes otherwise would prove nothing.
func TestDemoNoticesACallThatDoesNotEndAsTold(t *testing.T) {
	probe := demoBreaker().calls[2]
	asTold := func() *pb.CallResponse {
		return &pb.CallResponse{
			Outcome: pb.Outcome_OUTCOME_SUCCESS, Effect: pb.Effect_EFFECT_ANSWERED, Next: pb.NextStep_NEXT_STEP_DONE,
			Attempts: []*pb.Attempt{{Kind: pb.AttemptKind_ATTEMPT_KIND_PROBE}},
		}
	}
	if problem := probe.check(asTold()); problem != "" {
		t.Errorf("as told: %s", problem)
	}
	for name, change := range map[string]func(*pb.CallResponse){
		"another outcome": func(r *pb.CallResponse) { r.Outcome = pb.Outcome_OUTCOME_BREAKER_OPEN },
		"another effect":  func(r *pb.CallResponse) { r.Effect = pb.Effect_EFFECT_UNKNOWN },
		"another next":    func(r *pb.CallResponse) { r.Next = pb.NextStep_NEXT_STEP_RETRY },
		"no probe":        func(r *pb.CallResponse) { r.Attempts[0].Kind = pb.AttemptKind_ATTEMPT_KIND_PRIMARY },
		"no attempt":      func(r *pb.CallResponse) { r.Attempts = nil },
	} {
		reply := asTold()
		change(reply)
		if probe.check(reply) == "" {
			t.Errorf("%s was not noticed", name)
		}
	}
	held := demoHold().calls[1]
	if held.check(&pb.CallResponse{Outcome: held.outcome, Effect: held.effect, Next: held.next, Reason: pb.Reason_REASON_RETRY_AFTER_TOO_LONG}) == "" {
		t.Error("another reason was not noticed")
	}
	hedged := demoHedge().calls[0]
	beaten := func(winner pb.AttemptKind, first pb.Reason) *pb.CallResponse {
		return &pb.CallResponse{
			Outcome: hedged.outcome, Effect: hedged.effect, Next: hedged.next, Attempts: []*pb.Attempt{
				{Kind: pb.AttemptKind_ATTEMPT_KIND_PRIMARY, Decision: &pb.Decision{Reason: first}},
				{Kind: winner, Decision: &pb.Decision{Reason: pb.Reason_REASON_SUCCESS}},
			},
		}
	}
	if problem := hedged.check(beaten(pb.AttemptKind_ATTEMPT_KIND_HEDGE, pb.Reason_REASON_SUPERSEDED)); problem != "" {
		t.Errorf("a hedge that won: %s", problem)
	}
	if hedged.check(beaten(pb.AttemptKind_ATTEMPT_KIND_RETRY, pb.Reason_REASON_SUPERSEDED)) == "" ||
		hedged.check(beaten(pb.AttemptKind_ATTEMPT_KIND_HEDGE, pb.Reason_REASON_STATUS_RETRYABLE)) == "" {
		t.Error("another winner, or none that lost, was not noticed")
	}
	if probe.checkUpstream(1, 0, 1) != "" || probe.checkUpstream(2, 0, 1) == "" || probe.checkUpstream(1, 0, 2) == "" || probe.checkUpstream(1, 1, 1) == "" {
		t.Error("what the upstream saw is not compared")
	}
}
