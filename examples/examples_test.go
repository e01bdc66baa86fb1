// Package examples_test holds the examples to what the broker accepts.
package examples_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// files are the example policies.
func files(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("policies/*.yaml")
	if err != nil || len(all) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	return append(all, "charge/policies.yaml", "reading-list/policies.yaml", "deploy-script/policies.yaml")
}

func TestEveryExampleLints(t *testing.T) {
	for _, file := range files(t) {
		t.Run(file, func(t *testing.T) {
			rules, err := broker.LoadPolicyFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(rules) == 0 {
				t.Error("the example has no policy")
			}
			if _, err := policy.Compile(rules, policy.Options{Generations: new(atomic.Uint64)}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The examples also do what their comments say.
func TestExamplesRuleWhatTheySay(t *testing.T) {
	for _, tt := range []struct {
		name, file, method, url, caller string
		leaf, value, by                 string
	}{
		{"a payment is keyed", "payments", "POST", "https://payments.example.com/v1/payments", "", "idempotency.enabled", "true", "policies/payments"},
		{"a report is not", "payments", "POST", "https://payments.example.com/v1/reports/7", "", "idempotency.enabled", "false", "policies/payments-reports"},
		{"a report inherits the rest", "payments", "GET", "https://payments.example.com/v1/reports", "", "deadline.max_timeout", "20s", "policies/payments"},
		{"internal names open their range", "internal", "GET", "http://a.b.internal.example.com/", "", "egress.allow_cidrs", "10.20.0.0/16", "policies/internal"},
		{"the apex is not covered", "internal", "GET", "http://internal.example.com/", "", "egress.allow_cidrs", "unset", "policies/default"},
		{"a named caller gets the key", "credentials", "GET", "https://geo.example.com/", "shop", "egress.allow_http", "false", "policies/geo"},
		{"another caller does not", "credentials", "GET", "https://geo.example.com/", "else", "credentials", "unset", "policies/default"},
		{"404 settles a DELETE", "flaky", "DELETE", "https://flaky.example.com/x", "", "retry.success_after_unknown", "404", "policies/flaky-delete"},
		{"404 settles nothing else", "flaky", "PUT", "https://flaky.example.com/x", "", "retry.success_after_unknown", "unset", "policies/default"},
		{"the world is reached through the proxy", "proxy", "GET", "https://api.example.com/", "", "egress.proxy", "http://proxy.internal.example.com:3128", "policies/outside"},
		{"the inside straight", "proxy", "GET", "https://a.internal.example.com/", "", "egress.proxy", `""`, "policies/inside"},
		{"HTTP/2 is offered first", "http2", "GET", "https://api.example.com/", "", "attempt.protocols", "PROTOCOL_HTTP_2 PROTOCOL_HTTP_1_1", "policies/http2"},
		{"a GOAWAY is believed where it is kept", "http2", "POST", "https://rpc.example.com/", "", "retry.trust_goaway", "true", "policies/http2-rpc"},
		{"one port of this machine", "loopback", "GET", "http://127.0.0.1:8000/", "", "egress.ports", "8000", "policies/beside"},
		{"the reading list asks identity", "../reading-list/policies", "GET", "http://127.0.0.1:9001/whoami", "reading-list", "egress.allow_cidrs", "127.0.0.1/32", "policies/identity"},
		{"whoever reads pages does not", "../reading-list/policies", "GET", "http://127.0.0.1:9001/whoami", "reading-list-pages", "egress.allow_cidrs", "unset", "policies/default"},
		{"a page is tried once", "../reading-list/policies", "GET", "https://www.example.com/", "reading-list-pages", "retry.max_attempts", "1", "policies/pages"},
		{"no other", "loopback", "GET", "http://127.0.0.1:8001/", "", "egress.allow_cidrs", "unset", "policies/default"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := broker.LoadPolicyFile("policies/" + tt.file + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			table, err := policy.Compile(rules, policy.Options{Generations: new(atomic.Uint64)})
			if err != nil {
				t.Fatal(err)
			}
			target, err := call.ParseTarget(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			for _, leaf := range table.Resolve(&call.Call{Method: tt.method, Target: target, Caller: tt.caller}).Leaves() {
				if leaf.Path != tt.leaf {
					continue
				}
				if leaf.Value != tt.value || leaf.Source.Policy != tt.by && leaf.Value != "unset" {
					t.Errorf("%s is %s by %s, want %s by %s", leaf.Path, leaf.Value, leaf.Source.Policy, tt.value, tt.by)
				}
				return
			}
			t.Errorf("no field %s", tt.leaf)
		})
	}
}
