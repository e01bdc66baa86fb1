package broker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"buf.build/go/protovalidate"

	"github.com/sallyport/sallyport/call"
	sallyportv1 "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// inPolicy puts lines into the first policy of a file, indented.
func inPolicy(lines string) string {
	return "policies:\n- name: policies/x\n  " + strings.ReplaceAll(lines, "\n", "\n  ") + "\n"
}

func TestGoodPolicyFilesAreRead(t *testing.T) {
	const snake = `
# Everything a newcomer writes first.
policies:
- name: policies/default
  retry: {max_attempts: 4, backoff: {base: 0.1s, jitter: JITTER_NONE}}
- name: policies/payments
  description: card payments
  priority: 3
  match:
    hosts: ["*.pay.example.com", "192.0.2.7", "2001:db8::1"]
    path_prefix: /v1
  deadline: {default_timeout: 1m30s}
  idempotency: {}
  body: {max_request_bytes: 1Mi}
  headers: {set: {X-Team: blue}}
- name: policies/later
  mode: POLICY_MODE_OFF
`
	const camel = `{
	"policies": [
		{"name": "policies/default", "retry": {"maxAttempts": 4, "backoff": {"base": "0.1s", "jitter": "JITTER_NONE"}}},
		{"name": "policies/payments", "description": "card payments", "priority": 3,
		 "match": {"hosts": ["*.pay.example.com", "192.0.2.7", "2001:db8::1"], "pathPrefix": "/v1"},
		 "deadline": {"defaultTimeout": "90s"}, "idempotency": {}, "body": {"maxRequestBytes": "1048576"},
		 "headers": {"set": {"X-Team": "blue"}}},
		{"name": "policies/later", "mode": 2}
	]
}`
	for name, text := range map[string]string{"YAML": snake, "JSON": camel} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policies")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			rules, err := LoadPolicyFile(path)
			if err != nil {
				t.Fatal(err)
			}
			table, err := policy.Compile(rules, policy.Options{})
			if err != nil {
				t.Fatal(err)
			}
			target, err := call.ParseTarget("https://a.pay.example.com/v1/charges")
			if err != nil {
				t.Fatal(err)
			}
			e := table.Match(&call.Call{Method: "POST", Target: target})
			if e.Policy != "policies/payments@1" || e.Retry.MaxAttempts != 4 || e.Retry.Backoff.Base != 100*time.Millisecond ||
				e.Deadline.DefaultTimeout != 90*time.Second || !e.Idempotency.Enabled || e.Body.MaxRequestBytes != 1<<20 ||
				e.Headers.Set[0] != (call.Header{Name: "X-Team", Value: "blue"}) {
				t.Errorf("%s: %+v", e.Policy, e)
			}
			if !rules[2].Off || !rules[0].File || rules[1].Priority != 3 || rules[1].Description != "card payments" {
				t.Errorf("rules: %+v", rules)
			}
		})
	}
}

func TestLegalThoughOdd(t *testing.T) {
	for name, text := range map[string]string{
		"no policies":                     "policies: []\n",
		"a margin above the timeout":      inPolicy("deadline: {default_timeout: 1s, caller_margin: 5s}"),
		"zero where it switches off":      inPolicy("breaker: {consecutive_failures: 0, slow_call_threshold: 0s, ramp: 0s}\nconcurrency: {max_in_flight: 0}\nhedge: {max_hedges: 0}\nretry: {hold_max: 0s}"),
		"zero where it means none":        inPolicy("concurrency: {max_pending: 0, pending_wait: 0s}\nbody: {replay_bytes: 0}\nattempt: {max_idle_unsafe: 0s}"),
		"ratios of zero":                  inPolicy("budget: {window: {ratio: 0}, caller_max_share: 0}\nretry: {backoff: {jitter_ratio: 0}}"),
		"a cap without a base":            inPolicy("retry: {backoff: {cap: 1ms}}"),
		"an empty list":                   inPolicy("retry: {statuses: []}"),
		"a rate of one":                   inPolicy("breaker: {failure_rate: 1}"),
		"the largest bodies":              inPolicy("body: {max_request_bytes: 16777216, max_response_bytes: 16Mi}"),
		"Authorization set by a policy":   inPolicy("headers: {set: {Authorization: Bearer x}}"),
		"a policy that says nothing":      inPolicy("description: none"),
		"what the broker writes, ignored": inPolicy("etag: x\nrevision: 7"),
	} {
		t.Run(name, func(t *testing.T) {
			if rules, err := parsePolicies("f", []byte(text)); err != nil {
				t.Error(err)
			} else if len(rules) > 0 && rules[0].Revision != 1 {
				t.Errorf("revision %d", rules[0].Revision)
			}
		})
	}
}

