package tracing

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
)

// counting is an observer as a broker without a collector has it.
func counting(t testing.TB) *Observer {
	t.Helper()
	o, err := New(t.Context(), func(string) (string, bool) { return "", false }, "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// BenchmarkObserver is all that an observer does for a call of one attempt.
func BenchmarkObserver(b *testing.B) {
	const sampled = "00-" + theTrace + "-" + theSpan + "-01"
	for _, row := range []struct {
		name        string
		observer    *Observer
		traceparent string
	}{
		{"counts nothing", &Observer{}, ""},
		{"counts", counting(b), ""},
		{"counts nothing, sampled by the caller", &Observer{}, sampled},
		{"counts, sampled by the caller", counting(b), sampled},
	} {
		b.Run(row.name, func(b *testing.B) {
			c := &call.Call{Method: "GET", Caller: "checkout", Target: call.Target{Origin: "https://api.example.com:443"}}
			result := call.Result{Evidence: call.EvidenceAnswered, Status: 200}
			f := &call.Final{Outcome: call.OutcomeSuccess, Effect: call.EffectAnswered, Reason: call.ReasonSuccess, Elapsed: 12 * time.Millisecond}
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				inside, span := row.observer.Begin(ctx, row.traceparent, "")
				a := call.Attempt{Number: 1, Kind: call.KindPrimary}
				row.observer.AttemptStarted(inside, c, &a)
				a.Result, a.Duration = result, 11*time.Millisecond
				row.observer.AttemptEnded(inside, &a, engine.Shared{})
				span.End(c, f, "policies/default@1")
			}
		})
	}
	b.Run("counts, of a flood of origins", func(b *testing.B) {
		o := counting(b)
		calls := make([]*call.Call, 5000)
		for i := range calls {
			calls[i] = &call.Call{Method: "GET", Caller: "checkout", Target: call.Target{Origin: fmt.Sprintf("https://host%d.example.com:443", i)}}
		}
		f := &call.Final{Outcome: call.OutcomeSuccess, Effect: call.EffectAnswered, Reason: call.ReasonSuccess, Elapsed: 12 * time.Millisecond}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c := calls[i%len(calls)]
			inside, span := o.Begin(b.Context(), "", "")
			a := call.Attempt{Number: 1, Kind: call.KindPrimary, Result: call.Result{Evidence: call.EvidenceAnswered, Status: 200}}
			o.AttemptStarted(inside, c, &a)
			o.AttemptEnded(inside, &a, engine.Shared{})
			span.End(c, f, "policies/default@1")
		}
	})
}

// BenchmarkScrape is one scrape of a broker that knows 10 000 origins.
func BenchmarkScrape(b *testing.B) {
	o := counting(b)
	f := flood{10_000, 1, 1, func(i int) string { return fmt.Sprintf("host-%d.example.com", i) }}
	f.rise(b, o)
	b.ReportAllocs()
	for b.Loop() {
		scrape(b, o, asText)
	}
}
