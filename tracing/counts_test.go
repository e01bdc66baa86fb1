package tracing_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

var update = flag.Bool("update", false, "write testdata/counts.txt anew; read the difference")

// scene is what a few calls do.
type scene struct {
	name    string
	change  func(*policy.Effective)
	results []call.Result // of the attempts, the last one again and again; each takes 20 ms
	callers []string      // of the calls, one after the other, each 1 s after the one before
	asOne   bool          // all at once
}

func scenes() []scene {
	retryAfter := func(status int) call.Result {
		r := answered(status)
		r.Response.Headers = []call.Header{{Name: "Retry-After", Value: "30"}}
		return r
	}
	fresh := answered(200)
	fresh.Opening = &call.Opening{DNS: time.Millisecond, Connect: 2 * time.Millisecond, TLS: 4 * time.Millisecond}
	lost := call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureConnectionLost}
	return []scene{
		{name: "a call over a fresh connection", results: []call.Result{fresh}, callers: []string{"a"}},
		{name: "a retry", results: []call.Result{answered(503), answered(200)}, callers: []string{"a"}},
		{
			name: "a breaker opens, refuses, and closes", results: []call.Result{lost, lost, answered(200)}, callers: []string{"a", "b", "a"},
			change: func(p *policy.Effective) {
				p.Breaker.ConsecutiveFailures, p.Breaker.MinDistinctCallers, p.Breaker.OpenJitter, p.Retry.MaxAttempts = 2, 1, 0, 2
				p.Breaker.OpenBase = 1500 * time.Millisecond
			},
		},
		{name: "a hold of all", results: []call.Result{retryAfter(503)}, callers: []string{"a", "b"}},
		{name: "a hold of a credential", results: []call.Result{retryAfter(429)}, callers: []string{"a"}},
		{
			name: "a spent budget", results: []call.Result{answered(500)}, callers: []string{"a"},
			change: func(p *policy.Effective) { p.Budget.Window = &policy.BudgetWindow{Period: time.Minute} },
		},
		{
			name: "a full origin: one runs, one waits, one is refused", results: []call.Result{answered(200)}, callers: []string{"a", "b", "c"}, asOne: true,
			change: func(p *policy.Effective) {
				p.Concurrency = policy.Concurrency{MaxInFlight: 1, MaxPending: 1, PendingWait: time.Second}
			},
		},
		{
			name: "a hedge that loses", results: []call.Result{answered(200)}, callers: []string{"a"},
			change: func(p *policy.Effective) {
				p.Hedge = policy.Hedge{Enabled: true, Delay: 15 * time.Millisecond, MaxHedges: 1, MaxExtra: 1, Methods: []string{"GET"}}
			},
		},
		{
			name: "a hedge that is refused", results: []call.Result{answered(200)}, callers: []string{"a"},
			change: func(p *policy.Effective) {
				p.Hedge = policy.Hedge{Enabled: true, Delay: 15 * time.Millisecond, MaxHedges: 1, MaxExtra: 1, Methods: []string{"GET"}}
				p.Concurrency = policy.Concurrency{MaxInFlight: 1}
			},
		},
	}
}

// play makes the calls of a scene and gives what /metrics then says.
func (s *scene) play(t *testing.T) string {
	t.Helper()
	o, err := tracing.New(t.Context(), func(string) (string, bool) { return "", false }, "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	origins := engine.NewOrigins()
	o.Watch(tracing.Watched{Origins: origins})
	sender := senderFunc(func(ctx context.Context, _ call.Attempt) call.Result {
		r := s.results[min(int(sent.Add(1)), len(s.results))-1]
		done := time.NewTimer(20 * time.Millisecond)
		defer done.Stop()
		select {
		case <-ctx.Done():
			return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureCancelled}
		case <-done.C:
			return r
		}
	})
	e := engine.New(sender, o, guard.New(guard.Config{}), origins)
	ended := make(chan struct{}, len(s.callers)) // closed by nobody
	for _, caller := range s.callers {
		c := asked(t, "GET", "https://api.example.com/")
		c.Caller = caller
		p := *rules(t, c)
		if s.change != nil {
			s.change(&p)
		}
		run := func() {
			ctx, span := o.Begin(t.Context(), "", "")
			f := e.Do(ctx, c, &p)
			span.End(c, &f, policyInTest)
			ended <- struct{}{}
		}
		if s.asOne {
			go run()
			synctest.Wait()
			continue
		}
		run()
		time.Sleep(time.Second)
	}
	for range s.callers {
		<-ended
	}
	w := httptest.NewRecorder()
	o.Scrape(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return w.Body.String()
}

// noted are the lines that say something: not those of the process, of buckets, or of nothing.
var noted = regexp.MustCompile(`(?m)^(http|sallyport)_[^{\n]*({[^}\n]*})? .*$`)

func worth(text string) string {
	var b strings.Builder
	for _, line := range noted.FindAllString(text, -1) {
		if name, _, _ := strings.Cut(line, "{"); !strings.HasSuffix(line, " 0") && !strings.HasSuffix(name, "_bucket") && name != "sallyport_build_info" {
			b.WriteString(strings.ReplaceAll(line, "sallyport_origin=\"https://api.example.com:443\"", "O") + "\n")
		}
	}
	return b.String()
}

// Everything that happens is counted once, under the names that docs/metrics.md has. testdata/counts.txt is to be read.
func TestWhatHappensIsCounted(t *testing.T) {
	var b strings.Builder
	for _, s := range scenes() {
		synctest.Test(t, func(t *testing.T) {
			fmt.Fprintf(&b, "# %s\n%s\n", s.name, worth(s.play(t)))
		})
	}
	const file = "testdata/counts.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wanted, got := strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")
	for i := range max(len(wanted), len(got)) {
		if i >= len(wanted) || i >= len(got) || wanted[i] != got[i] {
			t.Fatalf("line %d:\nwant %q\ngot  %q", i+1, wanted[min(i, len(wanted)-1)], got[min(i, len(got)-1)])
		}
	}
}
