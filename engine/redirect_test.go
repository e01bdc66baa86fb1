package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

// following is a policy that follows a few redirects.
func following(t *testing.T) *policy.Effective {
	t.Helper()
	p := worked(t)
	p.Redirects.MaxHops = 5
	return p
}

func location(code int, to string) call.Result {
	return status(code, call.Header{Name: "Location", Value: to})
}

// askedTo is a call with a body and with fields of every kind.
func askedTo(t *testing.T, method, url string) *call.Call {
	t.Helper()
	target, err := call.ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := &call.Call{Method: method, Target: target, Caller: "one", Arrived: now, Deadline: now.Add(time.Minute), Body: []byte("body")}
	for _, name := range []string{
		"Content-Type", "Content_Language", "Digest", "Last-Modified", "Content-Encoding", "Content-Location", "Idempotency-Key",
		"X-Kept", "Authorization", "Cookie", "x-api-KEY", "My-Token", "X-Client-Secret", "X-Auth", "X-Password", "Signature-Input", "X-Set",
		"referer", // on no hop
	} {
		c.Headers = append(c.Headers, call.Header{Name: name, Value: "v"})
	}
	return c
}

func names(c *call.Call) []string {
	var all []string
	for _, h := range c.Headers {
		all = append(all, h.Name)
	}
	return all
}

