package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

const (
	asText        = "text/plain"
	asOpenMetrics = "application/openmetrics-text; version=1.0.0"
	fiveMiB       = 5 << 20
)

// scrape reads what an observer has, as a scraper does.
func scrape(t testing.TB, o *Observer, accept string) string {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	o.Scrape(slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), accept) {
		t.Fatalf("%d, %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body.String())
	}
	return w.Body.String()
}

func parsed(t testing.TB, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// values are the different values that a label has in a family.
func values(f *dto.MetricFamily, label string) []string {
	var all []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				all = append(all, l.GetValue())
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// total adds a family up.
func total(f *dto.MetricFamily) (sum float64) {
	for _, m := range f.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// made is one call of one attempt, told to the observer as broker and engine do.
func made(t testing.TB, o *Observer, traceparent string, c *call.Call, a call.Attempt, f call.Final) {
	t.Helper()
	ctx, span := o.Begin(t.Context(), traceparent, "")
	a.Number = 1
	result := a.Result
	a.Result = call.Result{}
	o.AttemptStarted(ctx, c, &a)
	a.Result = result
	o.AttemptEnded(ctx, &a, engine.Shared{})
	span.End(c, &f, "policies/default@1")
}

// Whatever callers and upstreams make up, the labels of an instrument are bounded, a scrape stays below 5 MiB, and nothing is
// left uncounted.
func TestScrapeIsBounded(t *testing.T) {
	for _, row := range []struct {
		name string
		flood
	}{
		{"usual names", flood{5000, 1, 499, func(i int) string { return fmt.Sprintf("host-%d.example.com", i) }}},
		{"as long as all have room", flood{1010, 16, 1, func(i int) string { return fmt.Sprintf("h%034d", i) }}},
		{"long names", flood{400, 2, 499, func(i int) string { return fmt.Sprintf("%s-%d.example.com", strings.Repeat("h", 230), i) }}},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := counting(t)
			sent := row.rise(t, o)
			text := scrape(t, o, asText)
			families := parsed(t, text)
			if made := values(families["http_client_request_duration_seconds"], "http_request_method"); slices.Contains(made, "MADE-UP") || row.ways > 1 && !slices.Contains(made, "_OTHER") {
				t.Errorf("methods %v", made)
			}
			for name, f := range families {
				for label, most := range map[string]int{"sallyport_origin": maxNames, "sallyport_caller": maxNames, "server_address": maxNames} {
					if n := len(values(f, label)); n > most+1 {
						t.Errorf("%s has %d values of %s", name, n, label)
					}
				}
			}
			for _, name := range []string{
				"sallyport_calls_total", "sallyport_caller_calls_total", "sallyport_attempts_total", "http_client_request_duration_seconds",
				"sallyport_call_duration_seconds", "sallyport_attempts_refused_total", "sallyport_breaker_transitions_total", "sallyport_holds_set_total",
				"sallyport_budget_tokens_total", "sallyport_budget_refused_total",
			} {
				f := families[name]
				if got := total(f); got != float64(sent) {
					t.Errorf("%s adds up to %v, want %d", name, got, sent)
				}
				if label := "sallyport_origin"; f == nil || len(values(f, label)) > 0 && !slices.Contains(values(f, label), other) {
					t.Errorf("%s has no others", name)
				}
			}
			for format, body := range map[string]string{asText: text, asOpenMetrics: scrape(t, o, asOpenMetrics)} {
				size := len(body)
				t.Logf("%s: %d origins, %d with a histogram, %d callers, %.2f MiB", format, len(values(families["sallyport_calls_total"], "sallyport_origin")),
					len(values(families["http_client_request_duration_seconds"], "server_address")),
					len(values(families["sallyport_caller_calls_total"], "sallyport_caller")), float64(size)/(1<<20))
				if size > fiveMiB {
					t.Errorf("%s: %d bytes", format, size)
				}
			}
		})
	}
}

// flood is many origins and as many callers, which make so many calls to each. All are sampled and end in so many ways.
type flood struct {
	origins, each, ways int
	host                func(i int) string
}

// rise makes the calls, with the gauges of all that is open, and tells how many.
func (f flood) rise(t testing.TB, o *Observer) (calls int) {
	t.Helper()
	origins, host := f.origins, f.host
	o.Watch(Watched{
		Origins: shared(t, origins, host),
		EachOrigin: func(f func(origin string, active, idle int64)) {
			for i := range origins {
				f(originOf(host(i)), 1234, 5678)
			}
		},
	})
	methods := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "QUERY", "MADE-UP"}
	buckets := []time.Duration{
		time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
		30 * time.Second, time.Minute, time.Hour,
	}
	for i := range origins * f.each {
		k := i % f.ways // a prime, so that everything meets everything
		c := &call.Call{
			Method: methods[k%len(methods)], Caller: fmt.Sprint("caller-", i%origins, strings.Repeat("c", i%40)),
			Target: call.Target{Origin: originOf(host(i % origins))},
		}
		a := call.Attempt{
			Kind: call.Kind(1 + k%5), Duration: buckets[(i/origins)%len(buckets)],
			Result: call.Result{Evidence: call.Evidence(1 + k%5), Failure: call.Failure(k % 10), Status: 100 + k%500},
		}
		made(t, o, "00-"+theTrace+"-"+theSpan+"-01", c, a, call.Final{
			Outcome: call.Outcome(1 + k%15), Effect: call.Effect(1 + k%3), Reason: call.Reason(1 + k%24), Elapsed: a.Duration,
		})
		for _, n := range []engine.Notice{
			{What: engine.WhatRefusal, Kind: a.Kind, Reason: call.Reason(1 + k%24)},
			{What: engine.WhatMove, Move: breaker.Transition{To: breaker.State(1 + k%3), Cause: breaker.Cause(1 + k%9)}},
			{What: engine.WhatHold, Credential: k%2 == 0},
			{What: engine.WhatTokenRefused, Token: budget.Reason(1 + k%2)},
			{What: []engine.What{engine.WhatTokenGranted, engine.WhatTokenHandedBack}[k%2]},
		} {
			n.Call = c
			o.Noticed(t.Context(), time.Time{}, n)
		}
		calls++
	}
	return calls
}

