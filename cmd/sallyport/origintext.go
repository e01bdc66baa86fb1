package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// clock is the time that ages are told from.
func clock() time.Time { return time.Now() }

// none stands where there is nothing to tell.
const none = "-"

// originCells is one line for an origin: of several scopes the worst of each.
func originCells(o *pb.Origin, at time.Time) []string {
	trouble := none
	if o.GetTroubleTime() != nil {
		trouble = age(o.GetTroubleTime(), at) + " ago"
	}
	return []string{stateText(o), sinceText(worstBreaker(o), at), inFlightText(o), budgetText(o), p95Text(o), holdText(o, at), trouble}
}

// worstBreaker is an open one before one that is half open before a closed one; of equals the one that moved last.
func worstBreaker(o *pb.Origin) *pb.BreakerStatus {
	var worst *pb.BreakerStatus
	for _, s := range o.GetScopes() {
		b := s.GetBreaker()
		switch {
		case worst == nil, badness(b.GetState()) > badness(worst.GetState()):
			worst = b
		case b.GetState() == worst.GetState() && b.GetSince().AsTime().After(worst.GetSince().AsTime()):
			worst = b
		}
	}
	return worst
}

func badness(s pb.BreakerState) int {
	switch s {
	case pb.BreakerState_BREAKER_STATE_OPEN:
		return 2
	case pb.BreakerState_BREAKER_STATE_HALF_OPEN:
		return 1
	}
	return 0
}

func stateWord(s pb.BreakerState) string {
	if s == pb.BreakerState_BREAKER_STATE_HALF_OPEN {
		return "half-open"
	}
	return word(s.String(), "BREAKER_STATE_")
}

// modeWord says what an operator said.
func modeWord(m pb.BreakerMode) string { return word(m.String(), "BREAKER_MODE_") }

// stateText is the state of the worst breaker, of how many, and whether it is forced.
func stateText(o *pb.Origin) string {
	worst := worstBreaker(o)
	if worst == nil {
		if o.GetForced() != nil {
			return modeWord(o.GetForced().GetMode())
		}
		return none
	}
	text := stateWord(worst.GetState())
	if o.GetForced() != nil {
		return "forced " + text
	}
	n := 0
	for _, s := range o.GetScopes() {
		if s.GetBreaker().GetState() == worst.GetState() {
			n++
		}
	}
	if all := len(o.GetScopes()); n < all {
		text += fmt.Sprintf(" %d/%d", n, all)
	}
	return text
}

func sinceText(b *pb.BreakerStatus, at time.Time) string {
	if b.GetSince() == nil {
		return none
	}
	return age(b.GetSince(), at)
}

// inFlightText is that of the scope that is fullest.
func inFlightText(o *pb.Origin) string {
	var fullest *pb.ConcurrencyStatus
	share := func(c *pb.ConcurrencyStatus) float64 {
		if c.GetLimit() == 0 {
			return 0
		}
		return float64(c.GetInFlight()) / float64(c.GetLimit())
	}
	for _, s := range o.GetScopes() {
		if c := s.GetConcurrency(); fullest == nil || share(c) > share(fullest) || share(c) == share(fullest) && c.GetInFlight() > fullest.GetInFlight() {
			fullest = c
		}
	}
	if fullest == nil {
		return none
	}
	return concurrencyText(fullest)
}

func concurrencyText(c *pb.ConcurrencyStatus) string {
	text := strconv.FormatUint(uint64(c.GetInFlight()), 10)
	if c.GetLimit() > 0 {
		text += fmt.Sprintf("/%d", c.GetLimit())
	}
	if c.GetQueued() > 0 {
		text += fmt.Sprintf(" +%d wait", c.GetQueued())
	}
	return text
}

// budgetText is what is left in the scope that has least.
func budgetText(o *pb.Origin) string {
	var least *pb.BudgetStatus
	for _, s := range o.GetScopes() {
		if b := s.GetBudget(); b != nil && (least == nil || b.GetLeft() < least.GetLeft()) {
			least = b
		}
	}
	if least == nil {
		return none
	}
	return tenths(least.GetLeft()) + "/" + tenths(least.GetAllowance())
}

func tenths(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

func p95Text(o *pb.Origin) string {
	if o.GetLatency().GetP95() == nil {
		return none
	}
	return brief(o.GetLatency().GetP95().AsDuration())
}

// holdText is how long the longest hold still lasts.
func holdText(o *pb.Origin, at time.Time) string {
	var last *pb.Hold
	for _, s := range o.GetScopes() {
		for _, h := range s.GetHolds() {
			if last == nil || h.GetEndTime().AsTime().After(last.GetEndTime().AsTime()) {
				last = h
			}
		}
	}
	if last == nil || !last.GetEndTime().AsTime().After(at) {
		return none
	}
	return span(last.GetEndTime().AsTime().Sub(at))
}

// age is how long ago something was.
func age(t *timestamppb.Timestamp, at time.Time) string { return span(at.Sub(t.AsTime())) }

// span writes a duration as coarse as a person wants it: 3s, 4m12s, 2h5m, 3d4h. The clocks of two machines may differ, so that what has
// just been can lie ahead.
func span(d time.Duration) string {
	switch d = max(d, 0).Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

// forcedText says what an operator said of an origin.
func forcedText(f *pb.ForcedBreaker) string {
	text := fmt.Sprintf("%s by %s since %s", modeWord(f.GetMode()), f.GetPrincipal(), instant(f.GetCreateTime()))
	if f.GetExpireTime() != nil {
		text += " until " + instant(f.GetExpireTime())
	}
	if f.GetReason() != "" {
		text += ": " + f.GetReason()
	}
	return text
}
