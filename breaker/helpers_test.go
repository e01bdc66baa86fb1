package breaker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

// zero is when every test begins.
var zero = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func ms(n int) time.Time { return zero.Add(time.Duration(n) * time.Millisecond) }

// patient is an attempt fit for everything.
func patient(caller string) breaker.Attempt {
	return breaker.Attempt{Caller: caller, Repeatable: true, Timeout: 10 * time.Second}
}

// cut is an attempt whose caller left it so little time.
func cut(caller string, timeout time.Duration) breaker.Attempt {
	return breaker.Attempt{Caller: caller, Repeatable: true, Timeout: timeout, Cut: true}
}

var (
	ok        = breaker.Result{Kind: breaker.OK, Latency: time.Millisecond}
	status503 = breaker.Result{Kind: breaker.Failed, Answered: true, Latency: time.Millisecond}
	lost      = breaker.Result{Kind: breaker.Failed, Latency: time.Millisecond}
	timeout   = breaker.Result{Kind: breaker.Failed, TimedOut: true, Latency: time.Second}
	status429 = breaker.Result{Kind: breaker.Throttled, Latency: time.Millisecond}
	ignored   = breaker.Result{}
)

// usual are the defaults of the policy.
func usual() breaker.Config {
	return breaker.Config{
		ConsecutiveFailures: 5,
		FailureRate:         0.5,
		MinRequests:         20,
		Window:              10 * time.Second,
		OpenBase:            time.Second,
		OpenCap:             time.Minute,
		OpenJitter:          0.5,
		CloseAfter:          1,
		SlowCallRate:        0.8,
		MinDistinctCallers:  2,
		TimeoutFloor:        time.Second,
	}
}

// plain has the consecutive rule alone, three in a row, and no jitter.
func plain() breaker.Config {
	c := usual()
	c.ConsecutiveFailures, c.MinRequests, c.OpenJitter = 3, 100000, 0
	return c
}

// rates has no consecutive rule, and a window of ten seconds that speaks from ten attempts.
func rates() breaker.Config {
	c := plain()
	c.ConsecutiveFailures, c.MinRequests = 0, 10
	return c
}

func admit(t *testing.T, b *breaker.Breaker, now time.Time, a breaker.Attempt) breaker.Ticket {
	t.Helper()
	ticket, err := b.Admit(now, a, 0)
	if err != nil {
		t.Fatalf("refused at %v: %v", now.Sub(zero), err)
	}
	return ticket
}

func refused(t *testing.T, b *breaker.Breaker, now time.Time, a breaker.Attempt, reason breaker.Refusal, after time.Duration) {
	t.Helper()
	ticket, err := b.Admit(now, a, 0)
	var no *breaker.RefusedError
	if !errors.As(err, &no) {
		t.Fatalf("admitted at %v (probe: %v), want refused: %v", now.Sub(zero), ticket.Probe(), reason)
	}
	if no.Error() != reason.String() || no.Reason != reason || no.RetryAfter != after {
		t.Fatalf("refused at %v: %q after %v, want %q after %v", now.Sub(zero), no.Reason, no.RetryAfter, reason, after)
	}
}

// attempt admits and settles at one instant; the cause is 0 when nothing moved.
func attempt(t *testing.T, b *breaker.Breaker, now time.Time, a breaker.Attempt, r breaker.Result) breaker.Cause {
	t.Helper()
	moved, _ := admit(t, b, now, a).Settle(now, r, 0)
	return moved.Cause
}

func wantState(t *testing.T, b *breaker.Breaker, now time.Time, want breaker.State) {
	t.Helper()
	if got := b.State(now); got != want {
		t.Fatalf("%v at %v, want %v", got, now.Sub(zero), want)
	}
	if got := b.Snapshot(now).State; got != want {
		t.Fatalf("the snapshot says %v at %v, want %v", got, now.Sub(zero), want)
	}
}
