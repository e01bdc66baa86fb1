package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

// told writes notices as short lines.
func told(all []engine.Notice) []string {
	words := map[engine.What]string{
		engine.WhatWait: "wait", engine.WhatRefusal: "refusal", engine.WhatMove: "move", engine.WhatHold: "hold",
		engine.WhatTokenGranted: "granted", engine.WhatTokenHandedBack: "handed back", engine.WhatTokenRefused: "token refused",
	}
	lines := make([]string, 0, len(all))
	for _, n := range all {
		line := words[n.What]
		switch n.What {
		case engine.WhatWait, engine.WhatRefusal:
			line += fmt.Sprint(" ", n.Kind, " ", n.Reason, " ", n.Wait)
		case engine.WhatMove:
			line += fmt.Sprint(" ", n.Move.From, " ", n.Move.To, " ", n.Move.Cause)
		case engine.WhatHold:
			line += fmt.Sprint(" ", n.Wait, " ", n.Credential)
		case engine.WhatTokenRefused:
			line += fmt.Sprint(" ", n.Token == budget.ReasonCallerShare)
		}
		if n.Call == nil || n.Call.Caller != "one" {
			line += " of nobody"
		}
		lines = append(lines, line)
	}
	return lines
}

// Whatever is shared and moves is told once, in the order in which it happened.
func TestWhatMovesIsTold(t *testing.T) {
	retryAfter := call.Header{Name: "Retry-After", Value: "2"}
	for _, row := range []struct {
		name    string
		change  func(*policy.Effective)
		answers []call.Result
		calls   int
		want    []string
	}{
		{
			name: "nothing", answers: []call.Result{status(200)}, calls: 1,
		},
		{
			name: "a retry", answers: []call.Result{status(500), status(200)}, calls: 1,
			want: []string{"granted", "wait RETRY STATUS_RETRYABLE 200ms"},
		},
		{
			name:    "a breaker that opens, refuses, and closes",
			change:  func(p *policy.Effective) { p.Breaker.ConsecutiveFailures = 1 },
			answers: []call.Result{status(500), status(200)}, calls: 2,
			want: []string{
				"move closed open " + breaker.CauseConsecutive.String(), "granted", "wait RETRY STATUS_RETRYABLE 200ms",
				"refusal RETRY BREAKER_OPEN 0s", "handed back",
				"move open half-open " + breaker.CauseCooldownOver.String(), "move half-open closed " + breaker.CauseProbesSucceeded.String(),
			},
		},
		{
			name: "a hold of all", answers: []call.Result{status(503, retryAfter), status(200)}, calls: 1,
			want: []string{"hold 2s false", "granted", "wait RETRY STATUS_RETRYABLE 2s"},
		},
		{
			name: "a hold of one credential", answers: []call.Result{status(429, retryAfter), status(200)}, calls: 1,
			want: []string{"hold 2s true", "granted", "wait RETRY STATUS_RETRYABLE 2s"},
		},
		{
			name:    "a spent budget",
			change:  func(p *policy.Effective) { p.Budget.Window = &policy.BudgetWindow{Period: time.Minute} },
			answers: []call.Result{status(500)}, calls: 1,
			want: []string{"token refused false", "refusal RETRY BUDGET_EXHAUSTED 0s"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, seen, sent := worked(t), &notices{}, 0
				p.Breaker.MinDistinctCallers, p.Breaker.OpenJitter = 1, 0
				if row.change != nil {
					row.change(p)
				}
				sender := senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
					sent++
					return row.answers[min(sent, len(row.answers))-1]
				})
				s := &shop{engine: engine.New(sender, seen, guard.New(guard.Config{}), engine.NewOrigins()), policy: p}
				for range row.calls {
					s.call(t.Context(), "one", "api.example.com", time.Minute)
					time.Sleep(time.Second) // the cooldown
				}
				if got := told(seen.all); !slices.Equal(got, row.want) {
					t.Errorf("told\n%q, want\n%q", got, row.want)
				}
			})
		})
	}
}

// The order of tokens that were granted and not sent: told with the call's end.
func TestTokenOfADeadCallIsToldHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(50*time.Millisecond, cancel).Stop() // in mid-wait
		seen := &notices{}
		sender := senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result { return status(500) })
		s := &shop{engine: engine.New(sender, seen, guard.New(guard.Config{}), engine.NewOrigins()), policy: worked(t)}
		s.call(ctx, "one", "api.example.com", time.Minute)
		if granted, back := len(seen.of(engine.WhatTokenGranted)), len(seen.of(engine.WhatTokenHandedBack)); granted != 1 || back != 1 {
			t.Errorf("%d granted, %d handed back", granted, back)
		}
	})
}

// What is told of a wait is its own length, also where another one came before it.
func TestWaitsAreToldOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, seen := worked(t), &notices{}
		p.Breaker.ConsecutiveFailures, p.Breaker.MinRequests = 0, 1_000_000
		sends := map[string]int{}
		sender := senderFunc(func(_ context.Context, c *call.Call, _ call.Attempt) call.Result {
			sends[c.Caller]++
			switch {
			case c.Caller == "two":
				return status(503, call.Header{Name: "Retry-After", Value: "2"})
			case sends["one"] == 1:
				return status(500)
			}
			return status(200)
		})
		s := &shop{engine: engine.New(sender, seen, guard.New(guard.Config{}), engine.NewOrigins()), policy: p}
		var other sync.WaitGroup
		other.Go(func() {
			time.Sleep(100 * time.Millisecond) // one waits for its retry
			s.call(t.Context(), "two", "api.example.com", time.Second)
		})
		f := s.call(t.Context(), "one", "api.example.com", time.Minute)
		ended(t, f, call.OutcomeSuccess, call.ReasonSuccess, 2)
		other.Wait()
		if waited := f.Attempts[1].Waited; waited != 2100*time.Millisecond {
			t.Errorf("waited %s", waited)
		}
		want := []string{"wait RETRY STATUS_RETRYABLE 200ms", "wait RETRY ORIGIN_HELD 1.9s"}
		if got := told(seen.of(engine.WhatWait)); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}
