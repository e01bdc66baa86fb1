package policy_test

import (
	"crypto/tls"
	"reflect"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

func TestWritingABlockSwitchesItOn(t *testing.T) {
	broad := policy.Rule{Name: "policies/broad"}
	broad.Idempotency.Header = new("X-Key")
	broad.Retry.VerdictHeader.StopValues = []string{"no"}
	broad.Hedge.Trigger = &policy.HedgeTriggerRule{Delay: new(time.Second)}
	narrow := policy.Rule{Name: "policies/narrow", Match: policy.Match{PathPrefix: "/plain"}}
	narrow.Idempotency.Enabled = new(false)
	table := compile(t, broad, narrow)

	on := table.Match(callTo(t, "POST", "https://example.com/", ""))
	if !on.Idempotency.Enabled || !on.Retry.VerdictHeader.Enabled || !on.Hedge.Enabled || on.StatusProbe.Enabled {
		t.Errorf("enabled: %v %v %v, status probe %v", on.Idempotency.Enabled, on.Retry.VerdictHeader.Enabled,
			on.Hedge.Enabled, on.StatusProbe.Enabled)
	}
	if on.Hedge.Delay != time.Second || on.Hedge.Percentile != 0 {
		t.Errorf("hedge after %s or at %v, want the delay alone", on.Hedge.Delay, on.Hedge.Percentile)
	}
	off := table.Match(callTo(t, "POST", "https://example.com/plain", ""))
	if off.Idempotency.Enabled || off.Idempotency.Header != "X-Key" || !off.Hedge.Enabled {
		t.Errorf("narrower: enabled %v, header %q, hedge %v", off.Idempotency.Enabled, off.Idempotency.Header, off.Hedge.Enabled)
	}
	if broad.Idempotency.Enabled != nil {
		t.Error("Compile changed the rule it was given")
	}
}

func TestBudgetLimitIsOneLeaf(t *testing.T) {
	broad, narrow := policy.Rule{Name: "policies/broad"}, policy.Rule{Name: "policies/narrow"}
	broad.Budget.Limit = &policy.BudgetLimitRule{TokenBucket: &policy.TokenBucketRule{MaxTokens: new(4.0), TokenRatio: new(0.5)}}
	narrow.Budget.Limit = &policy.BudgetLimitRule{TokenBucket: &policy.TokenBucketRule{MaxTokens: new(8.0)}}
	narrow.Match.Methods = []string{"PUT"}
	table := compile(t, broad, narrow)

	e := table.Match(callTo(t, "PUT", "https://example.com/", ""))
	want := policy.TokenBucket{MaxTokens: 8, TokenRatio: 0.1, Rule: policy.TokenRuleHalf}
	if e.Budget.Window != nil || e.Budget.TokenBucket == nil || *e.Budget.TokenBucket != want {
		t.Errorf("budget %+v and %+v, want %+v alone", e.Budget.Window, e.Budget.TokenBucket, want)
	}
	if s := e.Sources["budget.token_bucket"]; s.Policy != "policies/narrow" {
		t.Errorf("budget.token_bucket from %v", s)
	}
	if _, there := e.Sources["budget.window"]; there {
		t.Error("the member that is not set has a source")
	}
}

func TestOnlyAFilePolicyOpensLoopback(t *testing.T) {
	file, stored := policy.Rule{Name: "policies/file", File: true}, policy.Rule{Name: "policies/stored"}
	file.Egress.AllowCIDRs = []string{"127.0.0.1/8"}
	stored.Egress.AllowCIDRs = []string{"127.0.0.0/8"}
	stored.Match.PathPrefix = "/stored"
	// A more specific file policy that says nothing of allow_cidrs lends its trust to no other.
	bystander := policy.Rule{Name: "policies/bystander", File: true, Match: policy.Match{Hosts: []string{"localhost"}}}
	table := compile(t, file, stored, bystander)

	if r := table.Match(callTo(t, "GET", "http://localhost/", "")).Egress.Rules; !r.AllowLoopback || r.Allow[0].String() != "127.0.0.0/8" {
		t.Errorf("file: loopback %v through %v", r.AllowLoopback, r.Allow)
	}
	if table.Match(callTo(t, "GET", "http://localhost/stored", "")).Egress.Rules.AllowLoopback {
		t.Error("a stored policy opened loopback")
	}
	if compile(t).Match(callTo(t, "GET", "http://localhost/", "")).Egress.Rules.AllowLoopback {
		t.Error("the built-in policy opened loopback")
	}
}

func TestTLSComesFromThePolicy(t *testing.T) {
	def := compile(t).Match(callTo(t, "GET", "https://example.com/", "")).Egress.TLS
	if def.MinVersion != tls.VersionTLS12 || def.RootCAs != nil || def.NextProtos != nil {
		t.Errorf("default: version %x, roots %v, protocols %v", def.MinVersion, def.RootCAs, def.NextProtos)
	}
	r := policy.Rule{Name: "policies/x"}
	r.Egress.TLS.MinVersion = new(policy.TLSVersion13)
	r.Egress.TLS.CAPEM = new(caPEM(t))
	set := compile(t, r).Match(callTo(t, "GET", "https://example.com/", "")).Egress.TLS
	if set.MinVersion != tls.VersionTLS13 || set.RootCAs == nil {
		t.Errorf("set: version %x, roots %v", set.MinVersion, set.RootCAs)
	}
}

func TestFieldsComeSortedAndFolded(t *testing.T) {
	r := policy.Rule{Name: "policies/x"}
	r.Headers.Set = map[string]string{"X-C": "3", "X-A": "1", "X-B": "2"}
	r.Headers.Remove = []string{"X-Debug"}
	r.Credentials = []policy.Credential{{Header: "Authorization", Prefix: "Bearer ", Secret: "api", Hosts: []string{"*.Example.COM"}}}
	e := compile(t, r).Match(callTo(t, "GET", "https://example.com/", ""))
	want := policy.Headers{
		Set:    []call.Header{{Name: "X-A", Value: "1"}, {Name: "X-B", Value: "2"}, {Name: "X-C", Value: "3"}},
		Remove: []string{"x-debug"},
	}
	if !reflect.DeepEqual(e.Headers, want) {
		t.Errorf("headers %+v, want %+v", e.Headers, want)
	}
	if host := e.Credentials[0].Hosts[0]; host != "*.example.com" || r.Credentials[0].Hosts[0] != "*.Example.COM" {
		t.Errorf("credential for %q, rule %q", host, r.Credentials[0].Hosts[0])
	}
}

func TestResolveTellsNoSecret(t *testing.T) {
	pem := caPEM(t)
	r := policy.Rule{Name: "policies/x"}
	r.Egress.TLS.CAPEM = &pem
	r.Headers.Set = map[string]string{"X-Api-Key": "hunter2", "X-Team": "blue"}
	r.Credentials = []policy.Credential{{Header: "Authorization", Prefix: "hunter2 ", Secret: "api", Hosts: []string{"example.com"}}}
	r.Attempt.Timeout = new(1500 * time.Millisecond)
	got := map[string]string{}
	for _, l := range compile(t, r).Resolve(callTo(t, "GET", "https://example.com/", "")).Leaves() {
		got[l.Path] = l.Value
	}
	for path, want := range map[string]string{
		"headers.set":     "X-Api-Key: (7 bytes), X-Team: blue",
		"credentials":     "Authorization from api after a prefix of (8 bytes) for example.com",
		"attempt.timeout": "1.5s",
	} {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
	if len(got["egress.tls.ca_pem"]) > len("(9999 bytes)") {
		t.Errorf("ca_pem is %q", got["egress.tls.ca_pem"])
	}
}

func TestEgressIDTellsBlocksApart(t *testing.T) {
	c := callTo(t, "GET", "https://example.com/", "")
	id := func(change func(r *policy.Rule)) string {
		r := policy.Rule{Name: "policies/x"}
		change(&r)
		return compile(t, r).Match(c).Egress.ID
	}
	plain := id(func(*policy.Rule) {})
	if other := id(func(r *policy.Rule) { r.Retry.MaxAttempts = new(uint32(9)) }); other != plain || plain == "" {
		t.Errorf("%q and %q for one egress block", plain, other)
	}
	seen := map[string]string{plain: "the default"}
	for name, change := range map[string]func(r *policy.Rule){
		"ca_pem":        func(r *policy.Rule) { r.Egress.TLS.CAPEM = new(caPEM(t)) },
		"min_version":   func(r *policy.Rule) { r.Egress.TLS.MinVersion = new(policy.TLSVersion13) },
		"server_name":   func(r *policy.Rule) { r.Egress.TLS.ServerName = new("example.com") },
		"certificate":   func(r *policy.Rule) { r.Egress.TLS.ClientCertificate = new("example.com") },
		"allow":         func(r *policy.Rule) { r.Egress.AllowCIDRs = []string{"10.0.0.0/8"} },
		"deny":          func(r *policy.Rule) { r.Egress.DenyCIDRs = []string{"10.0.0.0/8"} },
		"proxy":         func(r *policy.Rule) { r.Egress.Proxy = new("http://proxy.example.com:3128") },
		"other proxy":   func(r *policy.Rule) { r.Egress.Proxy = new("http://proxy.example.com:3129") },
		"proxy by file": func(r *policy.Rule) { r.Egress.Proxy, r.File = new("http://proxy.example.com:3128"), true },
		"allow by file": func(r *policy.Rule) { r.Egress.AllowCIDRs, r.File = []string{"10.0.0.0/8"}, true },
	} {
		got := id(change)
		if seen[got] != "" {
			t.Errorf("%s has the id of %s", name, seen[got])
		}
		seen[got] = name
	}
}
