package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

const sick = "https://sick.example.com:443"

// seenShop is a shop whose origins are looked at.
func seenShop(t *testing.T, p *policy.Effective, s engine.Sender) (*shop, *engine.Origins) {
	t.Helper()
	o := engine.NewOrigins()
	return &shop{engine: engine.New(s, traced{}, guard.New(guard.Config{}), o), policy: p}, o
}

func state(t *testing.T, o *engine.Origins, name string) engine.OriginState {
	t.Helper()
	all := o.Read(time.Now(), func(other string) bool { return other == name })
	if len(all) != 1 {
		t.Fatalf("%d origins of the name %s", len(all), name)
	}
	return all[0]
}

// quick is a policy under which two failures open the breaker for a second.
func quick(t *testing.T) *policy.Effective {
	t.Helper()
	p := worked(t)
	p.Retry.MaxAttempts = 1
	p.Breaker.ConsecutiveFailures, p.Breaker.OpenJitter = 2, 0
	return p
}

// moved is a move as it is told, its time from the begin.
type moved struct {
	at       time.Duration
	from, to breaker.State
	cause    breaker.Cause
	cooldown time.Duration
}

func TestEveryMoveIsToldWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := false
		s, o := seenShop(t, quick(t), senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
			if well {
				return status(200)
			}
			return status(500)
		}))
		begin := time.Now()
		ask := func() { s.call(t.Context(), "one", "sick.example.com", 5*time.Second) }
		ask()
		ask() // the second failure opens it
		time.Sleep(time.Second)
		ask() // the probe fails
		time.Sleep(2 * time.Second)
		well = true
		ask() // the probe succeeds
		time.Sleep(time.Second)
		o.Force(sick, breaker.ForcedOpen, time.Now())
		o.Force(sick, breaker.ForcedOpen, time.Now()) // no move
		time.Sleep(time.Second)
		o.Force(sick, breaker.Auto, time.Now())
		o.Reset(sick, time.Now())

		var got []moved
		st := state(t, o, sick)
		for _, m := range slices.Backward(st.Moves) {
			got = append(got, moved{m.At.Sub(begin), m.From, m.To, m.Cause, m.Cooldown})
		}
		want := []moved{
			{0, breaker.Closed, breaker.Open, breaker.CauseConsecutive, time.Second},
			{time.Second, breaker.Open, breaker.HalfOpen, breaker.CauseCooldownOver, 0},
			{time.Second, breaker.HalfOpen, breaker.Open, breaker.CauseProbeFailed, 2 * time.Second},
			{3 * time.Second, breaker.Open, breaker.HalfOpen, breaker.CauseCooldownOver, 0},
			{3 * time.Second, breaker.HalfOpen, breaker.Closed, breaker.CauseProbesSucceeded, 0},
			{4 * time.Second, breaker.Closed, breaker.Open, breaker.CauseForced, 0},
			{5 * time.Second, breaker.Open, breaker.Closed, breaker.CauseForced, 0},
			{5 * time.Second, breaker.Closed, breaker.Closed, breaker.CauseReset, 0},
		}
		if !slices.Equal(got, want) {
			t.Errorf("moves\n%v\nwant\n%v", got, want)
		}
		if trouble := st.Trouble.Sub(begin); trouble != 4*time.Second {
			t.Errorf("trouble after %s, want when it was forced open", trouble)
		}
	})
}

func TestOnlyTheLastMovesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := seenShop(t, quick(t), senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result { return status(200) }))
		ended(t, s.call(t.Context(), "one", "sick.example.com", time.Second), call.OutcomeSuccess, call.ReasonSuccess, 1)
		begin := time.Now()
		for range 20 {
			time.Sleep(time.Second)
			o.Reset(sick, time.Now())
		}
		moves := state(t, o, sick).Moves
		if len(moves) != 16 || moves[0].At.Sub(begin) != 20*time.Second || moves[15].At.Sub(begin) != 5*time.Second {
			t.Errorf("%d moves: %v", len(moves), moves)
		}
	})
}

func TestTroubleIsDatedAtItsLatest(t *testing.T) {
	retryAfter := call.Header{Name: "Retry-After", Value: "1"}
	for name, row := range map[string]struct {
		policy  func(p *policy.Effective)
		answer  call.Result
		calls   int
		trouble bool
	}{
		"none":                   {func(*policy.Effective) {}, status(200), 1, false},
		"failures below any bar": {func(*policy.Effective) {}, status(500), 1, false},
		"a breaker opened":       {func(*policy.Effective) {}, status(500), 2, true},
		"a hold":                 {func(*policy.Effective) {}, status(503, retryAfter), 1, true},
		"the budget refused": {func(p *policy.Effective) {
			p.Retry.MaxAttempts = 2
			p.Budget.Window = &policy.BudgetWindow{Period: time.Second}
		}, status(500), 1, true},
		"no slot": {func(p *policy.Effective) { p.Concurrency = policy.Concurrency{MaxInFlight: 1} }, status(200), 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := quick(t)
				row.policy(p)
				var s *shop
				inner := false
				s, o := seenShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
					if name == "no slot" && !inner {
						inner = true
						s.call(t.Context(), "two", "sick.example.com", time.Second)
					}
					return row.answer
				}))
				time.Sleep(time.Hour)
				for range row.calls {
					s.call(t.Context(), "one", "sick.example.com", time.Second)
				}
				now := time.Now()
				known := o.Known(now)
				if len(known) != 1 || known[0].Name != sick || !known[0].In(breaker.Closed) && name != "a breaker opened" {
					t.Fatalf("%+v", known)
				}
				trouble := state(t, o, sick).Trouble
				if !trouble.Equal(known[0].Trouble) || trouble.IsZero() == row.trouble || row.trouble && !trouble.Equal(now) {
					t.Errorf("trouble at %s and %s, now %s", trouble, known[0].Trouble, now)
				}
			})
		})
	}
}

