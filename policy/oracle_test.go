package policy_test

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// The oracle reads contract §5 as plainly as it can: every rule against the call, a sort, and for every leaf the first rule that
// has it.

// hostRank is how well a rule's hosts fit: -1 not at all, 0 none named, the wildcard's length, or more than any for an exact one.
func hostRank(hosts []string, host string) int {
	if len(hosts) == 0 {
		return 0
	}
	best := -1
	for _, p := range hosts {
		p = strings.ToLower(p)
		if p == host {
			best = max(best, 1000)
		}
		if suffix, ok := strings.CutPrefix(p, "*."); ok && strings.HasSuffix(host, "."+suffix) {
			best = max(best, len(p))
		}
	}
	return best
}

func segments(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

func naiveCovers(r *policy.Rule, c *call.Call) bool {
	m := r.Match
	want, have := segments(m.PathPrefix), segments(c.Target.Path)
	return !r.Off && r.Name != policy.DefaultName && hostRank(m.Hosts, c.Target.Host) >= 0 &&
		(len(m.Ports) == 0 || slices.Contains(m.Ports, uint32(c.Target.Port))) &&
		(len(m.Methods) == 0 || slices.Contains(m.Methods, c.Method)) &&
		(len(m.Callers) == 0 || slices.Contains(m.Callers, c.Caller)) &&
		len(want) <= len(have) && slices.Equal(want, have[:len(want)])
}

// naiveBefore is the contract's order as a list of questions; ok is false when two rules are equal, which must not happen.
func naiveBefore(a, b *policy.Rule, host string) (before, ok bool) {
	prefix := func(r *policy.Rule) int {
		if p := strings.TrimRight(r.Match.PathPrefix, "/"); p != "" {
			return len(p)
		}
		return min(1, len(r.Match.PathPrefix))
	}
	set := func(n int) int { return min(n, 1) }
	for _, pair := range [][2]int{
		{hostRank(a.Match.Hosts, host), hostRank(b.Match.Hosts, host)},
		{prefix(a), prefix(b)},
		{set(len(a.Match.Callers)), set(len(b.Match.Callers))},
		{set(len(a.Match.Methods)), set(len(b.Match.Methods))},
		{set(len(a.Match.Ports)), set(len(b.Match.Ports))},
		{int(a.Priority), int(b.Priority)},
	} {
		if pair[0] != pair[1] {
			return pair[0] > pair[1], true
		}
	}
	return a.Name < b.Name, a.Name != b.Name
}

func drawMatch(t *rapid.T) policy.Match {
	few := func(values ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(values), 0, 2).Draw(t, "some")
	}
	var ports []uint32
	if rapid.Bool().Draw(t, "with ports") {
		ports = []uint32{rapid.SampledFrom([]uint32{80, 443}).Draw(t, "port")}
	}
	return policy.Match{
		Hosts: few("example.com", "a.example.com", "*.example.com", "*.a.example.com", "*.COM", "b.a.example.com", "com"),
		Ports: ports, Methods: few("GET", "POST"), Callers: few("shop", "mail"),
		PathPrefix: rapid.SampledFrom([]string{"", "", "/", "/a", "/a/", "/a/b", "/ab", "/a/b/c/"}).Draw(t, "prefix"),
	}
}

