package breaker_test

import (
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

// stand is a breaker brought to one state, the ticket that decides there, and one of an older generation.
type stand struct {
	b              *breaker.Breaker
	now            time.Time
	current, stale breaker.Ticket
}

// stands are the states of the diagram, half-open with and without a probe, and open with its cooldown over but nobody there yet.
func stands(t *testing.T) map[string]stand {
	t.Helper()
	fresh := func() (*breaker.Breaker, breaker.Ticket) {
		b := breaker.New(plain())
		old := admit(t, b, ms(0), patient("a"))
		b.Reset(ms(0))
		return b, old
	}
	all := map[string]stand{}
	b, stale := fresh()
	attempt(t, b, ms(0), patient("a"), lost)
	attempt(t, b, ms(0), patient("a"), lost)
	all["closed"] = stand{b, ms(1), admit(t, b, ms(0), patient("a")), stale}
	open := func() stand {
		b, _ := fresh()
		stale := admit(t, b, ms(0), patient("a"))
		for range 3 {
			attempt(t, b, ms(0), patient("a"), lost)
		}
		return stand{b: b, now: ms(1), stale: stale}
	}
	all["open"] = open()
	due := open()
	due.now = ms(1000)
	all["open, due"] = due
	probing := open()
	probing.current = admit(t, probing.b, ms(1000), patient("a"))
	probing.now = ms(1001)
	all["half-open, probing"] = probing
	free := open()
	admit(t, free.b, ms(1000), patient("a")).Settle(ms(1000), ignored, 0)
	free.now = ms(1001)
	all["half-open, free"] = free
	return all
}

func TestEveryEdgeOfTheDiagramAndNoOther(t *testing.T) {
	const (
		closed, open, half = breaker.Closed, breaker.Open, breaker.HalfOpen
		stays              = breaker.State(0) // no transition is reported
	)
	settle := func(r breaker.Result) func(s *stand) (breaker.Transition, bool) {
		return func(s *stand) (breaker.Transition, bool) { return s.current.Settle(s.now, r, 0) }
	}
	events := map[string]func(s *stand) (breaker.Transition, bool){
		"a fit attempt comes": func(s *stand) (breaker.Transition, bool) {
			ticket, _ := s.b.Admit(s.now, patient("a"), 0)
			return ticket.Entered()
		},
		"an unfit attempt comes": func(s *stand) (breaker.Transition, bool) {
			ticket, _ := s.b.Admit(s.now, cut("a", time.Millisecond), 0)
			return ticket.Entered()
		},
		"success":   settle(ok),
		"failure":   settle(lost),
		"429":       settle(status429),
		"nothing":   settle(ignored),
		"old":       func(s *stand) (breaker.Transition, bool) { return s.stale.Settle(s.now, lost, 0) },
		"old alive": func(s *stand) (breaker.Transition, bool) { return s.stale.Settle(s.now, ok, 0) },
		"hint": func(s *stand) (breaker.Transition, bool) {
			s.b.Hint(s.now)
			return breaker.Transition{}, false
		},
		"a day passes": func(s *stand) (breaker.Transition, bool) {
			s.now = s.now.Add(24 * time.Hour)
			_ = s.b.Peek(s.now)
			s.b.Snapshot(s.now)
			return breaker.Transition{}, false
		},
		"forced open":   func(s *stand) (breaker.Transition, bool) { return s.b.Force(breaker.ForcedOpen, s.now), true },
		"forced closed": func(s *stand) (breaker.Transition, bool) { return s.b.Force(breaker.ForcedClosed, s.now), true },
		"reset":         func(s *stand) (breaker.Transition, bool) { return s.b.Reset(s.now), true },
	}
	// For each state: where each event leads, and as what the state shows afterwards.
	table := map[string]struct {
		from  breaker.State
		leads map[string]breaker.State
		shows map[string]breaker.State
	}{
		"closed": {from: closed, leads: map[string]breaker.State{
			"a fit attempt comes": stays, "an unfit attempt comes": stays, "success": stays, "failure": open, "429": stays,
			"nothing": stays, "old": stays, "old alive": stays, "hint": stays, "a day passes": stays,
			"forced open": open, "forced closed": closed, "reset": closed,
		}},
		"open": {from: open, leads: map[string]breaker.State{
			"a fit attempt comes": stays, "an unfit attempt comes": stays, "success": stays, "failure": stays, "429": stays,
			"nothing": stays, "old": stays, "old alive": stays, "hint": stays, "a day passes": stays,
			"forced open": open, "forced closed": closed, "reset": closed,
		}, shows: map[string]breaker.State{"a day passes": half}},
		"open, due": {from: open, leads: map[string]breaker.State{
			"a fit attempt comes": half, "an unfit attempt comes": stays, "success": stays, "failure": stays, "429": stays,
			"nothing": stays, "old": stays, "old alive": stays, "hint": stays, "a day passes": stays,
			"forced open": open, "forced closed": closed, "reset": closed,
		}, shows: map[string]breaker.State{
			"an unfit attempt comes": half, "success": half, "failure": half, "429": half, "nothing": half, "old": half,
			"old alive": half, "hint": half, "a day passes": half,
		}},
		"half-open, probing": {from: half, leads: map[string]breaker.State{
			"a fit attempt comes": stays, "an unfit attempt comes": stays, "success": closed, "failure": open, "429": open,
			"nothing": stays, "old": stays, "old alive": stays, "hint": stays, "a day passes": stays,
			"forced open": open, "forced closed": closed, "reset": closed,
		}},
		"half-open, free": {from: half, leads: map[string]breaker.State{
			"a fit attempt comes": stays, "an unfit attempt comes": stays, "success": stays, "failure": stays, "429": stays,
			"nothing": stays, "old": stays, "old alive": stays, "hint": stays, "a day passes": stays,
			"forced open": open, "forced closed": closed, "reset": closed,
		}},
	}
	for name, row := range table {
		if len(row.leads) != len(events) {
			t.Fatalf("%s: %d of %d events stand in the table", name, len(row.leads), len(events))
		}
		for event, to := range row.leads {
			t.Run(name+": "+event, func(t *testing.T) {
				s := stands(t)[name]
				before := s.b.Snapshot(s.now).Generation
				moved, reported := events[event](&s)
				if reported != (to != stays) {
					t.Fatalf("transition %+v reported: %v", moved, reported)
				}
				show := row.from
				if to != stays {
					show = to
					if moved.From != row.from || moved.To != to || !moved.At.Equal(s.now) || moved.Generation != before+1 {
						t.Fatalf("moved %+v, want from %v to %v at %v", moved, row.from, to, s.now)
					}
				}
				if other, is := row.shows[event]; is {
					show = other
				}
				wantState(t, s.b, s.now, show)
				if to == stays && s.b.Snapshot(s.now).Generation != before {
					t.Fatal("a generation began although nothing moved")
				}
			})
		}
	}
}
