package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/metadata"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// busyPolicies let everything happen that is counted, with a path for each.
const busyPolicies = `
policies:
  - name: policies/busy
    match: { hosts: ["127.0.0.1", localhost] }
    retry: { backoff: { base: 1ms, cap: 1ms }, max_attempts: 2 }
    breaker: { consecutive_failures: 2, min_distinct_callers: 1, open_base: 60s }
  - name: policies/narrow
    match: { hosts: ["127.0.0.1"], path_prefix: /narrow }
    concurrency: { max_in_flight: 1, max_pending: 5, pending_wait: 5s }
  - name: policies/thrifty
    match: { hosts: ["127.0.0.1"], path_prefix: /spent }
    budget: { window: { ratio: 0, period: 10s, min_per_second: 0 } }
    breaker: { consecutive_failures: 0 }
`

// busy is a broker that has made calls of every kind, and what it tells of them.
func busy(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	upstream := startUpstream(t, map[string][]reply{
		"/ok": {{status: 200}}, "/flaky": {{status: 500}, {status: 200}}, "/narrow": {{status: 200, together: 1, after: 50 * time.Millisecond}},
		"/spent": {{status: 500}},
	})
	sick, held := startUpstream(t, map[string][]reply{"/": {{status: 500}}}), startUpstream(t, map[string][]reply{"/": {{status: 503, retryAfter: "30"}}})
	s := testSettings(t)
	s.Policies = filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(s.Policies, []byte(busyPolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startTestNode(t, s)
	t.Cleanup(func() {
		if err := n.stop(context.Background()); err != nil { //nolint:usetesting // the test's own context has ended by now
			t.Error(err)
		}
	})
	c := dialNode(t, n)
	outcome := func(url string, want pb.Outcome) {
		t.Helper()
		if resp, err := callFor(t, c, url); err != nil || resp.GetOutcome() != want {
			t.Errorf("%s: %v, %v", url, resp.GetOutcome(), err)
		}
	}
	outcome(upstream.url+"/ok", pb.Outcome_OUTCOME_SUCCESS)
	outcome(strings.Replace(upstream.url, "127.0.0.1", "localhost", 1)+"/ok", pb.Outcome_OUTCOME_SUCCESS)
	outcome(upstream.url+"/flaky", pb.Outcome_OUTCOME_SUCCESS)
	outcome(upstream.url+"/spent", pb.Outcome_OUTCOME_BUDGET_EXHAUSTED)
	outcome(sick.url+"/", pb.Outcome_OUTCOME_RETRIES_EXHAUSTED)
	outcome(sick.url+"/", pb.Outcome_OUTCOME_BREAKER_OPEN)
	outcome(held.url+"/", pb.Outcome_OUTCOME_THROTTLED)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { outcome(upstream.url+"/narrow", pb.Outcome_OUTCOME_SUCCESS) })
	}
	both.Wait()
	if _, err := callFor(t, c, "ftp://127.0.0.1/"); err == nil {
		t.Error("an invalid request was taken")
	}
	reread(t, n)
	status, body := get(t, n, "GET", "/metrics")
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(body))
	if err != nil || status != 200 {
		t.Fatal(status, err)
	}
	return families
}

