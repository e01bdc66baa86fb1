package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/memory"
)

// timed is an upstream without HTTP. It answers /200ms/503 after that time with that status, and ends an attempt when its time is up.
type timed struct {
	mu     sync.Mutex // protects the fields below
	limits []uint64
	now    int
	most   int
}

func (u *timed) Send(ctx context.Context, c *call.Call, _ *policy.Effective, a call.Attempt) call.Result {
	u.mu.Lock()
	u.limits = append(u.limits, c.MaxResponseBytes)
	u.now++
	u.most = max(u.most, u.now)
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.now--
	}()
	var takes string
	var code int
	if _, err := fmt.Sscanf(strings.ReplaceAll(c.Target.Path, "/", " "), "%s %d", &takes, &code); err != nil {
		panic(err)
	}
	d, err := time.ParseDuration(takes)
	if err != nil {
		panic(err)
	}
	answer, late := time.NewTimer(d), time.NewTimer(time.Until(a.Deadline))
	defer answer.Stop()
	defer late.Stop()
	select {
	case <-answer.C:
		return answered(code)
	case <-late.C:
		return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureAttemptTimeout}
	case <-ctx.Done():
		return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureCancelled}
	}
}

const timedHost = "http://127.0.0.1"

// tableOf makes a table of these policies alone.
func tableOf(t *testing.T, rules ...policy.Rule) *policy.Table {
	t.Helper()
	table, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// timesOf is a policy of these times.
func timesOf(name string, usual, most, margin time.Duration) policy.Rule {
	r := policy.Rule{Name: name, Revision: 1, File: true}
	r.Retry.Backoff = policy.BackoffRule{Base: new(time.Millisecond), Jitter: new(backoff.JitterNone)}
	r.Deadline.DefaultTimeout, r.Deadline.MaxTimeout, r.Deadline.CallerMargin = &usual, &most, &margin
	return r
}

func defaults(usual, most, margin time.Duration) policy.Rule {
	return timesOf(policy.DefaultName, usual, most, margin)
}

// hasty rules 127.0.0.2.
func hasty(name string, most time.Duration) policy.Rule {
	r := timesOf(name, most, most, 10*time.Millisecond)
	r.Match.Hosts = []string{"127.0.0.2"}
	return r
}

// Each row is one fan-out with exact times: when it ended, and what became of each branch, in the order of the request.
func TestFanOutUnderOneDeadline(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name     string
		mode     pb.FanOutMode
		deadline time.Duration // 0: none
		rules    []policy.Rule
		calls    []string
		change   func(*pb.FanOutRequest)
		want     string
		took     time.Duration
	}{
		{
			"in the order of the request", fanOutBest, time.Second, nil,
			[]string{"/300ms/200", "/100ms/404", "/200ms/200"},
			nil,
			"PARTIAL; a SUCCESS ANSWERED 1; b HTTP_ERROR ANSWERED 1; c SUCCESS ANSWERED 1", 300 * ms,
		},
		{
			"5 % of the time is the margin", fanOutBest, time.Second, nil,
			[]string{"/949ms/200", "/951ms/200"},
			nil,
			"PARTIAL; a SUCCESS ANSWERED 1; b DEADLINE_EXCEEDED UNKNOWN 1", 950 * ms,
		},
		{
			"reserve_after is taken from the parent's time, over the margin", fanOutBest, time.Second, nil,
			[]string{"/600ms/200", "/600ms/200"},
			func(r *pb.FanOutRequest) { r.Branches[1].ReserveAfter = durationpb.New(450 * ms) },
			"PARTIAL; a SUCCESS ANSWERED 1; b DEADLINE_EXCEEDED UNKNOWN 1", 600 * ms,
		},
		{
			"a reserve of all the time", fanOutBest, time.Second, nil,
			[]string{"/600ms/200", "/1ms/200"},
			func(r *pb.FanOutRequest) { r.Branches[1].ReserveAfter = durationpb.New(time.Second) },
			"PARTIAL; a SUCCESS ANSWERED 1; b DEADLINE_EXCEEDED NONE 0", 600 * ms,
		},
		{
			"no deadline: the default's", fanOutBest, 0,
			[]policy.Rule{defaults(2*time.Second, time.Minute, 100*ms)},
			[]string{"/1899ms/200", "/1901ms/200"},
			nil,
			"PARTIAL; a SUCCESS ANSWERED 1; b DEADLINE_EXCEEDED UNKNOWN 1", 1900 * ms,
		},
		{
			"max_timeout of the default bounds all", fanOutBest, 10 * time.Second,
			[]policy.Rule{defaults(time.Second, time.Second, 100*ms)},
			[]string{"/899ms/200", "/901ms/200"},
			nil,
			"PARTIAL; a SUCCESS ANSWERED 1; b DEADLINE_EXCEEDED UNKNOWN 1", 900 * ms,
		},
		{
			"a branch's own policy may bound it more", fanOutBest, time.Second,
			[]policy.Rule{hasty("policies/hasty", 200*ms)},
			[]string{"/600ms/200", "/hasty"},
			func(r *pb.FanOutRequest) { r.Branches[1].Call.Request.Url = "http://127.0.0.2/600ms/200" },
			"PARTIAL; a SUCCESS ANSWERED 1; b DEADLINE_EXCEEDED UNKNOWN 1", 600 * ms,
		},
		{
			"no second attempt has a time of its own", fanOutBest, time.Second, nil,
			[]string{"/450ms/503"},
			nil,
			"FAILED; a DEADLINE_EXCEEDED ANSWERED 2", 901 * ms,
		},
		{
			"one at a time share the time", fanOutBest, time.Second, nil,
			[]string{"/400ms/200", "/400ms/200", "/400ms/200", "/1ms/200"},
			func(r *pb.FanOutRequest) { r.MaxParallel = 1 },
			"PARTIAL; a SUCCESS ANSWERED 1; b SUCCESS ANSWERED 1; c DEADLINE_EXCEEDED UNKNOWN 1; d DEADLINE_EXCEEDED NONE 0", 950 * ms,
		},
		{
			"as worked through in docs/fan-out.md", fanOutAll, time.Second, nil,
			[]string{"/200ms/200", "/300ms/200", "/600ms/200"},
			func(r *pb.FanOutRequest) {
				r.Branches[2].Optional, r.Branches[2].ReserveAfter = true, durationpb.New(400*ms)
			},
			"PARTIAL; a SUCCESS ANSWERED 1; b SUCCESS ANSWERED 1; c DEADLINE_EXCEEDED UNKNOWN 1", 550 * ms,
		},
		{
			"a required failure ends the rest", fanOutAll, time.Second, nil,
			[]string{"/500ms/200", "/100ms/404", "/500ms/200"},
			func(r *pb.FanOutRequest) { r.MaxParallel = 2 },
			"FAILED; a CANCELLED UNKNOWN 1; b HTTP_ERROR ANSWERED 1; c CANCELLED NONE 0", 100 * ms,
		},
		{
			"an optional failure does not", fanOutAll, time.Second, nil,
			[]string{"/500ms/200", "/100ms/404"},
			func(r *pb.FanOutRequest) { r.Branches[1].Optional = true },
			"PARTIAL; a SUCCESS ANSWERED 1; b HTTP_ERROR ANSWERED 1", 500 * ms,
		},
		{
			"optional counts in ALL only", fanOutBest, time.Second, nil,
			[]string{"/100ms/404"},
			func(r *pb.FanOutRequest) { r.Branches[0].Optional = true },
			"FAILED; a HTTP_ERROR ANSWERED 1", 100 * ms,
		},
		{
			"the first success", fanOutFirst, time.Second, nil,
			[]string{"/500ms/200", "/100ms/404", "/200ms/200"},
			nil,
			"COMPLETE; a CANCELLED UNKNOWN 1; b HTTP_ERROR ANSWERED 1; c SUCCESS ANSWERED 1", 200 * ms,
		},
		{
			"a POST that lost was sent", fanOutFirst, time.Second, nil,
			[]string{"/500ms/200", "/200ms/200"},
			func(r *pb.FanOutRequest) { r.Branches[0].Call.Request.Method = "POST" },
			"COMPLETE; a CANCELLED UNKNOWN 1; b SUCCESS ANSWERED 1", 200 * ms,
		},
		{
			"a quorum", fanOutQuorum, time.Second, nil,
			[]string{"/500ms/200", "/300ms/200", "/100ms/200"},
			func(r *pb.FanOutRequest) { r.Quorum = 2 },
			"COMPLETE; a CANCELLED UNKNOWN 1; b SUCCESS ANSWERED 1; c SUCCESS ANSWERED 1", 300 * ms,
		},
		{
			"a quorum out of reach", fanOutQuorum, time.Second, nil,
			[]string{"/500ms/200", "/100ms/404", "/200ms/404"},
			func(r *pb.FanOutRequest) { r.Quorum = 2 },
			"FAILED; a CANCELLED UNKNOWN 1; b HTTP_ERROR ANSWERED 1; c HTTP_ERROR ANSWERED 1", 200 * ms,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, setup{memory: true, sender: &timed{}})
				if tt.rules != nil {
					r.service.Replace(tableOf(t, tt.rules...))
				}
				ctx := t.Context()
				if tt.deadline != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				var calls []*pb.CallRequest
				for _, path := range tt.calls {
					calls = append(calls, get(timedHost+path))
				}
				req := branches(tt.mode, calls...)
				if tt.change != nil {
					tt.change(req)
				}
				begun := time.Now()
				resp, err := r.calls.FanOut(ctx, req)
				if took := time.Since(begun); err != nil || told(resp) != tt.want || took != tt.took {
					t.Errorf("%v after %s:\n%s\nwant after %s:\n%s", err, took, told(resp), tt.took, tt.want)
				}
				if load := r.server.Load(); load.Calls != 0 || load.Bytes != 0 {
					t.Errorf("still taken: %+v", load)
				}
			})
		})
	}
}

