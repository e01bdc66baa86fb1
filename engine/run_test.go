package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

// upstream is a scripted Sender: attempt n takes the n-th turn. It ends when the attempt's time is up or the caller goes away,
// as egress does.
type upstream struct {
	turns []turn
	sent  []call.Attempt
}

type turn struct {
	takes  time.Duration
	result call.Result
}

func (u *upstream) Send(ctx context.Context, _ *call.Call, _ *policy.Effective, a call.Attempt) call.Result {
	n := len(u.sent)
	u.sent = append(u.sent, a)
	done := time.NewTimer(u.turns[n].takes)
	defer done.Stop()
	late := time.NewTimer(time.Until(a.Deadline))
	defer late.Stop()
	select {
	case <-done.C:
		return u.turns[n].result
	case <-late.C:
		return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureAttemptTimeout, TimedOut: true, Detail: "no answer in time"}
	case <-ctx.Done():
		return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureCancelled, Detail: "the caller went away"}
	}
}

// traced gives attempts fixed ids.
type traced struct{}

func (traced) AttemptStarted(_ context.Context, _ *call.Call, a *call.Attempt) {
	a.TraceParent, a.TraceID, a.SpanID = "tp", "trace", "span"
}

func (traced) AttemptEnded(context.Context, *call.Attempt, engine.Shared) {}
func (traced) Noticed(context.Context, time.Time, engine.Notice)          {}

func answers(after time.Duration, status int) turn {
	return turn{after, call.Result{Evidence: call.EvidenceAnswered, Status: status, Response: &call.Response{Status: status}}}
}

const forever = time.Hour

// worked is the policy of the worked traces of semantics.md §1.
func worked(t *testing.T) *policy.Effective {
	t.Helper()
	p := *defaults(t)
	none := time.Duration(0)
	p.Deadline.CallerMargin = &none
	p.Deadline.MinAttemptTime = 10 * time.Millisecond
	p.Attempt.Timeout = 400 * time.Millisecond
	p.Retry.MaxAttempts = 2
	p.Retry.Backoff = backoff.Config{Base: 200 * time.Millisecond, Multiplier: 1, Cap: 200 * time.Millisecond, Jitter: backoff.JitterNone}
	return &p
}

// do makes a call within a bubble.
func do(ctx context.Context, u *upstream, p *policy.Effective, method string, budget time.Duration) call.Final {
	now := time.Now()
	c := &call.Call{
		Method: method, Arrived: now, Deadline: now.Add(budget),
		Target: call.Target{Scheme: "https", Host: "api.example.com", Port: 443},
	}
	return engine.New(u, traced{}, guard.New(guard.Config{}), engine.NewOrigins()).Do(ctx, c, p)
}

func TestWorkedTraceOfOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{turns: []turn{answers(350*time.Millisecond, 503), answers(300*time.Millisecond, 200)}}
		f := do(t.Context(), u, worked(t), "GET", time.Second)
		if f.Outcome != call.OutcomeSuccess || f.Elapsed != 850*time.Millisecond {
			t.Errorf("%s after %s, want SUCCESS after 850ms", f.Outcome, f.Elapsed)
		}
		if a := u.sent[1]; a.Offset != 550*time.Millisecond || a.Timeout != 400*time.Millisecond || a.Waited != 200*time.Millisecond {
			t.Errorf("the second attempt started at %s with %s after %s, want 550ms, 400ms, 200ms", a.Offset, a.Timeout, a.Waited)
		}
		if a := f.Attempts[0]; a.Duration != 350*time.Millisecond || a.SpanID != "span" || a.TraceID != "trace" {
			t.Errorf("the first attempt took %s and has span %q", a.Duration, a.SpanID)
		}
		if u.sent[0].TraceParent != "tp" {
			t.Error("the attempt's traceparent did not reach the sender")
		}
	})
}