func originOf(host string) string { return "https://" + host + ":443" }

// shared is what an engine keeps of so many origins, all of which asked not to be called.
func shared(t testing.TB, origins int, host func(int) string) *engine.Origins {
	t.Helper()
	table, err := policy.Compile(nil, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	held := call.Result{Evidence: call.EvidenceAnswered, Status: 503, Response: &call.Response{
		Status: 503, Headers: []call.Header{{Name: "Retry-After", Value: "3600"}},
	}}
	all := engine.NewOrigins()
	e := engine.New(sender(held), &Observer{}, guard.New(guard.Config{}), all)
	for i := range origins {
		now := time.Now()
		c := &call.Call{
			Method: "GET", Caller: "one", Arrived: now, Deadline: now.Add(time.Minute),
			Target: call.Target{Scheme: "https", Host: host(i), Port: 443, Path: "/", Origin: originOf(host(i))},
		}
		e.Do(t.Context(), c, table.Match(c))
	}
	return all
}

// sender is an upstream that always gives this.
type sender call.Result

func (s sender) Send(context.Context, *call.Call, *policy.Effective, call.Attempt) call.Result {
	return call.Result(s)
}

// Many calls at once make a series once, and lose no count.
func TestCountsAreExactUnderConcurrency(t *testing.T) {
	o := counting(t)
	const callers, each, origins = 8, 500, 50
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for j := range each {
				c := &call.Call{Method: "GET", Caller: fmt.Sprint(i), Target: call.Target{Origin: fmt.Sprintf("https://host%d.example.com:443", j%origins)}}
				made(t, o, "", c, call.Attempt{Result: call.Result{Evidence: call.EvidenceAnswered, Status: 200}},
					call.Final{Outcome: call.OutcomeSuccess, Effect: call.EffectAnswered, Reason: call.ReasonSuccess})
			}
		})
	}
	for range 5 {
		scrape(t, o, asText) // meanwhile
	}
	all.Wait()
	f := parsed(t, scrape(t, o, asText))
	for name, series := range map[string]int{"sallyport_calls_total": origins, "sallyport_attempts_total": origins, "http_client_request_duration_seconds": origins, "sallyport_caller_calls_total": callers} {
		if n, sum := len(f[name].GetMetric()), total(f[name]); n != series || sum != callers*each {
			t.Errorf("%s: %d series that add up to %v, want %d and %d", name, n, sum, series, callers*each)
		}
	}
}