func TestBadPolicyFilesAreRefusedWithLineAndField(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // the beginning of every line of the error
	}{
		{"no YAML", "policies:\n- name: [\n", []string{"f:2:1: did not find"}},
		{"a list at the top", "- name: policies/x\n", []string{`f:1:1: write "policies:"`}},
		{"a word", "hello\n", []string{`f:1:1: write "policies:"`}},
		{"two documents", "policies: []\n---\npolicies: []\n", []string{"f:2:1: a second document"}},
		{"an unknown field at the top", "policy: []\n", []string{`f:1:1: policy: unknown field "policy"`}},
		{"an unknown field", inPolicy("retry:\n  max_atempts: 2"), []string{`f:4:5: policies[0].retry.max_atempts: unknown field`}},
		{"an unknown field in another case", inPolicy("Retry: {}"), []string{`f:3:3: policies[0].Retry: unknown field`}},
		{"a field by its number", inPolicy("12: {}"), []string{`f:3:3: policies[0].12: unknown field`}},
		{"a field twice", inPolicy("retry: {max_attempts: 2, maxAttempts: 3}"), []string{"f:3:28: policies[0].retry.max_attempts: only one"}},
		{"a header twice", inPolicy("headers:\n  set:\n    X-A: 1\n    X-A: 2"), []string{`f:6:7: policies[0].headers.set["X-A"]: is there twice`}},
		{"a header twice in two cases", inPolicy("headers:\n  set: {X-A: 1, x-a: 2}"), []string{`f:4:19: policies[0].headers.set["x-a"]: is the same field as X-A`}},
		{"two budgets", inPolicy("budget:\n  window: {}\n  token_bucket: {}"), []string{"f:5:5: policies[0].budget.token_bucket: only one of window and token_bucket"}},
		{"no value", inPolicy("retry:\n  max_attempts:"), []string{"f:4:18: policies[0].retry.max_attempts: has no value"}},
		{"a null text", inPolicy("deadline: {header: null}"), []string{"f:3:22: policies[0].deadline.header: has no value"}},
		{"a block without a value", inPolicy("idempotency:"), []string{"f:3:15: policies[0].idempotency: has no value"}},
		{"a value that is missing at the very end", "x: #\n? policies", []string{"f:1:1: x: unknown field", "f:3:1: policies: has no value"}},
		{"lines that end in CR", "# one\r# two\rpolicies:\r- name: policies/x\r  retry: {max_attempts: x}", []string{"f:5:25: policies[0].retry.max_attempts: invalid"}},
		{"a word for a number", inPolicy("retry: {max_attempts: many}"), []string{"f:3:25: policies[0].retry.max_attempts: invalid"}},
		{"a number for a duration", inPolicy("attempt: {timeout: 5}"), []string{"f:3:22: policies[0].attempt.timeout: invalid duration: missing unit"}},
		{"a list for a block", inPolicy("retry: []"), []string{"f:3:10: policies[0].retry: expected fields"}},
		{"a block for a list", inPolicy("retry: {statuses: {a: 1}}"), []string{"f:3:21: policies[0].retry.statuses: expected sequence"}},
		{"a block for all policies", "policies: {name: policies/x}\n", []string{"f:1:11: policies: expected sequence"}},
		{"an unknown enum value", inPolicy("retry: {backoff: {jitter: FULL}}"), []string{"f:3:29: policies[0].retry.backoff.jitter: unknown enum value"}},
		{"an enum value out of range", inPolicy("retry: {backoff: {jitter: 9}}"), []string{"f:3:29: policies[0].retry.backoff.jitter: "}},
		{"no name", "policies:\n- priority: 1\n", []string{"f:2:3: policies[0].name: "}},
		{"a name of another kind", "policies:\n- name: payments\n", []string{"f:2:9: policies[0].name: "}},
		{"a name twice", "policies:\n- name: policies/x\n- name: policies/x\n", []string{"f:3:9: policies[1].name: policies/x is the name of policies[0] too"}},
		{"a match of the default", "policies:\n- name: policies/default\n  match: {methods: [GET]}\n", []string{"f:3:3: policies[0].match: policies/default"}},
		{"an open wildcard", inPolicy("match: {hosts: ['*']}"), []string{"f:3:19: policies[0].match.hosts[0]: "}},
		{"a wildcard in the middle", inPolicy("match: {hosts: [example.com, 'a.*.example.com']}"), []string{"f:3:32: policies[0].match.hosts[1]: "}},
		{"a host with a port", inPolicy("match: {hosts: ['example.com:80']}"), []string{"f:3:19: policies[0].match.hosts[0]: "}},
		{"a short address", inPolicy("match: {hosts: ['127.1']}"), []string{"f:3:19: policies[0].match.hosts[0]: "}},
		{"port 0", inPolicy("match: {ports: [0]}"), []string{"f:3:19: policies[0].match.ports[0]: "}},
		{"a large port", inPolicy("egress: {ports: [80, 70000]}"), []string{"f:3:24: policies[0].egress.ports[1]: "}},
		{"a method with a blank", inPolicy("match: {methods: ['G T']}"), []string{"f:3:21: policies[0].match.methods[0]: "}},
		{"a relative prefix", inPolicy("match: {path_prefix: v1}"), []string{"f:3:24: policies[0].match.path_prefix: "}},
		{"a negative duration", inPolicy("retry: {backoff: {base: -1s}}"), []string{"f:3:27: policies[0].retry.backoff.base: "}},
		{"a negative margin", inPolicy("deadline: {caller_margin: -1ms}"), []string{"f:3:29: policies[0].deadline.caller_margin: "}},
		{"a timeout of 0", inPolicy("attempt: {timeout: 0s}"), []string{"f:3:22: policies[0].attempt.timeout: "}},
		{"multiplier below 1", inPolicy("retry: {backoff: {multiplier: 0.9}}"), []string{"f:3:33: policies[0].retry.backoff.multiplier: "}},
		{"multiplier that is no number", inPolicy("retry: {backoff: {multiplier: .nan}}"), []string{"f:3:33: policies[0].retry.backoff.multiplier: "}},
		{"an endless multiplier", inPolicy("retry: {backoff: {multiplier: inf}}"), []string{"f:3:33: policies[0].retry.backoff.multiplier: "}},
		{"max_attempts 0", inPolicy("retry: {max_attempts: 0}"), []string{"f:3:25: policies[0].retry.max_attempts: "}},
		{"max_attempts below 0", inPolicy("retry: {max_attempts: -1}"), []string{"f:3:25: policies[0].retry.max_attempts: "}},
		{"cap below base", inPolicy("retry:\n  backoff:\n    base: 2s\n    cap: 1s"), []string{"f:6:12: policies[0].retry.backoff.cap: "}},
		{"open_cap below open_base", inPolicy("breaker: {open_base: 2s, open_cap: 1s}"), []string{"f:3:38: policies[0].breaker.open_cap: "}},
		{"a status of 99", inPolicy("retry: {statuses: [503, 99]}"), []string{"f:3:27: policies[0].retry.statuses[1]: "}},
		{"a status of 600", inPolicy("response: {success_statuses: [600]}"), []string{"f:3:33: policies[0].response.success_statuses[0]: "}},
		{"a range of statuses", inPolicy("retry: {statuses: [429, 502-504]}"), []string{"f:3:27: policies[0].retry.statuses[1]: write a number such as 503"}},
		{"a class of statuses", inPolicy("response: {successStatuses: [2xx]}"), []string{"f:3:32: policies[0].response.success_statuses[0]: write a number such as 503"}},
		{"failure_rate 0", inPolicy("breaker: {failure_rate: 0}"), []string{"f:3:27: policies[0].breaker.failure_rate: "}},
		{"failure_rate above 1", inPolicy("breaker: {failure_rate: 1.1}"), []string{"f:3:27: policies[0].breaker.failure_rate: "}},
		{"min_requests 0", inPolicy("breaker: {min_requests: 0}"), []string{"f:3:27: policies[0].breaker.min_requests: "}},
		{"close_after 0", inPolicy("breaker: {close_after: 0}"), []string{"f:3:26: policies[0].breaker.close_after: "}},
		{"ratio below 0", inPolicy("budget: {window: {ratio: -0.1}}"), []string{"f:3:28: policies[0].budget.window.ratio: "}},
		{"token_ratio 0", inPolicy("budget: {token_bucket: {token_ratio: 0}}"), []string{"f:3:40: policies[0].budget.token_bucket.token_ratio: "}},
		{"max_tokens 0", inPolicy("budget: {token_bucket: {max_tokens: 0}}"), []string{"f:3:39: policies[0].budget.token_bucket.max_tokens: "}},
		{"max_tokens above all", inPolicy("budget: {token_bucket: {max_tokens: 1e7}}"), []string{"f:3:39: policies[0].budget.token_bucket.max_tokens: write a number from 0.001 to 10000"}},
		{"a period of many years", inPolicy("budget: {window: {period: 99999h}}"), []string{"f:3:29: policies[0].budget.window.period: is longer"}},
		{"max_request_bytes 0", inPolicy("body: {max_request_bytes: 0}"), []string{"f:3:29: policies[0].body.max_request_bytes: "}},
		{"max_response_bytes over 16 MiB", inPolicy("body: {max_response_bytes: 16777217}"), []string{"f:3:30: policies[0].body.max_response_bytes: "}},
		{"max_header_bytes 0", inPolicy("response: {max_header_bytes: 0}"), []string{"f:3:32: policies[0].response.max_header_bytes: "}},
		{"a range of nothing", inPolicy("egress: {allow_cidrs: [10.0.0.0]}"), []string{"f:3:26: policies[0].egress.allow_cidrs[0]: "}},
		{"a mapped range", inPolicy("egress: {deny_cidrs: ['::ffff:10.0.0.0/104']}"), []string{"f:3:25: policies[0].egress.deny_cidrs[0]: "}},
		{"a proxy without a port", inPolicy("egress: {proxy: 'http://proxy.example.com'}"), []string{"f:3:19: policies[0].egress.proxy: name the port too"}},
		{"a proxy over TLS", inPolicy("egress: {proxy: 'https://proxy.example.com:3128'}"), []string{"f:3:19: policies[0].egress.proxy: write http://host:port"}},
		{"a proxy with a password", inPolicy("egress: {proxy: 'http://u:p@proxy.example.com:3128'}"), []string{"f:3:19: policies[0].egress.proxy: leave user and password out"}},
		{"a proxy with a slash", inPolicy("egress: {proxy: 'http://proxy.example.com:3128/'}"), []string{"f:3:19: policies[0].egress.proxy: write http://host:port and nothing behind it"}},
		{"a proxy with a zone", inPolicy("egress: {proxy: 'http://[fe80::1%lo]:3128'}"), []string{"f:3:19: policies[0].egress.proxy: write http://host:port: "}},
		{"a CA without a certificate", inPolicy("egress:\n  tls:\n    ca_pem: |\n      -----BEGIN CERTIFICATE-----\n      AAAA\n      -----END CERTIFICATE-----"), []string{"f:5:15: policies[0].egress.tls.ca_pem: "}},
		{"Host set by a policy", inPolicy("headers: {set: {Host: a}}"), []string{`f:3:19: policies[0].headers.set["Host"]: `}},
		{"baggage set by a policy", inPolicy("headers: {set: {Baggage: a}}"), []string{`f:3:19: policies[0].headers.set["Baggage"]: `}},
		{"a method override by a policy", inPolicy("headers: {set: {X_HTTP_Method_Override: DELETE}}"), []string{`f:3:19: policies[0].headers.set["X_HTTP_Method_Override"]: `}},
		{"a name that is no token", inPolicy("headers: {set: {'X A': a}}"), []string{`f:3:19: policies[0].headers.set["X A"]: `}},
		{"a value with a line break", inPolicy(`headers: {set: {X-A: "a\r\nb"}}`), []string{`f:3:19: policies[0].headers.set["X-A"]: `}},
		{"a reserved credential", inPolicy("credentials:\n- {header: TE, secret: s, hosts: [example.com]}"), []string{"f:4:14: policies[0].credentials[0].header: "}},
		{"a credential without a header", inPolicy("credentials:\n- {secret: s, hosts: [example.com]}"), []string{"f:4:5: policies[0].credentials[0].header: "}},
		{"a credential for anybody", inPolicy("credentials:\n- {header: X-Key, secret: s}"), []string{"f:4:5: policies[0].credentials[0].hosts: "}},
		{"a secret with a path", inPolicy("credentials:\n- {header: X-Key, secret: ../s, hosts: [example.com]}"), []string{"f:4:29: policies[0].credentials[0].secret: "}},
		{"an authoritative probe without settle", inPolicy("status_probe: {url_template: /x, authoritative: true, not_applied_statuses: [404]}"), []string{"f:3:3: policies[0].status_probe.settle: "}},
		{
			"many at once, in the order of the text",
			"policies:\n- nmae: policies/x\n  retry: {max_attempts: 0}\n- name: policies/y\n  attempt: {timeout: soon, widen_last: maybe}\n",
			[]string{
				"f:2:3: policies[0].nmae: unknown field", "f:2:3: policies[0].name: ", "f:3:25: policies[0].retry.max_attempts: ",
				"f:5:22: policies[1].attempt.timeout: ", "f:5:40: policies[1].attempt.widen_last: ",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := parsePolicies("f", []byte(tt.text))
			if err == nil {
				t.Fatalf("accepted as %+v", rules)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("%d lines, want %d:\n%v", len(lines), len(tt.want), err)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(lines[i], want) || len(lines[i]) < len(want)+1 {
					t.Errorf("line %d is\n%s\nwant it to begin with\n%s", i, lines[i], want)
				}
			}
		})
	}
}