// The wait for a slot of the origin is the branch's own time: the attempt after it is shorter by as much.
func TestFanOutBranchesQueueOnTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := policy.Rule{Name: policy.DefaultName, Revision: 1, File: true}
		rule.Concurrency.MaxInFlight = new(uint32(1))
		r := start(t, setup{memory: true, sender: &timed{}})
		r.service.Replace(tableOf(t, rule))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := r.calls.FanOut(ctx, branches(fanOutBest, get(timedHost+"/90ms/200"), get(timedHost+"/90ms/200"), get(timedHost+"/90ms/200")))
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, result := range resp.GetResults() {
			for _, a := range result.GetResponse().GetAttempts() {
				lines = append(lines, fmt.Sprintf("queued %s, given %s, at %s", a.GetQueued().AsDuration(), a.GetTimeout().AsDuration(), a.GetOffset().AsDuration()))
			}
			if len(result.GetResponse().GetAttempts()) == 0 { // a tenth of 950ms is what a branch waits at most
				lines = append(lines, fmt.Sprintf("%s after %s", result.GetResponse().GetOutcome(), result.GetResponse().GetElapsed().AsDuration()))
			}
		}
		slices.Sort(lines) // which of them is first is chance
		want := []string{"OUTCOME_OVERLOADED after 95ms", "queued 0s, given 950ms, at 0s", "queued 90ms, given 860ms, at 90ms"}
		if !slices.Equal(lines, want) {
			t.Errorf("%q, want %q", lines, want)
		}
	})
}

