package breaker_test

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

// traceRow is one row of the reference trace; absent expectations are nil.
type traceRow struct {
	N           int    `json:"n"`
	T           int    `json:"t_ms"`
	Event       string `json:"event"`
	StateAfter  string `json:"state_after"`
	Failures    *int   `json:"failures"`
	OpenUntil   *int   `json:"open_until_ms"`
	Outcome     string `json:"outcome"`
	RetryAfter  *int   `json:"retry_after_ms"`
	Probes      *int   `json:"probes"`
	Transitions *int   `json:"transitions"`
}

// traceRun plays rows; tickets are those in flight, by the letter the trace gives them.
type traceRun struct {
	b       *breaker.Breaker
	tickets map[string]breaker.Ticket
	moved   int
}

func (r *traceRun) settle(ticket breaker.Ticket, now time.Time, result breaker.Result) {
	if _, moved := ticket.Settle(now, result, 0); moved {
		r.moved++
	}
}

func TestReferenceTrace(t *testing.T) {
	text, err := os.ReadFile("testdata/breaker_trace.json")
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		Rows []traceRow `json:"rows"`
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatal(err)
	}
	if len(trace.Rows) != 31 {
		t.Fatalf("%d rows, and the play below knows 31", len(trace.Rows))
	}
	r := &traceRun{b: breaker.New(plain()), tickets: map[string]breaker.Ticket{}}
	states := map[string]breaker.State{"CLOSED": breaker.Closed, "OPEN": breaker.Open, "HALF_OPEN": breaker.HalfOpen}
	for _, row := range trace.Rows {
		r.moved = 0
		r.play(t, row)
		now := ms(row.T)
		s := r.b.Snapshot(now)
		if s.State != states[row.StateAfter] {
			t.Fatalf("row %d %q: %v, want %s", row.N, row.Event, s.State, row.StateAfter)
		}
		if row.Failures != nil && int(s.Consecutive) != *row.Failures {
			t.Fatalf("row %d %q: %d failures, want %d", row.N, row.Event, s.Consecutive, *row.Failures)
		}
		if row.OpenUntil != nil && !s.NextProbe.Equal(ms(*row.OpenUntil)) {
			t.Fatalf("row %d %q: open until %v, want %d ms", row.N, row.Event, s.NextProbe.Sub(zero), *row.OpenUntil)
		}
		if row.Probes != nil && s.Probing != (*row.Probes == 1) {
			t.Fatalf("row %d %q: probing %v, want %d", row.N, row.Event, s.Probing, *row.Probes)
		}
		if row.Transitions != nil && r.moved != *row.Transitions {
			t.Fatalf("row %d %q: %d transitions, want %d", row.N, row.Event, r.moved, *row.Transitions)
		}
	}
}

func (r *traceRun) play(t *testing.T, row traceRow) {
	t.Helper()
	now := ms(row.T)
	call := func(a breaker.Attempt, result breaker.Result) { r.settle(admit(t, r.b, now, a), now, result) }
	switch row.Event {
	case "call -> 503", "call -> 502", "503":
		call(patient("a"), status503)
	case "503, 503":
		call(patient("a"), status503)
		call(patient("a"), status503)
	case "call -> 200", "call -> 404", "P4 admitted -> 200", "keyed POST probe -> 409 in progress":
		call(patient("a"), ok)
	case "call -> connection reset":
		call(patient("a"), lost)
	case "attempt timeout":
		call(patient("a"), timeout)
	case "call -> 429":
		call(patient("a"), status429)
	case "caller cancels in flight":
		call(patient("a"), ignored)
	case "refused by the concurrency limit":
		// The slot comes before the ticket: the breaker was only looked at.
		if err := r.b.Peek(now); err != nil {
			t.Fatal(err)
		}
	case "caller's own 5 ms deadline fires, attempt.timeout not reached":
		call(cut("a", 5*time.Millisecond), timeout)
	case "attempt given 900 ms, cut by the caller's own deadline":
		call(cut("a", 900*time.Millisecond), timeout)
	case "attempt given 1200 ms, cut by the caller's own deadline":
		call(cut("a", 1200*time.Millisecond), timeout)
	case "call L starts and stays in flight":
		r.tickets["L"] = admit(t, r.b, now, patient("a"))
		r.tickets["before 90"] = admit(t, r.b, now, patient("a"))
	case "L -> 503":
		r.settle(r.tickets["L"], now, status503)
	case "late success of a call admitted before 90":
		r.settle(r.tickets["before 90"], now, ok)
	case "call":
		r.refused(t, row, 1)
	case "49 calls":
		r.refused(t, row, 49)
	case "GET P1 admitted", "GET P2 admitted", "GET P3 admitted":
		r.tickets[row.Event[4:6]] = admit(t, r.b, now, patient("a"))
	case "P1 cancelled by its caller":
		r.settle(r.tickets["P1"], now, ignored)
	case "P2 -> 503":
		r.settle(r.tickets["P2"], now, status503)
	case "P3 -> 429":
		r.settle(r.tickets["P3"], now, status429)
	case "wall clock steps back one hour":
		// To a breaker the step is a time that reads earlier and whose monotonic part does not; here there is none, and it holds
		// on to the latest it saw.
		if err := r.b.Peek(now.Add(-time.Hour)); err == nil {
			t.Fatal("the step opened the door")
		}
	default:
		t.Fatalf("row %d: nobody knows how to play %q", row.N, row.Event)
	}
}

func (r *traceRun) refused(t *testing.T, row traceRow, times int) {
	t.Helper()
	for range times {
		_, err := r.b.Admit(ms(row.T), patient("b"), 0)
		var no *breaker.RefusedError
		if !errors.As(err, &no) || row.Outcome != "OUTCOME_BREAKER_OPEN" {
			t.Fatalf("row %d: %v, want a refusal and %s", row.N, err, row.Outcome)
		}
		if row.RetryAfter != nil && no.RetryAfter != time.Duration(*row.RetryAfter)*time.Millisecond {
			t.Fatalf("row %d: retry after %v, want %d ms", row.N, no.RetryAfter, *row.RetryAfter)
		}
	}
}
