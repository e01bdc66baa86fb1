package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newOriginsGet() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "get ORIGIN",
		Short: "Show one origin: breaker, budget, concurrency, holds, latency, and what moved its breakers",
		Long: `Show one origin: the state under each policy that its calls had, who spends its budget, how long answers take, the last moves of
its breakers with their cause, and what an operator said of them.
` + adminCodes,
		Example: `  sallyport origins get https://api.example.com
  sallyport origins get http://127.0.0.1:8000 -o json`,
		Args: exactly("ORIGIN"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
				resp, err := c.Origins().GetOrigin(ctx, &pb.GetOriginRequest{Origin: args[0]})
				return resp.GetOrigin(), err
			}, func(m proto.Message) {
				printOrigin(cmd.OutOrStdout(), m.(*pb.Origin), clock()) //nolint:forcetypeassert // asked for above
			})
		}),
	}
	f.declare(cmd)
	cmd.ValidArgsFunction = completeArgs(f.originNames())
	return cmd
}

func printOrigin(w io.Writer, o *pb.Origin, at time.Time) {
	most := columns(w)
	say := func(format string, args ...any) {
		sayf(w, "%s\n", fitted(plain(fmt.Sprintf(format, args...)), most))
	}
	say("%s  %s", o.GetOrigin(), stateText(o))
	if o.GetForced() != nil {
		say("  %s", forcedText(o.GetForced()))
	}
	if o.GetTroubleTime() != nil {
		say("  last trouble  %s, %s ago", instant(o.GetTroubleTime()), age(o.GetTroubleTime(), at))
	}
	if l := o.GetLatency(); l != nil {
		say("  latency       p50 %s, p95 %s, p99 %s, of %d answers", brief(l.GetP50().AsDuration()), brief(l.GetP95().AsDuration()),
			brief(l.GetP99().AsDuration()), l.GetSamples())
	}
	for _, s := range o.GetScopes() {
		say("under %s", s.GetPolicy())
		say("  breaker       %s", breakerText(s.GetBreaker(), at))
		say("  budget        %s", scopeBudgetText(s.GetBudget()))
		for _, c := range s.GetBudget().GetCallers() {
			say("    %s  %d used", c.GetCaller(), c.GetUsed())
		}
		say("  concurrency   %s in flight", concurrencyText(s.GetConcurrency()))
		for _, h := range s.GetHolds() {
			say("  hold          %s for %s, until %s", holdWord(h.GetKind()), span(h.GetEndTime().AsTime().Sub(at)), instant(h.GetEndTime()))
		}
	}
	if len(o.GetTransitions()) > 0 {
		say("moves of its breakers, the latest first")
	}
	for _, t := range o.GetTransitions() {
		text := instant(t.GetTime()) + "  " + stateWord(t.GetFrom())
		if t.GetTo() != t.GetFrom() {
			text += " → " + stateWord(t.GetTo())
		}
		text += "  " + t.GetCause()
		if t.GetOpenTime() != nil {
			text += ", for " + brief(t.GetOpenTime().AsDuration())
		}
		say("  %s", text)
	}
}

// breakerText tells one breaker.
func breakerText(b *pb.BreakerStatus, at time.Time) string {
	parts := []string{stateWord(b.GetState())}
	if b.GetSince() != nil {
		parts[0] += " for " + age(b.GetSince(), at)
	}
	if b.GetMode() > pb.BreakerMode_BREAKER_MODE_AUTO {
		parts = append(parts, modeWord(b.GetMode()))
	}
	if b.GetNextProbeTime() != nil {
		parts = append(parts, "next probe in "+span(b.GetNextProbeTime().AsTime().Sub(at)))
	}
	if b.GetProbing() {
		parts = append(parts, "a probe is under way")
	}
	if b.GetRamping() {
		parts = append(parts, "admissions still rising")
	}
	parts = append(parts, fmt.Sprintf("%d of %d failed", b.GetFailed(), b.GetAttempts()))
	for _, n := range []struct {
		count uint32
		what  string
	}{{b.GetSlow(), "slow"}, {b.GetExcused(), "time-outs excused"}, {b.GetConsecutiveFailures(), "failures in a row"}} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	if n := b.GetDistinctCallers(); n > 0 {
		parts = append(parts, plural(n, "caller"))
	}
	return strings.Join(parts, ", ")
}

// scopeBudgetText tells one budget.
func scopeBudgetText(b *pb.BudgetStatus) string {
	text := fmt.Sprintf("%s left of %s", tenths(b.GetLeft()), tenths(b.GetAllowance()))
	if b.GetFirsts() > 0 || b.GetUsed() > 0 {
		text += fmt.Sprintf(", %d used beside %d first attempts", b.GetUsed(), b.GetFirsts())
	}
	return text + fmt.Sprintf("; %d granted and %d refused in all", b.GetGrantedTotal(), b.GetRefusedTotal())
}

func holdWord(k pb.HoldKind) string {
	switch k {
	case pb.HoldKind_HOLD_KIND_ALL:
		return "everybody"
	case pb.HoldKind_HOLD_KIND_CREDENTIAL:
		return "who uses one credential"
	}
	return word(k.String(), "HOLD_KIND_")
}
