package broker

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func encodeOrigin(s *engine.OriginState, forced *admin.Forced) *pb.Origin {
	o := &pb.Origin{Origin: s.Name, Forced: encodeForced(forced), TroubleTime: stamp(s.Trouble)}
	for i := range s.Scopes {
		o.Scopes = append(o.Scopes, encodeScope(&s.Scopes[i], s.Holds))
	}
	if l := &s.Latency; l.Samples > 0 {
		o.Latency = &pb.LatencyQuantiles{
			Samples: uint32(l.Samples), //nolint:gosec // a few hundred
			P50:     durationpb.New(l.P50), P95: durationpb.New(l.P95), P99: durationpb.New(l.P99),
		}
	}
	for i := range s.Moves {
		m := &s.Moves[i]
		o.Transitions = append(o.Transitions, &pb.BreakerTransition{
			Time: stamp(m.At), From: pb.BreakerState(m.From), To: pb.BreakerState(m.To), Cause: m.Cause.String(), OpenTime: length(m.Cooldown),
		})
	}
	return o
}

func encodeForced(f *admin.Forced) *pb.ForcedBreaker {
	if f == nil {
		return nil
	}
	mode := pb.BreakerMode_BREAKER_MODE_FORCED_CLOSED
	if f.Open {
		mode = pb.BreakerMode_BREAKER_MODE_FORCED_OPEN
	}
	return &pb.ForcedBreaker{Mode: mode, Principal: f.Principal, Reason: f.Reason, CreateTime: stamp(f.CreateTime), ExpireTime: stamp(f.ExpireTime)}
}

func encodeScope(s *engine.Scope, holds []engine.Hold) *pb.OriginScope {
	out := &pb.OriginScope{
		Policy: s.By.Policy, Breaker: encodeBreaker(&s.Breaker), Budget: encodeBudget(&s.Budget, s.Callers),
		Concurrency: &pb.ConcurrencyStatus{InFlight: s.Concurrency.InFlight, Queued: s.Concurrency.Pending, Limit: s.Concurrency.Limit},
	}
	for i := range holds {
		kind := pb.HoldKind_HOLD_KIND_ALL
		if holds[i].Credential {
			kind = pb.HoldKind_HOLD_KIND_CREDENTIAL
		}
		out.Holds = append(out.Holds, &pb.Hold{Kind: kind, EndTime: stamp(holds[i].Until)})
	}
	return out
}

func encodeBreaker(b *breaker.Snapshot) *pb.BreakerStatus {
	return &pb.BreakerStatus{
		State: pb.BreakerState(b.State), Mode: pb.BreakerMode(b.Mode), Since: stamp(b.Since), ConsecutiveFailures: b.Consecutive,
		Attempts: b.Attempts, Failed: b.Failed, Slow: b.Slow, Excused: b.Excused,
		DistinctCallers: uint32(b.Callers), //nolint:gosec // at most 8
		NextProbeTime:   stamp(b.NextProbe), Probing: b.Probing, OpenTime: length(b.Cooldown), Ramping: b.Ramping,
	}
}

func encodeBudget(b *budget.Snapshot, callers []budget.CallerUse) *pb.BudgetStatus {
	out := &pb.BudgetStatus{
		Allowance: b.Allowance, Left: b.Left, Firsts: b.Firsts, Used: b.Retries, Tokens: b.Tokens,
		GrantedTotal: b.Totals.Granted, RefusedTotal: b.Totals.Refused,
	}
	for _, c := range callers {
		out.Callers = append(out.Callers, &pb.CallerBudget{Caller: c.Caller, Used: c.Taken})
	}
	return out
}

// length is nil for none.
func length(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
