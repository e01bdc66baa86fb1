package policy

import (
	"crypto/x509"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/call"
)

// Problem is one reason why rules make no table.
type Problem struct {
	// Rule is the place of the rule in the list.
	Rule int
	// Path is the field's on the wire, for example "retry.backoff.cap".
	Path string
	// Text says the cause and the fix.
	Text string
}

// InvalidError lists all that is wrong with a set of rules.
type InvalidError struct {
	Problems []Problem
}

func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = fmt.Sprintf("policies[%d].%s: %s", p.Rule, p.Path, p.Text)
	}
	return strings.Join(lines, "\n")
}

// Check finds what one field alone cannot tell (fields against each other, rules against each other) and what compiling depends
// on. The range of a single number is checked where the rule is read (contract §5).
func Check(rules []Rule) []Problem {
	var all []Problem
	leaves := withFloats(settingsLeaves())
	named := map[string]int{}
	for i := range rules {
		r := &rules[i]
		c := checker{rule: i}
		if id, ok := strings.CutPrefix(r.Name, "policies/"); !ok || id == "" || strings.Contains(id, "/") {
			c.add("name", "a policy is named policies/ID")
		}
		if first, twice := named[r.Name]; twice && r.Name != "" {
			c.add("name", fmt.Sprintf("%s is the name of policies[%d] too: choose another", r.Name, first))
		} else {
			named[r.Name] = i
		}
		c.match(r)
		c.times(&r.Settings)
		c.numbers(&r.Settings, leaves)
		c.budget(r.Budget.Limit)
		c.egress(&r.Egress)
		c.fields(r)
		c.probe(&r.StatusProbe)
		all = append(all, c.problems...)
	}
	return all
}

// checker gathers the problems of one rule.
type checker struct {
	rule     int
	problems []Problem
}

func (c *checker) add(path, text string) {
	c.problems = append(c.problems, Problem{Rule: c.rule, Path: path, Text: text})
}

func (c *checker) match(r *Rule) {
	m := &r.Match
	if r.Name == DefaultName && (len(m.Hosts)+len(m.Ports)+len(m.Methods)+len(m.Callers) > 0 || m.PathPrefix != "") {
		c.add("match", DefaultName+" is for the calls that nothing else covers: leave match out, or choose another name")
	}
	for i, host := range m.Hosts {
		if text := hostProblem(host); text != "" {
			c.add(fmt.Sprintf("match.hosts[%d]", i), text)
		}
	}
	if len(m.Hosts)*max(1, len(m.Callers)) > maxMatchPairs {
		c.add("match", fmt.Sprintf("%d hosts for %d callers are more than %d pairs: use wildcards such as *.example.com, or several policies", len(m.Hosts), len(m.Callers), maxMatchPairs))
	}
	c.ports("match.ports", m.Ports)
	if p := m.PathPrefix; p != "" && (p[0] != '/' || strings.ContainsAny(p, "?#")) {
		c.add("match.path_prefix", `a path starts with "/" and has no query or fragment`)
	} else if p != "" && !possible(p) {
		c.add("match.path_prefix", "no call has such a path: write it as it stands in URLs, escaped, without dot segments, //, ; or escaped slashes")
	}
	for i, caller := range m.Callers {
		if caller == "" || len(caller) > maxIdentity || strings.ContainsFunc(caller, func(r rune) bool { return r <= ' ' || r > '~' }) {
			c.add(fmt.Sprintf("match.callers[%d]", i), "no caller has such a name: write 1 to 255 visible ASCII characters")
		}
	}
}

// maxMatchPairs bounds hosts × callers of one policy: the table has an entry for each pair, and is made anew at every write.
const maxMatchPairs = 100_000

// maxIdentity bounds the name of a caller.
const maxIdentity = 255

// possible tells whether a URL can have a path below the prefix where prefixes count.
func possible(prefix string) bool {
	t, err := call.ParseTarget("http://example.com" + normalPrefix(prefix))
	return err == nil && !t.Ambiguous()
}

