package engine_test

import (
	"context"
	"io"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

// streaming walks a plan of a streamed call to its end. What an attempt gives is asked for with the plan as it stands then.
func streaming(t *rapid.T, c *call.Call, p *policy.Effective, result func(plan *engine.Plan, now time.Time, a *call.Attempt) (call.Result, time.Duration)) []engine.Step {
	now := c.Arrived
	plan := engine.NewPlan(c, p, guard.New(guard.Config{}), func() float64 { return 0.5 })
	var all []engine.Step
	for ev := (engine.Event{Kind: engine.EventStarted}); ; {
		step := plan.Next(now, ev)
		if step.Attempt != nil {
			copied := *step.Attempt
			step.Attempt = &copied
		}
		all = append(all, step)
		switch step.Kind {
		case engine.StepFinal:
			return all
		case engine.StepWithdraw:
			ev = engine.Event{Kind: engine.EventGranted}
		case engine.StepAdmit:
			ev = engine.Event{Kind: engine.EventAdmitted, HedgeAt: now.Add(time.Millisecond)}
		case engine.StepWait:
			now = step.Until
			ev = engine.Event{Kind: engine.EventWaited}
		case engine.StepSend:
			if !step.HedgeAt.IsZero() {
				t.Fatal("a stream is hedged")
			}
			r, took := result(plan, now, step.Attempt)
			now = now.Add(took)
			ev = engine.Event{Kind: engine.EventResult, Number: step.Attempt.Number, Result: &r}
		default:
			t.Fatalf("step %d", step.Kind)
		}
	}
}

// Whoever got a part of an answer gets no other: whatever comes of it, no attempt follows.
func TestNothingFollowsAForwardedAnswer(t *testing.T) {
	base, ctx := defaults(t), t.Context()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWalk(t, base)
		c := *w.call
		c.Body = nil
		c.Stream = &call.Stream{Upload: call.NewUpload(func(context.Context) ([]byte, error) { return []byte("body"), io.EOF },
			rapid.Uint64Range(3, 4).Draw(t, "kept"))}
		forwarded := uint32(0)
		steps := streaming(t, &c, w.policy, func(plan *engine.Plan, now time.Time, a *call.Attempt) (call.Result, time.Duration) {
			if forwarded > 0 {
				t.Fatalf("attempt %d after a forwarded answer", a.Number)
			}
			if rapid.Bool().Draw(t, "read") {
				_, _ = c.Stream.Upload.Open().Next(ctx)
			}
			r := rapid.SampledFrom(possible()).Draw(t, "result")
			switch {
			case r.Evidence == call.EvidenceAnswered:
				r.Forwarded = plan.WouldEnd(now, a.Number, r.Response) || rapid.Bool().Draw(t, "more than is held")
			case r.Status > 0:
				r.Forwarded = rapid.Bool().Draw(t, "begun")
			}
			if r.Forwarded {
				forwarded = a.Number
			}
			return r, time.Duration(rapid.IntRange(0, 300).Draw(t, "took")) * time.Millisecond
		})
		final := steps[len(steps)-1].Final
		if n := len(final.Attempts); forwarded > 0 && int(forwarded) != n {
			t.Fatalf("attempt %d of %d was forwarded", forwarded, n)
		}
		if n := len(final.Attempts); forwarded > 0 && final.Attempts[n-1].Decision.Verdict != call.VerdictStop {
			t.Fatalf("%+v", final.Attempts[n-1].Decision)
		}
	})
}

// To ask what a plan would do with an answer changes nothing, and tells what it does with that answer.
func TestAskingIsALook(t *testing.T) {
	base := defaults(t)
	rapid.Check(t, func(t *rapid.T) {
		w := drawWalk(t, base)
		c := *w.call
		c.Body, c.Stream = nil, &call.Stream{}
		results := possible()
		which := rapid.SliceOfN(rapid.IntRange(0, len(results)-1), 8, 8).Draw(t, "results")
		ended := map[uint32]bool{}
		walk := func(asks bool) []engine.Step {
			return streaming(t, &c, w.policy, func(plan *engine.Plan, now time.Time, a *call.Attempt) (call.Result, time.Duration) {
				r := results[which[int(a.Number)%len(which)]]
				for i := range results {
					if other := results[i].Response; asks && other != nil {
						plan.WouldEnd(now, a.Number, other)
					}
				}
				if r.Response != nil {
					ended[a.Number] = plan.WouldEnd(now, a.Number, r.Response)
				}
				return r, 0
			})
		}
		asked := walk(true)
		if silent := walk(false); !reflect.DeepEqual(asked, silent) {
			t.Fatalf("asked\n%+v\nelse\n%+v", asked, silent)
		}
		final := asked[len(asked)-1].Final
		for number, would := range ended {
			if is := int(number) == len(final.Attempts) && asked[len(asked)-2].Kind == engine.StepSend; would != is {
				t.Fatalf("attempt %d would end the call: %v; it did: %v", number, would, is)
			}
		}
	})
}