func TestFanOutRunsNoMoreAtOnceThanAllowed(t *testing.T) {
	for parallel, want := range map[uint32]int{0: 5, 1: 1, 3: 3, 1 << 31: 5} {
		synctest.Test(t, func(t *testing.T) {
			up := &timed{}
			r := start(t, setup{memory: true, sender: up})
			var calls []*pb.CallRequest
			for range 5 {
				calls = append(calls, get(timedHost+"/10ms/200"))
			}
			req := branches(fanOutAll, calls...)
			req.MaxParallel = parallel
			if resp, err := r.calls.FanOut(t.Context(), req); err != nil || resp.GetOutcome() != pb.FanOutOutcome_FAN_OUT_OUTCOME_COMPLETE || up.most != want {
				t.Errorf("max_parallel %d: %v, %v, %d at once", parallel, resp.GetOutcome(), err, up.most)
			}
		})
	}
}

// A branch may have 3 MiB divided by all of them for its answer, or less where it says so.
func TestFanOutAnswersFitOneReply(t *testing.T) {
	up := &timed{}
	r := start(t, setup{sender: up})
	calls := make([]*pb.CallRequest, 4)
	for i, own := range []uint64{0, 1000, 3 << 20, 3 << 18} {
		calls[i] = get(timedHost + "/0s/200")
		calls[i].MaxResponseBytes = own
	}
	req := branches(fanOutAll, calls...)
	req.MaxParallel = 1 // in order
	if _, err := r.calls.FanOut(within(t), req); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{3 << 18, 1000, 3 << 18, 3 << 18}; !slices.Equal(up.limits, want) {
		t.Errorf("limits %d, want %d", up.limits, want)
	}
}

