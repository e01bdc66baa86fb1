package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestOriginOfSeveralScopesShowsTheWorstOfEach(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(at.Add(-d)) }
	scope := func(state pb.BreakerState, since time.Duration, inFlight, limit uint32, left float64, hold time.Duration) *pb.OriginScope {
		s := &pb.OriginScope{
			Breaker:     &pb.BreakerStatus{State: state, Since: ago(since)},
			Budget:      &pb.BudgetStatus{Left: left, Allowance: 10},
			Concurrency: &pb.ConcurrencyStatus{InFlight: inFlight, Limit: limit},
		}
		if hold > 0 {
			s.Holds = []*pb.Hold{{Kind: pb.HoldKind_HOLD_KIND_ALL, EndTime: timestamppb.New(at.Add(hold))}}
		}
		return s
	}
	const closed, open, half = pb.BreakerState_BREAKER_STATE_CLOSED, pb.BreakerState_BREAKER_STATE_OPEN, pb.BreakerState_BREAKER_STATE_HALF_OPEN
	for _, tt := range []struct {
		name   string
		origin *pb.Origin
		want   string
	}{
		{"nothing known", &pb.Origin{}, "- | - | - | - | - | - | -"},
		{"forced before its first call", &pb.Origin{Forced: &pb.ForcedBreaker{Mode: pb.BreakerMode_BREAKER_MODE_FORCED_OPEN}}, "forced open | - | - | - | - | - | -"},
		{
			"one scope", &pb.Origin{
				Scopes:      []*pb.OriginScope{scope(closed, 75*time.Second, 3, 512, 7.44, 12*time.Second)},
				TroubleTime: ago(26 * time.Hour), Latency: &pb.LatencyQuantiles{P95: durationpb.New(1234 * time.Millisecond)},
			},
			"closed | 1m15s | 3/512 | 7.4/10 | 1.234s | 12s | 1d2h ago",
		},
		{
			"the worst of three", &pb.Origin{Scopes: []*pb.OriginScope{
				scope(half, time.Second, 100, 0, 3, 0), scope(open, 2*time.Hour, 5, 10, 2, 5*time.Second), scope(open, time.Minute, 8, 512, 0.5, 90*time.Second),
			}},
			"open 2/3 | 1m0s | 5/10 | 0.5/10 | - | 1m30s | -",
		},
		{
			"a clock that is ahead, and a hold that is over", &pb.Origin{Scopes: []*pb.OriginScope{{
				Breaker:     &pb.BreakerStatus{State: half, Since: ago(-time.Second)},
				Concurrency: &pb.ConcurrencyStatus{InFlight: 4, Limit: 4, Queued: 2},
				Holds:       []*pb.Hold{{EndTime: ago(time.Second)}},
			}}},
			"half-open | 0s | 4/4 +2 wait | - | - | - | -",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(originCells(tt.origin, at), " | "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