// A duration of a sampled call leads to its trace; one that is not sampled leads nowhere.
func TestExemplarLeadsToTheTrace(t *testing.T) {
	c := &call.Call{Method: "GET", Caller: "checkout", Target: call.Target{Origin: "https://api.example.com:443"}}
	a := call.Attempt{Kind: call.KindPrimary, Duration: 30 * time.Millisecond, Queued: 7 * time.Millisecond, Result: call.Result{
		Evidence: call.EvidenceAnswered, Status: 200, Opening: &call.Opening{DNS: time.Millisecond, Connect: time.Millisecond, TLS: time.Millisecond},
	}}
	f := call.Final{Outcome: call.OutcomeSuccess, Elapsed: 40 * time.Millisecond}
	for flags, sampled := range map[string]bool{"01": true, "00": false} {
		o := counting(t)
		made(t, o, "00-"+theTrace+"-"+theSpan+"-"+flags, c, a, f)
		text := scrape(t, o, asOpenMetrics)
		for name, label := range map[string]string{
			"http_client_request_duration_seconds_bucket":       `le="0.05"`,
			"sallyport_call_duration_seconds_bucket":            `le="0.05"`,
			"sallyport_queue_wait_seconds_bucket":               `le="0.01"`,
			"sallyport_connection_open_duration_seconds_bucket": `le="0.001"`,
		} {
			found := false
			for line := range strings.Lines(text) {
				found = found || strings.HasPrefix(line, name) && strings.Contains(line, label) && strings.Contains(line, `# {`) &&
					strings.Contains(line, `trace_id="`+theTrace+`"`) && strings.Contains(line, `span_id="`)
			}
			if found != sampled {
				t.Errorf("flags %s: %s has an exemplar: %t", flags, name, found)
			}
		}
		if plain := scrape(t, o, asText); strings.Contains(plain, "# {") {
			t.Error("the text format has exemplars")
		}
	}
}

// What a call without a sampled trace costs of memory is the same, counted or not.
func TestCountingAllocatesNothing(t *testing.T) {
	c := &call.Call{Method: "GET", Caller: "checkout", Target: call.Target{Origin: "https://api.example.com:443"}}
	allocations := func(o *Observer) float64 {
		return testing.AllocsPerRun(200, func() {
			made(t, o, "", c, call.Attempt{Kind: call.KindPrimary, Result: call.Result{Evidence: call.EvidenceAnswered, Status: 200}},
				call.Final{Outcome: call.OutcomeSuccess, Effect: call.EffectAnswered, Reason: call.ReasonSuccess})
		})
	}
	if without, with := allocations(&Observer{}), allocations(counting(t)); with != without {
		t.Errorf("%v allocations, %v where nothing is counted", with, without)
	}
}

// Of the budgets that an origin has, the one that refuses first is told; everything else adds up.
func TestStandingOfAnOriginWithSeveralSettings(t *testing.T) {
	s := &standing{}
	for _, left := range []float64{3, 1, 2} {
		s.budget(left)
	}
	s.bulkhead(&bulkhead.Snapshot{Limit: 5, InFlight: 2, Pending: 1})
	s.bulkhead(&bulkhead.Snapshot{Limit: 7, InFlight: 3, Pending: 4})
	if s.left != 1 || s.limit != 12 || s.inFlight != 5 || s.pending != 5 || s.unlimited != 0 {
		t.Errorf("%+v", s)
	}
	if s.bulkhead(&bulkhead.Snapshot{InFlight: 1}); s.unlimited != 1 || s.inFlight != 6 {
		t.Errorf("%+v", s)
	}
}

// An observer that counts nothing has nothing to tell, and takes every word.
func TestZeroObserverCountsNothing(t *testing.T) {
	o := &Observer{}
	o.Reloaded("policies", true)
	o.RPCReasons("DRAINING")
	o.RPCFailed("DRAINING")
	o.Watch(Watched{})
	o.Noticed(t.Context(), time.Time{}, engine.Notice{What: engine.WhatHold, Call: &call.Call{}})
	w := httptest.NewRecorder()
	o.Scrape(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 404 {
		t.Errorf("status %d", w.Code)
	}
}