// What an open breaker refuses is no new trouble: else whoever is called most would stand first for as long as it is open.
func TestRefusalOfAnOpenBreakerIsNoNewTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := seenShop(t, quick(t), senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result { return status(500) }))
		begin := time.Now()
		for range 2 {
			s.call(t.Context(), "one", "sick.example.com", time.Second)
		}
		time.Sleep(500 * time.Millisecond)
		ended(t, s.call(t.Context(), "one", "sick.example.com", time.Second), call.OutcomeBreakerOpen, call.ReasonBreakerOpen, 0)
		if trouble := state(t, o, sick).Trouble; !trouble.Equal(begin) {
			t.Errorf("trouble after %s", trouble.Sub(begin))
		}
	})
}

// What an operator says holds under every policy, for breakers that are made later, and until it is said otherwise.
func TestForceRulesBreakersMadeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sends := 0
		s, o := seenShop(t, quick(t), senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result {
			sends++
			return status(200)
		}))
		other := *s.policy
		other.Breaker.ConsecutiveFailures = 50
		policies := []*policy.Effective{s.policy, &other}
		o.Force(sick, breaker.ForcedOpen, time.Now())
		for _, p := range policies {
			s.policy = p
			f := s.call(t.Context(), "one", "sick.example.com", time.Second)
			ended(t, f, call.OutcomeBreakerOpen, call.ReasonBreakerOpen, 0)
			if f.Detail != "an operator holds the breaker of this origin open" {
				t.Errorf("the caller is told: %s", f.Detail)
			}
			ended(t, s.call(t.Context(), "one", "well.example.com", time.Second), call.OutcomeSuccess, call.ReasonSuccess, 1)
		}
		for _, scope := range state(t, o, sick).Scopes {
			if scope.Breaker.Mode != breaker.ForcedOpen || scope.Breaker.State != breaker.Open {
				t.Errorf("%+v", scope.Breaker)
			}
		}
		o.Reset(sick, time.Now()) // must not send traffic to what someone holds shut
		ended(t, s.call(t.Context(), "one", "sick.example.com", time.Second), call.OutcomeBreakerOpen, call.ReasonBreakerOpen, 0)
		o.Force(sick, breaker.Auto, time.Now())
		for _, p := range policies {
			s.policy = p
			ended(t, s.call(t.Context(), "one", "sick.example.com", time.Second), call.OutcomeSuccess, call.ReasonSuccess, 1)
		}
		if sends != 4 {
			t.Errorf("%d sends, want 4", sends)
		}
	})
}

func TestForcedClosedAdmitsWhateverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := seenShop(t, quick(t), senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result { return status(500) }))
		o.Force(sick, breaker.ForcedClosed, time.Now())
		for range 10 {
			ended(t, s.call(t.Context(), "one", "sick.example.com", time.Second), call.OutcomeRetriesExhausted, call.ReasonAttemptsExhausted, 1)
		}
	})
}

func TestResetOfWhatNobodyCalled(t *testing.T) {
	o := engine.NewOrigins()
	if o.Reset(sick, time.Now()) {
		t.Error("an origin that nobody called is known")
	}
	o.Force(sick, breaker.ForcedOpen, time.Now())
	if n := len(o.Known(time.Now())); n != 0 {
		t.Errorf("%d origins known, none was called", n)
	}
}

// However a force and the first calls fall together, no breaker of the origin escapes it.
func TestForceAndFirstCallsAtOnce(t *testing.T) {
	p := quick(t)
	for range 200 {
		s, o := seenShop(t, p, senderFunc(func(context.Context, *call.Call, call.Attempt) call.Result { return status(200) }))
		var all sync.WaitGroup
		for i := range uint32(4) {
			all.Go(func() {
				own := *p
				own.Breaker.ConsecutiveFailures = 10 + i
				(&shop{engine: s.engine, policy: &own}).call(t.Context(), "one", "sick.example.com", time.Second)
			})
		}
		all.Go(func() { o.Force(sick, breaker.ForcedOpen, time.Now()) })
		all.Wait()
		for _, scope := range state(t, o, sick).Scopes {
			if scope.Breaker.Mode != breaker.ForcedOpen {
				t.Fatalf("%+v", scope.Breaker)
			}
		}
	}
}
