package policy_test

import (
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// compile makes a table of rules that must be good.
func compile(t testing.TB, rules ...policy.Rule) *policy.Table {
	t.Helper()
	table, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// callTo makes a call of nobody in particular.
func callTo(t testing.TB, method, url, caller string) *call.Call {
	t.Helper()
	target, err := call.ParseTarget(url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return &call.Call{Method: method, Target: target, Caller: caller}
}

// rule is a policy that sets one leaf, so that two of them compete for it.
func rule(name string, attempts uint32, match policy.Match) policy.Rule {
	r := policy.Rule{Name: "policies/" + name, Revision: 1, Match: match}
	r.Retry.MaxAttempts = new(attempts)
	return r
}

func TestEveryDefaultIsTheContracts(t *testing.T) {
	want := []string{
		"deadline.default_timeout 15s", "deadline.max_timeout 1m", "deadline.caller_margin unset",
		"deadline.min_attempt_time 50ms", `deadline.header ""`, "deadline.max_stream_duration 1h",
		"attempt.protocols PROTOCOL_HTTP_1_1", "attempt.max_idle_unsafe 2s", "attempt.timeout 10s",
		"attempt.connect_timeout 3s", "attempt.dns_timeout 2s", "attempt.header_timeout unset",
		"attempt.idle_body_timeout unset", "attempt.widen_last false",
		"retry.max_attempts 3", "retry.statuses 408 425 429 500 502-504", "retry.rejection_statuses unset",
		"retry.idempotent_methods GET HEAD OPTIONS TRACE PUT DELETE", "retry.trust_callers false",
		"retry.retry_after_max 10s", "retry.hold true", "retry.hold_max 1m",
		"retry.verdict_header.name unset", "retry.verdict_header.retry_values unset",
		"retry.verdict_header.stop_values unset", "retry.verdict_header.enabled false",
		"retry.success_after_unknown unset", "retry.trust_goaway false",
		"retry.backoff.base 50ms", "retry.backoff.multiplier 2", "retry.backoff.cap 2s", "retry.backoff.jitter JITTER_FULL",
		"retry.backoff.jitter_ratio 0.2", "retry.backoff.throttle_base 1s",
		"idempotency.header Idempotency-Key", "idempotency.methods POST PATCH", "idempotency.key_ttl 24h",
		"idempotency.in_progress_statuses 409", "idempotency.mismatch_statuses 422", "idempotency.enabled false",
		"status_probe.url_template unset", "status_probe.applied_statuses unset", "status_probe.not_applied_statuses unset",
		"status_probe.in_progress_statuses unset", "status_probe.json_pointer unset", "status_probe.applied_values unset",
		"status_probe.not_applied_values unset", "status_probe.authoritative false", "status_probe.settle unset",
		"status_probe.enabled false",
		"budget.window ratio 0.2, period 10s, min_per_second 1", "budget.caller_max_share 0.5",
		"breaker.consecutive_failures 5", "breaker.failure_rate 0.5", "breaker.min_requests 20", "breaker.window 10s",
		"breaker.open_base 1s", "breaker.open_cap 1m", "breaker.open_jitter 0.5", "breaker.close_after 1",
		"breaker.slow_call_threshold unset", "breaker.slow_call_rate 0.8", "breaker.min_distinct_callers 2",
		"breaker.ramp 0s", "breaker.timeout_floor 1s",
		"concurrency.max_in_flight 512", "concurrency.max_pending 128", "concurrency.pending_wait 100ms",
		"hedge.percentile 95", "hedge.max_hedges 1", "hedge.max_extra 0.05", "hedge.methods GET HEAD OPTIONS",
		"hedge.enabled false",
		"body.max_request_bytes 3145728", "body.replay_bytes 1048576", "body.max_response_bytes 3145728",
		"response.success_statuses 200-399",
		"response.definitive_statuses 200-407 409-424 426-428 430-499 501 505", "response.max_header_bytes 65536",
		"deferred.at_least_once true", "deferred.max_attempts 15", "deferred.max_age 24h",
		"deferred.backoff.base 5s", "deferred.backoff.multiplier 3", "deferred.backoff.cap 1h",
		"deferred.backoff.jitter JITTER_FULL", "deferred.backoff.jitter_ratio 0.2", "deferred.backoff.throttle_base 5s",
		"deferred.completed_retention 24h", "deferred.cancelled_retention 24h",
		"redirects.max_hops 0",
		"egress.allow_cidrs unset", "egress.deny_cidrs unset", "egress.ports 80 443", "egress.any_port false",
		"egress.allow_http true", "egress.tls.min_version TLS_VERSION_1_2", `egress.tls.ca_pem ""`,
		`egress.tls.client_certificate ""`, `egress.tls.server_name ""`, `egress.proxy ""`,
		"credentials unset", "hand_over.on_deadline false", "hand_over.on_breaker_open false",
		"headers.set unset", "headers.remove unset",
	}
	e := compile(t).Match(callTo(t, "GET", "https://example.com/", "local"))
	var got []string
	for _, l := range e.Leaves() {
		got = append(got, l.Path+" "+l.Value)
		if l.Source != (policy.Source{Policy: "policies/default"}) {
			t.Errorf("%s comes from %v, want the built-in policies/default@0", l.Path, l.Source)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d leaves, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("leaf %d: %q, want %q", i, got[i], want[i])
		}
	}
	if e.Policy != "policies/default@0" {
		t.Errorf("policy %q", e.Policy)
	}
}

func TestMostSpecificPolicyWins(t *testing.T) {
	type m = policy.Match
	long, short := m{Hosts: []string{"*.b.example.com"}}, m{Hosts: []string{"*.example.com"}}
	exact := m{Hosts: []string{"a.b.example.com"}}
	all := func(o m) m {
		o.Callers, o.Methods, o.Ports = []string{"local"}, []string{"GET"}, []uint32{443}
		return o
	}
	tests := []struct {
		name        string
		first, then policy.Rule
	}{
		{"smaller name", rule("a", 1, m{}), rule("b", 2, m{})},
		{"higher priority before name", prio(rule("b", 1, m{}), 1), rule("a", 2, m{})},
		{"negative priority", rule("b", 1, m{}), prio(rule("a", 2, m{}), -1)},
		{"ports before priority", rule("b", 1, m{Ports: []uint32{443}}), prio(rule("a", 2, m{}), 9)},
		{"methods before ports", rule("b", 1, m{Methods: []string{"GET"}}), prio(rule("a", 2, m{Ports: []uint32{443}}), 9)},
		{
			"callers before methods", rule("b", 1, m{Callers: []string{"local"}}),
			prio(rule("a", 2, m{Methods: []string{"GET"}, Ports: []uint32{443}}), 9),
		},
		{"path before callers", rule("b", 1, m{PathPrefix: "/x"}), prio(rule("a", 2, all(m{})), 9)},
		{"the root prefix before none", rule("b", 1, m{PathPrefix: "/"}), prio(rule("a", 2, all(m{})), 9)},
		{"longer path", rule("b", 1, m{PathPrefix: "/x/y"}), prio(rule("a", 2, all(m{PathPrefix: "/x/"})), 9)},
		{"a longer path by segments, not by a slash", rule("a", 1, m{PathPrefix: "/x"}), rule("b", 2, m{PathPrefix: "/x/"})},
		{"wildcard before path", rule("b", 1, short), prio(rule("a", 2, all(m{PathPrefix: "/x/y"})), 9)},
		{"longer wildcard", rule("b", 1, long), prio(rule("a", 2, all(short)), 9)},
		{"exact before wildcard", rule("b", 1, exact), prio(rule("a", 2, all(long)), 9)},
		{
			"the best of several patterns", rule("b", 1, m{Hosts: []string{"*.example.com", "a.b.example.com"}}),
			prio(rule("a", 2, all(long)), 9),
		},
		{"anything before the default", rule("z", 1, m{}), prio(rule("default", 2, m{}), 9)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, rules := range [][]policy.Rule{{tt.first, tt.then}, {tt.then, tt.first}} {
				e := compile(t, rules...).Match(callTo(t, "GET", "https://a.b.example.com/x/y/z", "local"))
				if e.Retry.MaxAttempts != 1 || e.Policy != tt.first.Name+"@1" {
					t.Errorf("%s wins with %d, want %s", e.Policy, e.Retry.MaxAttempts, tt.first.Name)
				}
			}
		})
	}
}

func prio(r policy.Rule, priority int32) policy.Rule {
	r.Priority = priority
	return r
}

func TestPolicyCoversWhatItsMatchSays(t *testing.T) {
	type m = policy.Match
	tests := []struct {
		name   string
		match  m
		url    string
		covers bool
	}{
		{"nothing named", m{}, "https://example.com/", true},
		{"host in another case", m{Hosts: []string{"EXAMPLE.com"}}, "https://Example.COM/", true},
		{"host with a dot at its end", m{Hosts: []string{"example.com."}}, "https://example.com/", true},
		{"URL with a dot at its end", m{Hosts: []string{"example.com"}}, "https://example.com./", true},
		{"another host", m{Hosts: []string{"example.com"}}, "https://a.example.com/", false},
		{"wildcard over one label", m{Hosts: []string{"*.example.com"}}, "https://a.example.com/", true},
		{"wildcard over two labels", m{Hosts: []string{"*.example.com"}}, "https://a.b.example.com/", true},
		{"wildcard and its apex", m{Hosts: []string{"*.example.com"}}, "https://example.com/", false},
		{"wildcard and a longer name", m{Hosts: []string{"*.example.com"}}, "https://badexample.com/", false},
		{"one label", m{Hosts: []string{"service"}}, "http://service/", true},
		{"IPv4", m{Hosts: []string{"192.0.2.7"}}, "http://192.0.2.7/", true},
		{"IPv6 in brackets, long form", m{Hosts: []string{"[2001:DB8:0::1]"}}, "http://[2001:db8::1]/", true},
		{"IPv4 in the form of IPv6", m{Hosts: []string{"192.0.2.7"}}, "http://[::ffff:192.0.2.7]/", true},
		{"port of the scheme", m{Ports: []uint32{443}}, "https://example.com/", true},
		{"another port", m{Ports: []uint32{443}}, "https://example.com:8443/", false},
		{"method", m{Methods: []string{"PUT", "GET"}}, "https://example.com/", true},
		{"method in another case", m{Methods: []string{"get"}}, "https://example.com/", false},
		{"caller", m{Callers: []string{"shop", "local"}}, "https://example.com/", true},
		{"another caller", m{Callers: []string{"shop"}}, "https://example.com/", false},
		{"path itself", m{PathPrefix: "/deep"}, "https://example.com/deep", true},
		{"path below", m{PathPrefix: "/deep"}, "https://example.com/deep/x", true},
		{"path before a query", m{PathPrefix: "/deep"}, "https://example.com/deep?x", true},
		{"path beside", m{PathPrefix: "/deep"}, "https://example.com/deeper", false},
		{"path above", m{PathPrefix: "/deep/x"}, "https://example.com/deep", false},
		{"prefix with a slash and the path itself", m{PathPrefix: "/deep/"}, "https://example.com/deep", true},
		{"prefix with a slash and a path below", m{PathPrefix: "/deep/"}, "https://example.com/deep/x", true},
		{"prefix with a slash and a path beside", m{PathPrefix: "/deep/"}, "https://example.com/deeper", false},
		{"root prefix", m{PathPrefix: "/"}, "https://example.com/deep", true},
		{"root prefix without a path", m{PathPrefix: "/"}, "https://example.com", true},
		{"escaped letter in the path", m{PathPrefix: "/deep"}, "https://example.com/%64eep/x", true},
		{"escaped letter in the prefix", m{PathPrefix: "/%64eep"}, "https://example.com/deep", true},
		{"escape in lower case", m{PathPrefix: "/a%3Fb"}, "https://example.com/a%3fb", true},
		{"escaped and plain delimiter differ", m{PathPrefix: "/a%40b"}, "https://example.com/a@b", false},
		{"path in another case", m{PathPrefix: "/deep"}, "https://example.com/Deep", false},
		{"everything at once", m{
			Hosts: []string{"*.example.com"}, Ports: []uint32{81, 80}, Methods: []string{"GET"},
			PathPrefix: "/a", Callers: []string{"local"},
		}, "http://x.example.com/a/b", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := compile(t, rule("x", 7, tt.match)).Match(callTo(t, "GET", tt.url, "local"))
			if covers := e.Policy == "policies/x@1"; covers != tt.covers {
				t.Errorf("covered: %v, want %v", covers, tt.covers)
			}
		})
	}
}

func TestLeavesInheritOneByOne(t *testing.T) {
	broad, narrow := rule("broad", 5, policy.Match{}), rule("narrow", 2, policy.Match{Hosts: []string{"example.com"}})
	broad.Attempt.Timeout = new(4 * time.Second)
	broad.Headers.Set = map[string]string{"X-A": "1", "X-B": "2"}
	narrow.Headers.Set = map[string]string{"X-B": "3"}
	narrow.Retry.Statuses = []uint32{}
	def := rule("default", 9, policy.Match{})
	def.Revision = 4
	def.Deadline.MaxTimeout = new(time.Second)
	e := compile(t, broad, narrow, def).Match(callTo(t, "GET", "https://example.com/", ""))

	if e.Retry.MaxAttempts != 2 || e.Attempt.Timeout != 4*time.Second || e.Deadline.MaxTimeout != time.Second {
		t.Errorf("merged to %d attempts of %s in %s", e.Retry.MaxAttempts, e.Attempt.Timeout, e.Deadline.MaxTimeout)
	}
	if len(e.Headers.Set) != 1 || e.Headers.Set[0] != (call.Header{Name: "X-B", Value: "3"}) {
		t.Errorf("headers.set is %v, want the narrower map alone", e.Headers.Set)
	}
	if !e.Retry.Statuses.Has(503) {
		t.Error("an empty list replaced the inherited one")
	}
	for path, want := range map[string]policy.Source{
		"retry.max_attempts":       {Policy: "policies/narrow", Revision: 1},
		"attempt.timeout":          {Policy: "policies/broad", Revision: 1},
		"deadline.max_timeout":     {Policy: "policies/default", Revision: 4},
		"deadline.default_timeout": {Policy: "policies/default", Revision: 0},
	} {
		if e.Sources[path] != want {
			t.Errorf("%s from %v, want %v", path, e.Sources[path], want)
		}
	}
}

func TestPolicyThatIsOffTakesNoPart(t *testing.T) {
	off, def := rule("x", 7, policy.Match{PathPrefix: "/a"}), rule("default", 9, policy.Match{})
	off.Off, def.Off = true, true
	table := compile(t, off, def)
	e := table.Match(callTo(t, "GET", "https://example.com/a", ""))
	if e.Policy != "policies/default@0" || e.Retry.MaxAttempts != 3 || table.PathScoped("example.com") {
		t.Errorf("%s with %d attempts, path scoped %v", e.Policy, e.Retry.MaxAttempts, table.PathScoped("example.com"))
	}
}