// An answer that ends a call ends it alike whether it was forwarded as it came or not: a redirect into nowhere is none the better for it.
func TestAForwardedAnswerEndsTheCallAsAnyOther(t *testing.T) {
	base := defaults(t)
	results := possible()
	for _, location := range []string{"/", "http://api.example.com/plain", "https://127.0.0.1/", "https://user@example.com/", "//["} {
		results = append(results, call.Result{Evidence: call.EvidenceAnswered, Status: 302, Response: &call.Response{
			Status: 302, Headers: []call.Header{{Name: "Location", Value: location}},
		}})
	}
	rapid.Check(t, func(t *rapid.T) {
		w := drawWalk(t, base)
		c := *w.call
		c.Body, c.Stream = nil, &call.Stream{}
		which := rapid.SliceOfN(rapid.IntRange(0, len(results)-1), 8, 8).Draw(t, "results")
		walk := func(forwards bool) *call.Final {
			steps := streaming(t, &c, w.policy, func(plan *engine.Plan, now time.Time, a *call.Attempt) (call.Result, time.Duration) {
				r := results[which[int(a.Number)%len(which)]]
				r.Forwarded = forwards && r.Response != nil && plan.WouldEnd(now, a.Number, r.Response)
				return r, 0
			})
			return steps[len(steps)-1].Final
		}
		live, held := walk(true), walk(false)
		if live.Outcome != held.Outcome || live.Reason != held.Reason || live.Effect != held.Effect || live.Next != held.Next || live.Detail != held.Detail {
			t.Fatalf("forwarded: %v, %v, %v, %v, %s\nelse: %v, %v, %v, %v, %s", live.Outcome, live.Reason, live.Effect, live.Next, live.Detail,
				held.Outcome, held.Reason, held.Effect, held.Next, held.Detail)
		}
	})
}

func TestAStreamHasItsOwnTime(t *testing.T) {
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	d := &policy.Deadline{DefaultTimeout: time.Second, MaxTimeout: time.Minute, MaxStreamDuration: time.Hour}
	for _, tt := range []struct {
		name           string
		stream         *call.Stream
		deadline, want time.Duration
	}{
		{"a call", nil, 0, time.Second},
		{"a call with a late deadline", nil, 2 * time.Hour, time.Minute},
		{"a stream", &call.Stream{}, 0, time.Hour},
		{"a stream with a deadline", &call.Stream{}, 10 * time.Minute, 10 * time.Minute},
		{"a stream with a late one", &call.Stream{}, 2 * time.Hour, time.Hour},
	} {
		c := &call.Call{Arrived: at, Stream: tt.stream}
		if tt.deadline > 0 {
			c.Deadline = at.Add(tt.deadline)
		}
		if got := engine.Deadline(c, d).Sub(at); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// What a stream tells of its origin's latency is the time to its head.
func TestAStreamIsAsSlowAsItsHead(t *testing.T) {
	p := defaults(t)
	synctest.Test(t, func(t *testing.T) {
		origins := engine.NewOrigins()
		e := engine.New(streamed{}, traced{}, guard.New(guard.Config{}), origins)
		for range 20 {
			target, err := call.ParseTarget("https://api.example.com/")
			if err != nil {
				t.Fatal(err)
			}
			c := &call.Call{Method: "GET", Target: target, Arrived: time.Now(), Stream: &call.Stream{}}
			if f := e.Do(t.Context(), c, p); f.Outcome != call.OutcomeSuccess {
				t.Fatalf("%+v", f)
			}
		}
		all := origins.Read(time.Now(), func(string) bool { return true })
		if len(all) != 1 || all[0].Latency.P50 != 10*time.Millisecond || all[0].Latency.P99 != 10*time.Millisecond {
			t.Errorf("%+v", all)
		}
	})
}

// streamed gives an answer whose head is there after 10 ms, and its end after a second.
type streamed struct{}

func (streamed) Send(context.Context, *call.Call, *policy.Effective, call.Attempt) call.Result {
	time.Sleep(time.Second)
	return call.Result{
		Evidence: call.EvidenceAnswered, Status: 200, Response: &call.Response{Status: 200}, Forwarded: true, Head: 10 * time.Millisecond,
	}
}