// Losers that never began say so, and that it was the fan-out that ended them, not their caller.
func TestFanOutLosersNameTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, setup{memory: true, sender: &timed{}})
		req := branches(fanOutFirst, get(timedHost+"/1s/200"), get(timedHost+"/10ms/200"), get(timedHost+"/10ms/200"))
		req.MaxParallel = 2
		resp, err := r.calls.FanOut(t.Context(), req)
		if err != nil || told(resp) != "COMPLETE; a CANCELLED UNKNOWN 1; b SUCCESS ANSWERED 1; c CANCELLED NONE 0" {
			t.Fatalf("%v, %v", resp, err)
		}
		for _, i := range []int{0, 2} {
			lost := resp.GetResults()[i].GetResponse()
			if !strings.HasPrefix(lost.GetDetail(), "the fan-out was over before this branch") || lost.GetReason() != pb.Reason_REASON_CANCELLED ||
				lost.GetElapsed().AsDuration() != 10*time.Millisecond || lost.GetPolicy() == "" || lost.GetBrokerId() == "" || lost.GetTraceId() == "" || !lost.GetRetrySafe() || lost.GetNext() != pb.NextStep_NEXT_STEP_RETRY {
				t.Errorf("%s: %v", resp.GetResults()[i].GetId(), lost)
			}
		}
	})
}

// slowLedger fails after a while, whoever waits for it.
type slowLedger struct{ operation.Ledger }

func (slowLedger) Begin(context.Context, *operation.Record) (operation.Record, bool, error) {
	time.Sleep(100 * time.Millisecond)
	return operation.Record{}, false, errBroken
}

// A branch that loses while the ledger is asked was cancelled: the broker is not full.
func TestFanOutLoserAtTheLedgerIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, setup{memory: true, sender: &timed{}, ledger: slowLedger{memory.NewLedger(time.Now())}})
		resp, err := r.calls.FanOut(t.Context(), branches(fanOutFirst, post(timedHost+"/1s/200", "op"), get(timedHost+"/10ms/200")))
		if err != nil || told(resp) != "COMPLETE; a CANCELLED NONE 0; b SUCCESS ANSWERED 1" {
			t.Fatalf("%v, %v", told(resp), err)
		}
		if a := resp.GetResults()[0].GetResponse(); a.GetReason() != pb.Reason_REASON_CANCELLED || a.GetOperationId() != "op" || !a.GetRetrySafe() || a.GetRetryAfter() != nil {
			t.Errorf("%v", a)
		}
	})
}

func TestFanOutBranchOverTheProcessLimitIsOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, setup{memory: true, sender: &timed{}, limits: Limits{MaxCalls: 2}})
		resp, err := r.calls.FanOut(t.Context(), branches(fanOutBest, get(timedHost+"/10ms/200"), get(timedHost+"/10ms/200"), get(timedHost+"/10ms/200")))
		if err != nil || resp.GetOutcome() != pb.FanOutOutcome_FAN_OUT_OUTCOME_PARTIAL {
			t.Fatalf("%v, %v", resp, err)
		}
		over := 0
		for _, result := range resp.GetResults() {
			b := result.GetResponse()
			if b.GetOutcome() == pb.Outcome_OUTCOME_SUCCESS {
				continue
			}
			over++
			if b.GetOutcome() != pb.Outcome_OUTCOME_OVERLOADED || b.GetEffect() != pb.Effect_EFFECT_NONE || len(b.GetAttempts()) != 0 || b.GetReason() != pb.Reason_REASON_CONCURRENCY_LIMIT ||
				!b.GetRetrySafe() || b.GetNext() != pb.NextStep_NEXT_STEP_RETRY || b.GetRetryAfter().AsDuration() != time.Second || !strings.Contains(b.GetDetail(), "--max-calls") {
				t.Errorf("%v", b)
			}
		}
		if over != 1 {
			t.Errorf("%d of 3 refused where 2 fit", over)
		}
	})
}