func TestWorkedTraceOf700Milliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{turns: []turn{answers(350*time.Millisecond, 503), answers(300*time.Millisecond, 200)}}
		f := do(t.Context(), u, worked(t), "GET", 700*time.Millisecond)
		if f.Outcome != call.OutcomeDeadlineExceeded || f.Elapsed != 700*time.Millisecond {
			t.Errorf("%s after %s, want DEADLINE_EXCEEDED after 700ms", f.Outcome, f.Elapsed)
		}
		if got := u.sent[1].Timeout; got != 150*time.Millisecond {
			t.Errorf("the second attempt was given %s, want 150ms", got)
		}
	})
}

func TestNothingSleepsWhereNoAttemptFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := worked(t)
		p.Deadline.MinAttemptTime = 200 * time.Millisecond
		u := &upstream{turns: []turn{answers(350*time.Millisecond, 503)}}
		f := do(t.Context(), u, p, "GET", 700*time.Millisecond)
		if f.Outcome != call.OutcomeDeadlineExceeded || f.Elapsed != 350*time.Millisecond || len(u.sent) != 1 {
			t.Errorf("%s after %s and %d attempts, want DEADLINE_EXCEEDED after 350ms and 1", f.Outcome, f.Elapsed, len(u.sent))
		}
	})
}

func TestNothingSleepsAfterTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{turns: []turn{answers(0, 503), answers(0, 503)}}
		f := do(t.Context(), u, worked(t), "GET", time.Minute)
		if f.Outcome != call.OutcomeRetriesExhausted || f.Elapsed != 200*time.Millisecond {
			t.Errorf("%s after %s, want RETRIES_EXHAUSTED after 200ms", f.Outcome, f.Elapsed)
		}
	})
}

func TestCallEndsInTimeBesideAHangingUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := worked(t)
		p.Deadline.CallerMargin = nil
		p.Attempt.Timeout = forever
		u := &upstream{turns: []turn{{takes: forever}}}
		f := do(t.Context(), u, p, "POST", time.Second)
		if f.Outcome != call.OutcomeUnknown || f.Elapsed != 950*time.Millisecond {
			t.Errorf("%s after %s, want UNKNOWN after 950ms", f.Outcome, f.Elapsed)
		}
	})
}

func TestVanishedCallerEndsAnAttemptAndAWait(t *testing.T) {
	for name, u := range map[string]*upstream{
		"attempt": {turns: []turn{{takes: forever}}},
		"wait":    {turns: []turn{answers(0, 503)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(50*time.Millisecond, cancel).Stop()
				f := do(ctx, u, worked(t), "GET", time.Minute)
				if f.Outcome != call.OutcomeCancelled || f.Elapsed != 50*time.Millisecond || len(u.sent) != 1 {
					t.Errorf("%s after %s and %d attempts, want CANCELLED after 50ms and 1", f.Outcome, f.Elapsed, len(u.sent))
				}
			})
		})
	}
}

// With no margin the caller's deadline ends the context at the very moment at which the work ends: that is a deadline, not a
// caller that went away, whatever the context says.
func TestDeadlineIsNoCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
		u := &upstream{turns: []turn{{takes: forever}}}
		f := do(ctx, u, worked(t), "GET", 300*time.Millisecond)
		if f.Outcome != call.OutcomeDeadlineExceeded || f.Elapsed != 300*time.Millisecond {
			t.Errorf("%s after %s, want DEADLINE_EXCEEDED after 300ms", f.Outcome, f.Elapsed)
		}
	})
}

func TestNothingIsSentForACallerWhoIsGoneOnArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		u := &upstream{}
		f := do(ctx, u, worked(t), "GET", time.Second)
		if f.Outcome != call.OutcomeCancelled || f.Effect != call.EffectNone || len(u.sent) != 0 {
			t.Errorf("%s, %s, %d attempts", f.Outcome, f.Effect, len(u.sent))
		}
	})
}