// drawLeaf gives a legal value, or nothing.
func drawLeaf(t *rapid.T, f field) any {
	if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
		return nil
	}
	n := rapid.IntRange(1, 9).Draw(t, f.path)
	text := fmt.Sprintf("x-%d", n)
	switch f.path {
	case "egress.allow_cidrs", "egress.deny_cidrs":
		return []string{fmt.Sprintf("10.%d.0.0/16", n)}
	case "egress.tls.ca_pem":
		return new("")
	case "egress.proxy":
		return new(fmt.Sprintf("http://proxy.example.com:%d", n))
	case "retry.backoff.cap", "deferred.backoff.cap", "breaker.open_cap":
		return new(time.Duration(n) * time.Hour)
	case "budget.window|token_bucket":
		if n < 5 {
			return &policy.BudgetLimitRule{Window: &policy.BudgetWindowRule{Ratio: new(float64(n))}}
		}
		return &policy.BudgetLimitRule{TokenBucket: &policy.TokenBucketRule{MaxTokens: new(float64(n))}}
	case "hedge.delay|percentile":
		return &policy.HedgeTriggerRule{Percentile: new(float64(n))}
	case "status_probe.authoritative":
		return new(false)
	}
	switch reflect.TypeFor[policy.Settings]().FieldByIndex(f.index).Type {
	case reflect.TypeFor[*time.Duration]():
		return new(time.Duration(n) * time.Second)
	case reflect.TypeFor[*uint32]():
		return new(uint32(n))
	case reflect.TypeFor[*uint64]():
		return new(uint64(n))
	case reflect.TypeFor[*float64]():
		return new(float64(n))
	case reflect.TypeFor[*bool]():
		return new(n%2 == 0)
	case reflect.TypeFor[*string]():
		return &text
	case reflect.TypeFor[[]string]():
		return slices.Repeat([]string{text}, n%2)
	case reflect.TypeFor[[]uint32]():
		return slices.Repeat([]uint32{uint32(100 + n)}, n%2)
	case reflect.TypeFor[map[string]string]():
		return map[string]string{text: "1"}
	case reflect.TypeFor[[]policy.Protocol]():
		return []policy.Protocol{policy.Protocol(1 + n%2)}
	case reflect.TypeFor[[]policy.Credential]():
		return []policy.Credential{{Header: text, Secret: "s", Hosts: []string{"example.com"}}}
	case reflect.TypeFor[*policy.TLSVersion]():
		return new(policy.TLSVersion(1 + n%2))
	case reflect.TypeFor[*backoff.Jitter]():
		return new(backoff.Jitter(1 + n%4))
	}
	t.Fatalf("no value for %s", f.path)
	return nil
}

func drawRules(t *rapid.T, all []field) []policy.Rule {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(strings.Split("default a b c d e f g h i j", " ")), 0, 10, rapid.ID).Draw(t, "names")
	rules := make([]policy.Rule, len(names))
	for i, name := range names {
		r := policy.Rule{
			Name: "policies/" + name, Revision: uint64(i + 1), Priority: rapid.Int32Range(-1, 1).Draw(t, "priority"),
			Off: rapid.IntRange(0, 9).Draw(t, "off") == 0, File: rapid.Bool().Draw(t, "file"),
		}
		if r.Name != policy.DefaultName {
			r.Match = drawMatch(t)
		}
		for _, f := range all {
			if v := drawLeaf(t, f); v != nil {
				f.in(&r.Settings).Set(reflect.ValueOf(v))
			}
		}
		rules[i] = r
	}
	return rules
}

func drawCall(t *rapid.T) *call.Call {
	return &call.Call{
		Method: rapid.SampledFrom([]string{"GET", "POST", "PURGE"}).Draw(t, "method"),
		Caller: rapid.SampledFrom([]string{"shop", "mail", ""}).Draw(t, "caller"),
		Target: call.Target{
			Host: rapid.SampledFrom([]string{"com", "example.com", "a.example.com", "b.a.example.com", "z.y.a.example.com"}).Draw(t, "host"),
			Port: rapid.SampledFrom([]uint16{80, 443, 8443}).Draw(t, "port"),
			Path: rapid.SampledFrom([]string{"/", "/a", "/a/", "/ab", "/a/b", "/a/bc", "/a/b/c", "/a/b/c/d/e"}).Draw(t, "path"),
		},
	}
}

// naiveOrder lists the rules that cover the call, the most specific first, policies/default last.
func naiveOrder(t *rapid.T, rules []policy.Rule, c *call.Call) []*policy.Rule {
	var covering []*policy.Rule
	for i := range rules {
		if naiveCovers(&rules[i], c) {
			covering = append(covering, &rules[i])
		}
	}
	sort.Slice(covering, func(i, j int) bool {
		before, ok := naiveBefore(covering[i], covering[j], c.Target.Host)
		if !ok && i != j {
			t.Fatalf("%s and %s are equally specific", covering[i].Name, covering[j].Name)
		}
		return before
	})
	for i := range rules {
		if rules[i].Name == policy.DefaultName && !rules[i].Off {
			covering = append(covering, &rules[i])
		}
	}
	return covering
}