// times compares what must not be shorter than something else of the same policy.
func (c *checker) times(s *Settings) {
	atLeast := func(path string, limit, base *time.Duration, name string) {
		if limit != nil && base != nil && *limit < *base {
			c.add(path, fmt.Sprintf("%s is less than %s %s: raise it to that at least", *limit, name, *base))
		}
	}
	atLeast("retry.backoff.cap", s.Retry.Backoff.Cap, s.Retry.Backoff.Base, "base")
	atLeast("deferred.backoff.cap", s.Deferred.Backoff.Cap, s.Deferred.Backoff.Base, "base")
	atLeast("breaker.open_cap", s.Breaker.OpenCap, s.Breaker.OpenBase, "open_base")
}

// numbers refuses what is no number: it compares with nothing, so that no limit would hold.
func (c *checker) numbers(s *Settings, leaves []leaf) {
	for i := range leaves {
		v := leaves[i].in(s)
		for _, x := range floats(nil, v) {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				c.add(leaves[i].nameOf(v), "write a finite number")
			}
		}
	}
	if h := s.Hedge.Trigger; h != nil && h.Delay == nil && h.Percentile == nil {
		c.add("hedge", "name a delay or a percentile")
	}
}

// budget refuses what makes no budget: with such a policy in force every call would fail.
func (c *checker) budget(l *BudgetLimitRule) {
	switch {
	case l == nil:
	case l.Window == nil && l.TokenBucket == nil:
		c.add("budget", "name a window or a token_bucket")
	default:
		window, bucket := flatLimit(l)
		if window != nil && window.Period > budget.MaxPeriod {
			c.add("budget.window.period", fmt.Sprintf("is longer than a year (%s): shorten it", budget.MaxPeriod))
		}
		if bucket != nil && (bucket.MaxTokens < budget.LeastMaxTokens || bucket.MaxTokens > budget.MostMaxTokens) {
			c.add("budget.token_bucket.max_tokens", fmt.Sprintf("write a number from %v to %.0f", budget.LeastMaxTokens, budget.MostMaxTokens))
		}
	}
}

// floats gathers the numbers of a leaf, those below a oneof included.
func floats(all []float64, v reflect.Value) []float64 {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return floats(all, v.Elem())
		}
	case reflect.Struct:
		for _, member := range v.Fields() {
			all = floats(all, member)
		}
	case reflect.Float64:
		return append(all, v.Float())
	}
	return all
}

// withFloats picks the leaves in which [floats] may find any.
func withFloats(leaves []leaf) []leaf {
	var may func(t reflect.Type) bool
	may = func(t reflect.Type) bool {
		switch t.Kind() {
		case reflect.Pointer:
			return may(t.Elem())
		case reflect.Struct:
			for f := range t.Fields() {
				if may(f.Type) {
					return true
				}
			}
		case reflect.Float64:
			return true
		}
		return false
	}
	return slices.DeleteFunc(leaves, func(l leaf) bool { return !may(reflect.TypeFor[Settings]().FieldByIndex(l.index).Type) })
}

func (c *checker) egress(e *EgressRule) {
	c.cidrs("egress.allow_cidrs", e.AllowCIDRs)
	c.cidrs("egress.deny_cidrs", e.DenyCIDRs)
	c.ports("egress.ports", e.Ports)
	c.proxy(e.Proxy)
	if e.TLS.CAPEM != nil && *e.TLS.CAPEM != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(*e.TLS.CAPEM)) {
		c.add("egress.tls.ca_pem", "no certificate can be read from it: give PEM blocks of type CERTIFICATE")
	}
}

func (c *checker) cidrs(path string, cidrs []string) {
	for i, s := range cidrs {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			c.add(fmt.Sprintf("%s[%d]", path, i), "write address/bits, for example 10.0.0.0/8 or fd00::/8")
		case p.Addr().Is4In6():
			// The guard judges such an address as its IPv4 (semantics.md §9), so the prefix would cover nothing.
			c.add(fmt.Sprintf("%s[%d]", path, i), "write an IPv4-mapped prefix as its IPv4")
		}
	}
}

func (c *checker) ports(path string, ports []uint32) {
	for i, p := range ports {
		if p == 0 || p > math.MaxUint16 {
			c.add(fmt.Sprintf("%s[%d]", path, i), "a port is 1 to 65535")
		}
	}
}

func (c *checker) probe(p *StatusProbeRule) {
	denies := len(p.NotAppliedStatuses)+len(p.NotAppliedValues) > 0 && p.Authoritative != nil && *p.Authoritative
	if denies && p.Settle == nil {
		c.add("status_probe.settle", "an authoritative not-applied needs it: how long a request may still be under way")
	}
}