// labels are the names of the labels that a family has.
func labels(f *dto.MetricFamily) []string {
	var all []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			all = append(all, l.GetName())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// documented is a line of a table in docs/metrics.md.
type documented struct {
	name, kind string
	labels     []string
}

func documentedMetrics(t *testing.T) map[string]documented {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| `([a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\|")
	all := map[string]documented{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		d := documented{name: m[1], kind: m[3]}
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(m[4], -1) {
			d.labels = append(d.labels, label[1])
		}
		slices.Sort(d.labels)
		if _, twice := all[m[2]]; twice {
			t.Errorf("%s stands there twice", m[2])
		}
		all[m[2]] = d
	}
	return all
}

// docs/metrics.md has every metric of a broker that has something to tell, with its type and its labels, and no other.
func TestEveryMetricIsDocumented(t *testing.T) {
	told, written := busy(t), documentedMetrics(t)
	for name, f := range told {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		d, ok := written[name]
		if !ok {
			t.Errorf("%s is not documented", name)
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); kind != d.kind {
			t.Errorf("%s is a %s, documented as %s", name, kind, d.kind)
		}
		if got := labels(f); !slices.Equal(got, d.labels) {
			t.Errorf("%s has the labels %v, documented %v", name, got, d.labels)
		}
		if base := strings.ReplaceAll(d.name, ".", "_"); !strings.HasPrefix(name, base) {
			t.Errorf("%s is no form of %s", name, d.name)
		}
	}
	for name := range written {
		if told[name] == nil {
			t.Errorf("%s is documented and not told", name)
		}
	}
	if len(written) < 30 {
		t.Errorf("%d metrics found in the document", len(written))
	}
}

// Files that are read again count once, whether they are taken or not.
func TestReloadsAreCounted(t *testing.T) {
	s := testSettings(t)
	s.Policies = filepath.Join(t.TempDir(), "policies.yaml")
	replaceFile(t, s.Policies, busyPolicies)
	n := startTestNode(t, s)
	reads := func(result string) string {
		_, body := get(t, n, "GET", "/metrics")
		found := regexp.MustCompile(`(?m)^sallyport_reloads_total{sallyport_reload_result="` + result + `",sallyport_reload_what="POLICIES"} (.*)$`).FindStringSubmatch(body)
		if len(found) != 2 {
			return "no series"
		}
		return found[1]
	}
	for _, step := range []struct{ file, ok, refused string }{
		{busyPolicies, "1", "0"}, {"policies: [{name: x, broken: [", "1", "1"}, {busyPolicies + "    priority: 7\n", "2", "1"},
	} {
		replaceFile(t, s.Policies, step.file)
		reread(t, n)
		if ok, refused := reads("OK"), reads("REFUSED"); ok != step.ok || refused != step.refused {
			t.Errorf("%s taken, %s refused, want %s and %s", ok, refused, step.ok, step.refused)
		}
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// The port tells /metrics to whoever may ask for /healthz, also while the broker drains, and takes nothing.
func TestMetricsAreReadOnly(t *testing.T) {
	n := startTestNode(t, testSettings(t))
	for _, tt := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/metrics", 200, "sallyport_build_info{"},
		{"HEAD", "/metrics", 200, ""},
		{"POST", "/metrics", 405, "use GET\n"},
		{"DELETE", "/metrics", 405, "use GET\n"},
		{"GET", "/metrics/", 404, "not found\n"},
	} {
		status, body := get(t, n, tt.method, tt.path)
		if status != tt.status || !strings.Contains(body, tt.body) || tt.body == "" && body != "" {
			t.Errorf("%s %s: %d %.80q", tt.method, tt.path, status, body)
		}
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A scraper that asks for OpenMetrics gets it, with the trace of a call whose caller samples.
func TestScraperFindsTheTraceOfACall(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200}}})
	n := startTestNode(t, testSettings(t))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	resp, err := dialNode(t, n).Call(ctx, request("GET", upstream.url+"/"))
	if err != nil || resp.GetTraceId() != trace {
		t.Fatalf("%v, %v", resp, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address(n.http)+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("%s, ends with %q", kind, text[max(0, len(text)-10):])
	}
	attempt := resp.GetAttempts()[0].GetSpanId()
	for name, span := range map[string]string{
		"http_client_request_duration_seconds_bucket": attempt, "sallyport_call_duration_seconds_bucket": "",
	} {
		found := regexp.MustCompile(`(?m)^` + name + `.* # {(.*)} [0-9.e-]+ [0-9.e+]+$`).FindStringSubmatch(text)
		if len(found) != 2 || !strings.Contains(found[1], `trace_id="`+trace+`"`) || !strings.Contains(found[1], `span_id="`+span) {
			t.Errorf("the exemplar of %s is %q", name, found)
		}
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}