func TestTableAgreesWithAPlainOracle(t *testing.T) {
	all := fields(reflect.TypeFor[policy.Settings](), "", nil)
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t, all)
		table, err := policy.Compile(rules, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			c := drawCall(t)
			order := naiveOrder(t, rules, c)
			// One rule with all the winners must give what the table gives.
			merged, proxyByFile := policy.Rule{Name: policy.DefaultName}, false
			sources := map[string]policy.Source{}
			for _, f := range all {
				sources[f.path] = policy.Source{Policy: policy.DefaultName}
				for _, r := range order {
					if v := naiveLeaf(r, f, all); v.IsValid() {
						f.in(&merged.Settings).Set(v)
						sources[f.path] = policy.Source{Policy: r.Name, Revision: r.Revision}
						if f.path == "egress.allow_cidrs" {
							merged.File = r.File
						}
						if f.path == "egress.proxy" {
							proxyByFile = r.File
						}
						break
					}
				}
			}
			naiveSourceNames(&merged, sources)
			got := table.Match(c)
			want, err := policy.Compile([]policy.Rule{merged}, policy.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if proxy := want.Match(c).Egress.Proxy; proxy != nil {
				proxy.Rules.AllowLoopback = proxyByFile // its own provenance, beside that of allow_cidrs
			}
			wantFlat, gotFlat := flatValues(want.Match(c)), flatValues(got)
			for path := range wantFlat {
				if !reflect.DeepEqual(gotFlat[path], wantFlat[path]) {
					t.Fatalf("%s is %v, want %v", path, gotFlat[path], wantFlat[path])
				}
			}
			if !reflect.DeepEqual(got.Sources, sources) {
				t.Fatalf("sources %v, want %v", got.Sources, sources)
			}
			first := "policies/default@0"
			if len(order) > 0 {
				first = fmt.Sprintf("%s@%d", order[0].Name, order[0].Revision)
			}
			if got.Policy != first {
				t.Fatalf("policy %s, want %s", got.Policy, first)
			}
			if table.Match(c) != got {
				t.Fatal("the same call got another value")
			}
			if fresh := table.Resolve(c); fresh == got || !reflect.DeepEqual(fresh.Leaves(), got.Leaves()) {
				t.Fatal("Resolve differs from Match")
			}
			naivePathScoped(t, table, rules, c.Target.Host)
		}
	})
}

// naiveLeaf is a rule's value for a leaf: "enabled" is true where the block is written and does not say.
func naiveLeaf(r *policy.Rule, f field, all []field) reflect.Value {
	v := f.in(&r.Settings)
	if (v.Kind() == reflect.Pointer && !v.IsNil()) || (v.Kind() != reflect.Pointer && v.Len() > 0) {
		return v
	}
	block, isEnabled := strings.CutSuffix(f.path, ".enabled")
	if !isEnabled {
		return reflect.Value{}
	}
	for _, other := range all {
		if rest, inside := strings.CutPrefix(other.path, block+"."); inside && rest != "enabled" && naiveLeaf(r, other, nil).IsValid() {
			return reflect.ValueOf(new(true))
		}
	}
	return reflect.Value{}
}

// naiveSourceNames names the oneofs by the member that won.
func naiveSourceNames(r *policy.Rule, sources map[string]policy.Source) {
	name := func(path, member string) {
		sources[member] = sources[path]
		delete(sources, path)
	}
	if l := r.Budget.Limit; l != nil && l.TokenBucket != nil {
		name("budget.window|token_bucket", "budget.token_bucket")
	} else {
		name("budget.window|token_bucket", "budget.window")
	}
	name("hedge.delay|percentile", "hedge.percentile")
}

func naivePathScoped(t *rapid.T, table *policy.Table, rules []policy.Rule, host string) {
	want := false
	for i := range rules {
		r := &rules[i]
		want = want || (!r.Off && r.Match.PathPrefix != "" && hostRank(r.Match.Hosts, host) >= 0)
	}
	if got := table.PathScoped(host); got != want {
		t.Fatalf("path scoped %v, want %v", got, want)
	}
}
