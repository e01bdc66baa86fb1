package policy_test

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

func TestCheckNamesTheField(t *testing.T) {
	tests := []struct {
		path   string
		change func(r *policy.Rule)
	}{
		{"name", func(r *policy.Rule) { r.Name = "x" }},
		{"name", func(r *policy.Rule) { r.Name = "policies/" }},
		{"match", func(r *policy.Rule) { r.Name, r.Match.Callers = policy.DefaultName, []string{"a"} }},
		{"match.hosts[1]", func(r *policy.Rule) { r.Match.Hosts = []string{"a", "http://a"} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"*"} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"*."} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"a*.example.com"} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"*.0.0.1"} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"10.0.0.0x1"} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"a..b"} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"-a.example.com"} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"b\u00fccher.example.com"} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"fe80::1%eth0"} }},
		{"match.hosts[0]", func(r *policy.Rule) { r.Match.Hosts = []string{"[::1"} }},
		{"match.ports[0]", func(r *policy.Rule) { r.Match.Ports = []uint32{65536} }},
		{"match.path_prefix", func(r *policy.Rule) { r.Match.PathPrefix = "v1" }},
		{"match.path_prefix", func(r *policy.Rule) { r.Match.PathPrefix = "/v1?x" }},
		// No call that is taken has such a path where prefixes count.
		{"match.path_prefix", func(r *policy.Rule) { r.Match.PathPrefix = "/v1/../v2" }},
		{"match.path_prefix", func(r *policy.Rule) { r.Match.PathPrefix = "/v1//v2" }},
		{"match.path_prefix", func(r *policy.Rule) { r.Match.PathPrefix = "/v1;a" }},
		{"match.path_prefix", func(r *policy.Rule) { r.Match.PathPrefix = "/v1%2Fv2" }},
		{"match.path_prefix", func(r *policy.Rule) { r.Match.PathPrefix = "/v1/a b" }},
		{"match.callers[0]", func(r *policy.Rule) { r.Match.Callers = []string{"a b"} }},
		{"match.callers[0]", func(r *policy.Rule) { r.Match.Callers = []string{strings.Repeat("a", 256)} }},
		{"match.callers[0]", func(r *policy.Rule) { r.Match.Callers = []string{""} }},
		{"match", func(r *policy.Rule) { r.Match.Hosts = slices.Repeat([]string{"a"}, 100_001) }},
		{"match", func(r *policy.Rule) {
			r.Match.Hosts, r.Match.Callers = slices.Repeat([]string{"a"}, 1001), slices.Repeat([]string{"b"}, 100)
		}},
		{"retry.backoff.cap", func(r *policy.Rule) {
			r.Retry.Backoff.Base, r.Retry.Backoff.Cap = new(time.Second), new(time.Millisecond)
		}},
		{"deferred.backoff.cap", func(r *policy.Rule) {
			r.Deferred.Backoff.Base, r.Deferred.Backoff.Cap = new(time.Second), new(time.Millisecond)
		}},
		{"breaker.open_cap", func(r *policy.Rule) { r.Breaker.OpenBase, r.Breaker.OpenCap = new(time.Second), new(time.Millisecond) }},
		{"retry.backoff.multiplier", func(r *policy.Rule) { r.Retry.Backoff.Multiplier = new(math.NaN()) }},
		{"budget.window", func(r *policy.Rule) {
			r.Budget.Limit = &policy.BudgetLimitRule{Window: &policy.BudgetWindowRule{Ratio: new(math.Inf(1))}}
		}},
		{"hedge.percentile", func(r *policy.Rule) { r.Hedge.Trigger = &policy.HedgeTriggerRule{Percentile: new(math.NaN())} }},
		{"budget", func(r *policy.Rule) { r.Budget.Limit = &policy.BudgetLimitRule{} }},
		{"budget.window.period", func(r *policy.Rule) {
			r.Budget.Limit = &policy.BudgetLimitRule{Window: &policy.BudgetWindowRule{Period: new(budget.MaxPeriod + 1)}}
		}},
		{"budget.token_bucket.max_tokens", func(r *policy.Rule) {
			r.Budget.Limit = &policy.BudgetLimitRule{TokenBucket: &policy.TokenBucketRule{MaxTokens: new(0.0009)}}
		}},
		{"budget.token_bucket.max_tokens", func(r *policy.Rule) {
			r.Budget.Limit = &policy.BudgetLimitRule{TokenBucket: &policy.TokenBucketRule{MaxTokens: new(1000001.0)}}
		}},
		{"hedge", func(r *policy.Rule) { r.Hedge.Trigger = &policy.HedgeTriggerRule{} }},
		{"egress.allow_cidrs[0]", func(r *policy.Rule) { r.Egress.AllowCIDRs = []string{"10.0.0.0"} }},
		{"egress.deny_cidrs[0]", func(r *policy.Rule) { r.Egress.DenyCIDRs = []string{"::ffff:10.0.0.0/104"} }},
		{"egress.ports[0]", func(r *policy.Rule) { r.Egress.Ports = []uint32{0} }},
		{"egress.tls.ca_pem", func(r *policy.Rule) { r.Egress.TLS.CAPEM = new("no certificate") }},
		{"deadline.header", func(r *policy.Rule) { r.Deadline.Header = new("Content-Length") }},
		{"idempotency.header", func(r *policy.Rule) { r.Idempotency.Header = new("a b") }},
		{`headers.set["Host"]`, func(r *policy.Rule) { r.Headers.Set = map[string]string{"Host": "a"} }},
		{`headers.set["X-A"]`, func(r *policy.Rule) { r.Headers.Set = map[string]string{"X-A": "a\nb"} }},
		{`headers.set["x-a"]`, func(r *policy.Rule) { r.Headers.Set = map[string]string{"X-A": "1", "x-a": "1"} }},
		{"credentials[0].header", func(r *policy.Rule) { r.Credentials = []policy.Credential{{Secret: "s", Hosts: []string{"a"}}} }},
		{"credentials[0].prefix", func(r *policy.Rule) {
			r.Credentials = []policy.Credential{{Header: "X-A", Prefix: "\x00", Secret: "s", Hosts: []string{"a"}}}
		}},
		{"credentials[0].secret", func(r *policy.Rule) {
			r.Credentials = []policy.Credential{{Header: "X-A", Secret: "../s", Hosts: []string{"a"}}}
		}},
		{"credentials[0].hosts", func(r *policy.Rule) { r.Credentials = []policy.Credential{{Header: "X-A", Secret: "s"}} }},
		{"credentials[0].hosts[0]", func(r *policy.Rule) {
			r.Credentials = []policy.Credential{{Header: "X-A", Secret: "s", Hosts: []string{"*"}}}
		}},
		{"status_probe.settle", func(r *policy.Rule) {
			r.StatusProbe.Authoritative, r.StatusProbe.NotAppliedStatuses = new(true), []uint32{404}
		}},
	}
	for _, tt := range tests {
		r := policy.Rule{Name: "policies/x"}
		tt.change(&r)
		problems := policy.Check([]policy.Rule{{Name: "policies/good"}, r})
		if len(problems) != 1 || problems[0].Path != tt.path || problems[0].Rule != 1 || problems[0].Text == "" {
			t.Errorf("%v, want one at %s", problems, tt.path)
		}
	}
}