// TestRedirectsAreRewritten plays every row of the reference table, within the origin and across.
func TestRedirectsAreRewritten(t *testing.T) {
	text, err := os.ReadFile("testdata/redirect_rewrite.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Rows []struct {
			Status     int    `json:"status"`
			Method     string `json:"method"`
			NextMethod string `json:"next_method"`
			Body       string `json:"body"`
			Origin     string `json:"origin"`
			Followed   *bool  `json:"followed"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) < 39 {
		t.Fatalf("%d rows", len(table.Rows))
	}
	for _, row := range table.Rows {
		for _, to := range []string{"/new", "https://other.example.com/new"} {
			t.Run(fmt.Sprint(row.Status, row.Method, to), func(t *testing.T) {
				if row.Method == "any" {
					row.Method = "GET"
				}
				within := to == "/new"
				followed := row.Followed == nil && (within || row.Origin == "")
				c := askedTo(t, row.Method, "https://api.example.com/old")
				plan := engine.NewPlan(c, following(t), guard.New(guard.Config{}), func() float64 { return 0 })
				plan.Next(c.Arrived, engine.Event{Kind: engine.EventStarted})
				plan.Next(c.Arrived, engine.Event{Kind: engine.EventAdmitted})
				result := location(row.Status, to)
				step := plan.Next(c.Arrived, engine.Event{Kind: engine.EventResult, Number: 1, Result: &result})
				if got := step.Kind == engine.StepAdmit; got != followed {
					t.Fatalf("followed: %v, want %v", got, followed)
				}
				hop := plan.Request()
				if !followed {
					if f := step.Final; f.Outcome != call.OutcomeSuccess || f.Response.Status != row.Status {
						t.Errorf("%s %v", f.Outcome, f.Response)
					}
					return
				}
				if hop.Method != row.NextMethod || (len(hop.Body) == 0) != (row.Body == "dropped") || hop.Foreign == within {
					t.Errorf("%s with a body of %d bytes, foreign: %v", hop.Method, len(hop.Body), hop.Foreign)
				}
				var want []string
				if row.Body != "dropped" {
					want = append(want, "Content-Type", "Content_Language", "Digest", "Last-Modified", "Content-Encoding", "Content-Location")
					if within {
						want = append(want, "Idempotency-Key")
					}
				}
				want = append(want, "X-Kept")
				if within {
					want = append(want, "Authorization", "Cookie", "x-api-KEY", "My-Token", "X-Client-Secret", "X-Auth", "X-Password", "Signature-Input")
				}
				want = append(want, "X-Set")
				if got := names(hop); !slices.Equal(got, want) {
					t.Errorf("fields %v\nwant   %v", got, want)
				}
				if !slices.Equal(names(c), names(askedTo(t, row.Method, "https://api.example.com/old"))) || len(c.Body) == 0 {
					t.Error("the caller's own request was changed")
				}
			})
		}
	}
}

// What was left behind at the border of an origin stays behind, on the way back as well; so does what the policy would add.
func TestCredentialsDoNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := following(t)
		p.Headers.Set = []call.Header{{Name: "X_Set", Value: "policy"}}
		p.Credentials = []policy.Credential{{Header: "X-Kept", Secret: "s", Hosts: []string{"api.example.com"}}}
		var sent []*call.Call
		hops := []string{"https://other.example.com/1", "https://api.example.com/2", "/3"}
		e := engine.New(senderFunc(func(_ context.Context, c *call.Call, a call.Attempt) call.Result {
			sent = append(sent, c)
			if n := int(a.Number) - 1; n < len(hops) {
				return location(302, hops[n])
			}
			return status(200)
		}), traced{}, guard.New(guard.Config{}), engine.NewOrigins())
		f := e.Do(t.Context(), askedTo(t, "GET", "https://api.example.com/old"), p)
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 4)
		for i, c := range sent[1:] {
			if got := names(c); !c.Foreign || slices.ContainsFunc(got, func(name string) bool {
				return slices.Contains([]string{"Authorization", "Cookie", "X-Set", "X-Kept", "Idempotency-Key"}, name)
			}) {
				t.Errorf("hop %d, foreign: %v: %v", i+1, c.Foreign, got)
			}
		}
		for i, origin := range []string{"https://api.example.com:443", "https://other.example.com:443", "https://api.example.com:443", "https://api.example.com:443"} {
			if got := f.Attempts[i].Origin; got != origin {
				t.Errorf("attempt %d went to %s", i+1, got)
			}
		}
	})
}

// A hop is ruled by what the callers of its own origin share, and leaves nothing taken of either.
func TestHopIsRuledByItsOwnOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := following(t)
		p.Retry.MaxAttempts = 1
		p.Breaker.ConsecutiveFailures, p.Breaker.MinDistinctCallers = 1, 1
		p.Concurrency = policy.Concurrency{MaxInFlight: 1}
		s := newShop(t, p, senderFunc(func(_ context.Context, c *call.Call, _ call.Attempt) call.Result {
			if c.Target.Host == "old.example.com" {
				return location(302, "https://sick.example.com/")
			}
			return status(500)
		}))
		ended(t, s.call(t.Context(), "one", "old.example.com", time.Minute), call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, 2)
		f := s.call(t.Context(), "one", "old.example.com", time.Minute)
		ended(t, f, call.OutcomeBreakerOpen, call.ReasonBreakerOpen, 1)
		if f.Response.Status != 302 || f.Effect != call.EffectAnswered {
			t.Errorf("%d, %s", f.Response.Status, f.Effect)
		}
		ended(t, s.call(t.Context(), "one", "sick.example.com", time.Minute), call.OutcomeBreakerOpen, call.ReasonBreakerOpen, 0)
		ended(t, s.call(t.Context(), "one", "old.example.com", time.Minute), call.OutcomeBreakerOpen, call.ReasonBreakerOpen, 1)
	})
}

// The retries of a hop draw from the budget of its origin, which lives on the hops as first attempts.
func TestHopsAreFirstAttemptsOfTheirOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := following(t)
		p.Budget.Window = &policy.BudgetWindow{Ratio: 0.5, Period: 10 * time.Second}
		p.Breaker.ConsecutiveFailures, p.Breaker.MinRequests = 0, 1000
		s := newShop(t, p, senderFunc(func(_ context.Context, c *call.Call, _ call.Attempt) call.Result {
			if c.Target.Host == "old.example.com" {
				return location(302, "https://sick.example.com/")
			}
			return status(500)
		}))
		ended(t, s.call(t.Context(), "one", "old.example.com", time.Minute), call.OutcomeBudgetExhausted, call.ReasonBudgetExhausted, 2)
		ended(t, s.call(t.Context(), "one", "old.example.com", time.Minute), call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, 3)
	})
}

// A loser that is answered 503 when the call has gone on to another origin holds its own origin, and not that one.
func TestLoserHoldsItsOwnOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged(t)
		p.Redirects.MaxHops, p.Retry.Hold, p.Retry.HoldMax, p.Retry.RetryAfterMax = 1, true, time.Minute, time.Minute
		s := newShop(t, p, senderFunc(func(ctx context.Context, c *call.Call, a call.Attempt) call.Result {
			switch {
			case c.Target.Host != "old.example.com":
				return status(200)
			case a.Kind == call.KindHedge:
				return location(302, "https://new.example.com/")
			}
			<-ctx.Done() // the answer comes as it is cancelled
			return status(503, call.Header{Name: "Retry-After", Value: "30"})
		}))
		ended(t, s.call(t.Context(), "one", "old.example.com", time.Minute), call.OutcomeSuccess, call.ReasonSuccess, 3)
		ended(t, s.call(t.Context(), "one", "new.example.com", time.Second), call.OutcomeSuccess, call.ReasonSuccess, 1)
		ended(t, s.call(t.Context(), "one", "old.example.com", time.Second), call.OutcomeThrottled, call.ReasonOriginHeld, 0)
	})
}
