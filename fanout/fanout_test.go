package fanout_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/fanout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// takes is a branch that ends so after that time, or is cancelled before.
func takes(d time.Duration, o call.Outcome) fanout.Branch {
	return fanout.Branch{Work: time.Now().Add(time.Hour), Call: func(ctx context.Context) call.Final {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return call.Final{Outcome: o}
		case <-ctx.Done():
			return call.Final{Outcome: call.OutcomeCancelled, Effect: call.EffectUnknown}
		}
	}}
}

func optional(b fanout.Branch) fanout.Branch {
	b.Optional = true
	return b
}

const (
	ok   = call.OutcomeSuccess
	bad  = call.OutcomeHTTPError
	gone = call.OutcomeCancelled
)

func TestModes(t *testing.T) {
	const s = time.Second
	rows := []struct {
		name     string
		mode     fanout.Mode
		quorum   int
		parallel int
		branches func() []fanout.Branch
		outcome  fanout.Outcome
		ends     []call.Outcome
		took     time.Duration
	}{
		{"all succeed", fanout.ModeAll, 0, 0, func() []fanout.Branch { return []fanout.Branch{takes(s, ok), takes(2*s, ok)} }, fanout.OutcomeComplete, []call.Outcome{ok, ok}, 2 * s},
		{"a required one fails", fanout.ModeAll, 0, 0, func() []fanout.Branch { return []fanout.Branch{takes(s, bad), takes(9*s, ok)} }, fanout.OutcomeFailed, []call.Outcome{bad, gone}, s},
		{"an optional one fails", fanout.ModeAll, 0, 0, func() []fanout.Branch { return []fanout.Branch{optional(takes(s, bad)), takes(2*s, ok)} }, fanout.OutcomePartial, []call.Outcome{bad, ok}, 2 * s},
		{"a required one fails before the others begin", fanout.ModeAll, 0, 1, func() []fanout.Branch { return []fanout.Branch{takes(s, bad), takes(s, ok), takes(s, ok)} }, fanout.OutcomeFailed, []call.Outcome{bad, gone, gone}, s},
		{"best effort, all", fanout.ModeBestEffort, 0, 0, func() []fanout.Branch { return []fanout.Branch{takes(s, ok), takes(s, ok)} }, fanout.OutcomeComplete, []call.Outcome{ok, ok}, s},
		{"best effort, some", fanout.ModeBestEffort, 0, 0, func() []fanout.Branch { return []fanout.Branch{takes(s, bad), takes(3*s, ok)} }, fanout.OutcomePartial, []call.Outcome{bad, ok}, 3 * s},
		{"best effort, none; optional or not", fanout.ModeBestEffort, 0, 0, func() []fanout.Branch { return []fanout.Branch{takes(s, bad), optional(takes(2*s, bad))} }, fanout.OutcomeFailed, []call.Outcome{bad, bad}, 2 * s},
		{"the first success", fanout.ModeFirstSuccess, 0, 0, func() []fanout.Branch { return []fanout.Branch{takes(9*s, ok), takes(s, bad), takes(2*s, ok)} }, fanout.OutcomeComplete, []call.Outcome{gone, bad, ok}, 2 * s},
		{"no success", fanout.ModeFirstSuccess, 0, 0, func() []fanout.Branch { return []fanout.Branch{takes(s, bad), takes(2*s, bad)} }, fanout.OutcomeFailed, []call.Outcome{bad, bad}, 2 * s},
		{"a quorum", fanout.ModeQuorum, 2, 0, func() []fanout.Branch { return []fanout.Branch{takes(s, ok), takes(9*s, ok), takes(2*s, ok)} }, fanout.OutcomeComplete, []call.Outcome{ok, gone, ok}, 2 * s},
		{"a quorum that cannot be had any more", fanout.ModeQuorum, 2, 0, func() []fanout.Branch { return []fanout.Branch{takes(s, bad), takes(2*s, bad), takes(9*s, ok)} }, fanout.OutcomeFailed, []call.Outcome{bad, bad, gone}, 2 * s},
		{"two at once", fanout.ModeBestEffort, 0, 2, func() []fanout.Branch {
			return []fanout.Branch{takes(s, ok), takes(3*s, ok), takes(s, ok), takes(s, ok)}
		}, fanout.OutcomeComplete, []call.Outcome{ok, ok, ok, ok}, 3 * s},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				p := fanout.Plan{Mode: r.mode, Quorum: r.quorum, MaxParallel: r.parallel, Arrived: start, Branches: r.branches()}
				outcome, finals := p.Run(t.Context())
				if took := time.Since(start); took != r.took || outcome != r.outcome {
					t.Errorf("%v after %v, want %v after %v", outcome, took, r.outcome, r.took)
				}
				for i := range finals {
					if finals[i].Outcome != r.ends[i] {
						t.Errorf("branch %d: %v, want %v", i, finals[i].Outcome, r.ends[i])
					}
				}
			})
		})
	}
}

func TestBranchWithoutTimeIsNeverBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := takes(time.Second, ok)
		late.Work = time.Now().Add(time.Second)
		p := fanout.Plan{Mode: fanout.ModeBestEffort, MaxParallel: 1, Arrived: time.Now(), Branches: []fanout.Branch{takes(time.Second, ok), late}}
		outcome, finals := p.Run(t.Context())
		f := finals[1]
		if outcome != fanout.OutcomePartial || f.Outcome != call.OutcomeDeadlineExceeded || f.Effect != call.EffectNone || len(f.Attempts) != 0 || f.Elapsed != time.Second {
			t.Errorf("%v, %+v", outcome, f)
		}
	})
}

func TestCallerWhoGoesEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := fanout.Plan{Mode: fanout.ModeBestEffort, MaxParallel: 1, Arrived: time.Now(), Branches: []fanout.Branch{takes(time.Minute, ok), takes(time.Minute, ok)}}
		outcome, finals := p.Run(ctx)
		if outcome != fanout.OutcomeFailed || finals[0].Effect != call.EffectUnknown || finals[1].Outcome != gone || finals[1].Effect != call.EffectNone {
			t.Errorf("%v, %+v", outcome, finals)
		}
	})
}

func TestPanicOfABranchIsTheFanOuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crash := fanout.Branch{Work: time.Now().Add(time.Hour), Call: func(context.Context) call.Final { panic("boom") }}
		p := fanout.Plan{Mode: fanout.ModeBestEffort, Arrived: time.Now(), Branches: []fanout.Branch{takes(time.Hour, ok), crash}}
		start := time.Now()
		defer func() {
			if v := recover(); v != "boom" || time.Since(start) != 0 {
				t.Errorf("recovered %v after %v", v, time.Since(start))
			}
		}()
		p.Run(t.Context())
	})
}

// Against a plain account: never more at once than allowed, all told, and the outcome follows from how the branches ended.
func TestOutcomeFollowsFromTheBranches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(rt, "branches")
		mode := fanout.Mode(rapid.IntRange(1, 4).Draw(rt, "mode"))
		quorum := rapid.IntRange(1, n).Draw(rt, "quorum")
		parallel := rapid.IntRange(0, n).Draw(rt, "parallel")
		lengths := rapid.SliceOfN(rapid.IntRange(0, 5), n, n).Draw(rt, "lengths")
		fails := rapid.SliceOfN(rapid.Bool(), n, n).Draw(rt, "fails")
		spare := rapid.SliceOfN(rapid.Bool(), n, n).Draw(rt, "optional")
		synctest.Test(t, func(t *testing.T) {
			p := fanout.Plan{Mode: mode, Quorum: quorum, MaxParallel: parallel, Arrived: time.Now()}
			for i := range n {
				o := ok
				if fails[i] {
					o = bad
				}
				b := takes(time.Duration(lengths[i])*time.Second, o)
				b.Optional = spare[i]
				p.Branches = append(p.Branches, b)
			}
			outcome, finals := p.Run(t.Context())
			good, required := 0, true
			for i := range finals {
				switch {
				case finals[i].Outcome == ok:
					good++
				case !spare[i]:
					required = false
				}
			}
			want := fanout.OutcomeFailed
			switch {
			case mode == fanout.ModeAll && good == n, mode == fanout.ModeBestEffort && good == n,
				mode == fanout.ModeFirstSuccess && good > 0, mode == fanout.ModeQuorum && good >= quorum:
				want = fanout.OutcomeComplete
			case mode == fanout.ModeAll && required, mode == fanout.ModeBestEffort && good > 0:
				want = fanout.OutcomePartial
			}
			if outcome != want {
				rt.Fatal(fmt.Sprintf("%v with %+v, want %v", outcome, finals, want))
			}
		})
	})
}