func TestCheckFindsANameTwice(t *testing.T) {
	problems := policy.Check([]policy.Rule{{Name: "policies/x"}, {Name: "policies/y"}, {Name: "policies/x", Off: true}})
	if len(problems) != 1 || problems[0].Rule != 2 || problems[0].Path != "name" {
		t.Errorf("%v", problems)
	}
}

// FuzzHostPattern: a pattern that is accepted can be met: a URL of that host is covered, if a URL of it can be written at all.
func FuzzHostPattern(f *testing.F) {
	for _, s := range []string{"example.com", "*.Example.com.", "[::1]", "127.1", "2001:DB8::0:1", "xn--bcher-kva.example.com", "a_b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		table, err := policy.Compile([]policy.Rule{rule("x", 7, policy.Match{Hosts: []string{pattern}})}, policy.Options{})
		if err != nil {
			return
		}
		host := strings.Replace(pattern, "*.", "w.", 1)
		if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && a.Is6() {
			host = "[" + a.String() + "]"
		}
		target, err := call.ParseTarget("https://" + host + "/")
		if err != nil {
			return
		}
		if e := table.Match(&call.Call{Target: target}); e.Retry.MaxAttempts != 7 {
			t.Errorf("%q does not cover %q", pattern, target.Host)
		}
	})
}