func TestMissingPolicyFileIsNamed(t *testing.T) {
	_, err := LoadPolicyFile(filepath.Join(t.TempDir(), "absent.yaml"))
	if err == nil || !strings.Contains(err.Error(), "absent.yaml") {
		t.Errorf("error %v", err)
	}
}

// FuzzPolicyFile: whatever the bytes, there are rules that compile or an error of clear lines, and no panic.
func FuzzPolicyFile(f *testing.F) {
	f.Add([]byte(inPolicy("retry: {backoff: {base: 1s}}")))
	f.Add([]byte("policies:\n- &a {name: policies/x}\n- *a\n"))
	f.Add([]byte(`{"policies":[{"name":"policies/x","headers":{"set":{"X-A":"b"}},"budget":{"window":{}}}]}`))
	f.Add([]byte("policies: [[], 1, null, {hedge: {delay: 1s, percentile: 2}}]\n? [a]\n: b"))
	f.Add([]byte("x: [[],\r1]\n? 1")) // an absent value behind the last line, where CR ends lines too
	f.Add([]byte("? 0\n\n 0"))        // a name of two lines
	f.Add([]byte("\r\r\rx: |+\n  y\n? "))
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := parsePolicies("f", data)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "f:") {
					t.Fatalf("line %q of the error", line)
				}
			}
			return
		}
		if _, err := policy.Compile(rules, policy.Options{}); err != nil {
			t.Fatalf("accepted, but: %v", err)
		}
	})
}

// FuzzProxy: the constraint of the proto is left unsaid in a file, since the check of package policy knows more; so it must find all that
// the proto forbids.
func FuzzProxy(f *testing.F) {
	for _, url := range []string{
		"", "http://proxy.example.com:3128", "http://10.0.0.7:1", "http://[fd00::7]:3128", "http://a_b:1", "http://a.1:1", "http://a:01",
		"http://[::ffff:10.0.0.7]:1", "http://[fe80::1%a]:1", "http://a..b:1", "http://a.:1", "http://-a:1", "http://1.2.3.4.5:1",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		p := &sallyportv1.Policy{Name: "policies/x", Egress: &sallyportv1.EgressPolicy{Proxy: &url}}
		if err := protovalidate.Validate(p); err != nil && len(policy.Check([]policy.Rule{policyRule(p)})) == 0 && utf8.ValidString(url) {
			t.Errorf("%q: only the proto refuses it: %v", url, err)
		}
	})
}

// A file that was cut short must not read as "no policies": the rules in force would be gone.
func TestFileWithoutAListIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"an empty file": "", "nothing but a comment": "# later\n", "an empty document": "---\n", "an empty block": "{}", "null": "null",
	} {
		if _, err := parsePolicies("f", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "f:1:1: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
