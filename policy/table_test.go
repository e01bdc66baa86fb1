package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

func TestTablesOfAProcessAreCounted(t *testing.T) {
	var generations atomic.Uint64
	for want := uint64(1); want <= 3; want++ {
		table, err := policy.Compile(nil, policy.Options{Generations: &generations})
		if err != nil {
			t.Fatal(err)
		}
		if got := table.Match(&call.Call{}).Generation; got != want || table.Generation() != want {
			t.Errorf("generation %d and %d, want %d", got, table.Generation(), want)
		}
	}
	if _, err := policy.Compile([]policy.Rule{{}}, policy.Options{Generations: &generations}); err == nil || generations.Load() != 3 {
		t.Errorf("error %v after %d tables: a refused one counts", err, generations.Load())
	}
}

func TestMatchKeepsItsAnswersBounded(t *testing.T) {
	// Every caller meets a set of rules of its own, more of them than a table keeps.
	var rules []policy.Rule
	for i := range 1100 {
		rules = append(rules, rule(fmt.Sprint(i), uint32(i+1), policy.Match{Callers: []string{fmt.Sprint(i)}}))
	}
	table := compile(t, rules...)
	first := &call.Call{Caller: "0"}
	kept := table.Match(first)
	for i := range rules {
		if got := table.Match(&call.Call{Caller: fmt.Sprint(i)}); got.Retry.MaxAttempts != uint32(i+1) {
			t.Fatalf("caller %d got %s", i, got.Policy)
		}
	}
	if table.Match(first) == kept {
		t.Error("nothing was ever dropped")
	}
}

func TestConcurrentCallsShareOneValue(t *testing.T) {
	table := compile(t, rule("a", 1, policy.Match{Hosts: []string{"*.example.com"}}), rule("b", 2, policy.Match{PathPrefix: "/x"}))
	c := callTo(t, "GET", "https://a.example.com/x", "")
	got := make([]*policy.Effective, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = table.Match(c) })
	}
	wg.Wait()
	if len(slices.Compact(got)) != 1 {
		t.Error("equal calls got different values")
	}
}

func TestMatchOfAKnownSetAllocatesNothing(t *testing.T) {
	table, calls := thousand(t)
	for _, c := range calls {
		table.Match(c)
	}
	next := 0
	if n := testing.AllocsPerRun(100, func() {
		table.Match(calls[next%len(calls)])
		next++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPathScopedKnowsAddresses(t *testing.T) {
	table := compile(t, rule("a", 1, policy.Match{Hosts: []string{"192.0.2.1", "2001:db8::1"}, PathPrefix: "/x"}))
	for host, want := range map[string]bool{"192.0.2.1": true, "192.0.2.2": false, "2001:db8::1": true, "example.com": false} {
		if table.PathScoped(host) != want {
			t.Errorf("%s: %v, want %v", host, !want, want)
		}
	}
}

func TestRefusedRulesMakeNoTable(t *testing.T) {
	table, err := policy.Compile([]policy.Rule{{Name: "policies/x", Match: policy.Match{Hosts: []string{"a b"}}}}, policy.Options{})
	var invalid *policy.InvalidError
	if table != nil || !errors.As(err, &invalid) || invalid.Problems[0].Path != "match.hosts[0]" {
		t.Errorf("table %v, error %v", table, err)
	}
}

// thousand makes policies by host, wildcard, path, caller and method, and calls that meet each kind.
func thousand(tb testing.TB) (*policy.Table, []*call.Call) {
	tb.Helper()
	var rules []policy.Rule
	for i := range 200 {
		host := fmt.Sprintf("h%d.example.com", i)
		rules = append(rules,
			rule(fmt.Sprintf("host-%d", i), 1, policy.Match{Hosts: []string{host}}),
			rule(fmt.Sprintf("wild-%d", i), 1, policy.Match{Hosts: []string{"*." + host}}),
			rule(fmt.Sprintf("path-%d", i), 1, policy.Match{PathPrefix: fmt.Sprintf("/v1/p%d", i)}),
			rule(fmt.Sprintf("caller-%d", i), 1, policy.Match{Callers: []string{fmt.Sprintf("caller-%d", i)}}),
			rule(fmt.Sprintf("mixed-%d", i), 1, policy.Match{
				Hosts: []string{host, "*." + host}, PathPrefix: "/v1", Methods: []string{"POST"}, Callers: []string{fmt.Sprintf("caller-%d", i)},
			}),
		)
	}
	var calls []*call.Call
	for i := range 64 {
		calls = append(calls,
			callTo(tb, "POST", fmt.Sprintf("https://h%d.example.com/v1/p%d/items/7?x=1", i, i+1), fmt.Sprintf("caller-%d", i)),
			callTo(tb, "GET", fmt.Sprintf("https://a.b.h%d.example.com/v1/p%d/", i, i), "caller-199"),
			callTo(tb, "GET", "https://other.example.com/", "nobody"),
		)
	}
	return compile(tb, rules...), calls
}

func BenchmarkMatchAmongThousand(b *testing.B) {
	table, calls := thousand(b)
	for _, c := range calls {
		table.Match(c)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Match(calls[i%len(calls)])
	}
}

func BenchmarkFirstMatchOfASet(b *testing.B) {
	table, calls := thousand(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Resolve(calls[i%len(calls)])
	}
}

// A table is made at every write, while the next one waits. Ten times as many hosts take about ten times as long: a hundred times, when
// each was looked for among all others.
func BenchmarkCompileHosts(b *testing.B) {
	for _, hosts := range []int{8_000, 80_000} {
		r := policy.Rule{Name: "policies/many"}
		for i := range hosts {
			r.Match.Hosts = append(r.Match.Hosts, fmt.Sprintf("h%d.example.com", i))
		}
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			for b.Loop() {
				if _, err := policy.Compile([]policy.Rule{r}, policy.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A table is made at every write.
func BenchmarkCompileThousand(b *testing.B) {
	rules := make([]policy.Rule, 1000)
	for i := range rules {
		rules[i] = policy.Rule{Name: fmt.Sprintf("policies/p%d", i), Match: policy.Match{Hosts: []string{fmt.Sprintf("h%d.example.com", i)}}}
	}
	for b.Loop() {
		if _, err := policy.Compile(rules, policy.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
