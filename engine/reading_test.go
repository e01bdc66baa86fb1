package engine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// named is a rule for a path, with a change.
func named(id string, change func(r *policy.Rule)) policy.Rule {
	r := policy.Rule{Name: "policies/" + id, Revision: 1, Match: policy.Match{PathPrefix: "/" + id}}
	change(&r)
	return r
}

// under is what holds for calls below a path.
func under(t testing.TB, table *policy.Table, path string) *policy.Effective {
	t.Helper()
	return table.Match(&call.Call{Method: "GET", Target: call.Target{Scheme: "https", Host: "api.example.com", Port: 443, Path: "/" + path}})
}

func tableOf(t testing.TB, rules ...policy.Rule) *policy.Table {
	t.Helper()
	table, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func only(name string) func(string) bool { return func(other string) bool { return other == name } }

// read is the state of one origin that must be known.
func read(t testing.TB, o *Origins, now time.Time, name string) OriginState {
	t.Helper()
	all := o.Read(now, only(name))
	if len(all) != 1 {
		t.Fatalf("%d origins of the name %s", len(all), name)
	}
	return all[0]
}

func TestPoliciesThatAgreeInABlockShowOneState(t *testing.T) {
	table := tableOf(t,
		named("strict", func(r *policy.Rule) { r.Breaker.ConsecutiveFailures = new(uint32(2)) }),
		named("narrow", func(r *policy.Rule) { r.Concurrency.MaxInFlight = new(uint32(3)) }),
		named("equal", func(r *policy.Rule) { r.Attempt.Timeout = new(time.Second) }))
	o, now, c := NewOrigins(), time.Now(), callOf("api.example.com")
	for _, path := range []string{"strict", "narrow", "equal", "other"} {
		use(o, c, under(t, table, path), now)
	}
	s := read(t, o, now, c.Target.Origin)
	type row struct {
		policy   string
		attempts uint32 // of the breaker
		firsts   uint64
		limit    uint32
	}
	var got []row
	for _, scope := range s.Scopes {
		got = append(got, row{scope.By.Policy, scope.Breaker.Attempts, scope.Budget.Firsts, scope.Concurrency.Limit})
	}
	want := []row{
		{"policies/default@0", 3, 4, 512}, // the latest of the two that agree in everything
		{"policies/narrow@1", 3, 4, 3},
		{"policies/strict@1", 1, 4, 512},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A call in between leaves its mark on one piece, and not on another yet.
func TestScopeIsNamedByTheNewestPolicy(t *testing.T) {
	o, now, c := NewOrigins(), time.Now(), callOf("api.example.com")
	for generation := range uint64(3) {
		p := *sharedPolicy(t)
		p.Generation, p.Policy = generation, fmt.Sprint("policies/x@", generation)
		by := p.Shared()
		if generation != 1 {
			o.breakers.enter(breakerKey{c.Target.Origin, by.Breaker}, by, now)
		}
		if generation != 2 {
			o.budgets.enter(budgetKey{c.Target.Origin, by.Budget}, by, now)
		}
		if generation == 0 {
			continue
		}
		s := read(t, o, now, c.Target.Origin)
		if want := p.Policy; len(s.Scopes) != 1 || s.Scopes[0].By.Policy != want {
			t.Errorf("%d scopes, the first of %s, want %s", len(s.Scopes), s.Scopes[0].By.Policy, want)
		}
	}
}

// Of every piece of state there is a scope that shows it, and no scope shows anything else: whatever was called, and forgotten.
func TestScopesAddUpToTheRegistries(t *testing.T) {
	table := tableOf(t,
		named("b1", func(r *policy.Rule) { r.Breaker.ConsecutiveFailures = new(uint32(2)) }),
		named("b2", func(r *policy.Rule) { r.Breaker.ConsecutiveFailures = new(uint32(3)) }),
		named("u1", func(r *policy.Rule) { r.Budget.CallerMaxShare = new(0.25) }),
		named("c1", func(r *policy.Rule) { r.Concurrency.MaxInFlight = new(uint32(3)) }),
		named("h1", func(r *policy.Rule) { r.Hedge.MaxHedges = new(uint32(1)) }),
		named("b1u1", func(r *policy.Rule) {
			r.Breaker.ConsecutiveFailures, r.Budget.CallerMaxShare = new(uint32(2)), new(0.25)
		}),
		named("b1c1h1", func(r *policy.Rule) {
			r.Breaker.ConsecutiveFailures, r.Concurrency.MaxInFlight, r.Hedge.MaxHedges = new(uint32(2)), new(uint32(3)), new(uint32(1))
		}))
	paths := []string{"none", "b1", "b2", "u1", "c1", "h1", "b1u1", "b1c1h1"}
	rapid.Check(t, func(rt *rapid.T) {
		o, now := NewOrigins(), time.Now()
		for range rapid.IntRange(1, 60).Draw(rt, "uses") {
			c := callOf(fmt.Sprintf("host%d.example.com", rapid.IntRange(0, 2).Draw(rt, "host")))
			use(o, c, under(t, table, rapid.SampledFrom(paths).Draw(rt, "path")), now)
			if rapid.IntRange(0, 9).Draw(rt, "idle") == 0 {
				now = now.Add(longIdle / 2)
				o.Sweep(now)
			}
		}
		type kinds [3]map[any]uint64 // what each piece counted, by its key
		empty := func() kinds { return kinds{{}, {}, {}} }
		held, shown := empty(), empty()
		for k, b := range o.breakers.all() {
			held[0][k] = uint64(b.Snapshot(now).Attempts)
		}
		for k, b := range o.budgets.all() {
			held[1][k] = b.Snapshot(now).Totals.Firsts
		}
		for k, b := range o.bulkheads.all() {
			held[2][k] = b.Snapshot().Totals.Entered
		}
		all := o.Read(now, func(string) bool { return true })
		for _, s := range all {
			for _, scope := range s.Scopes {
				shown[0][breakerKey{s.Name, scope.By.Breaker}] = uint64(scope.Breaker.Attempts)
				shown[1][budgetKey{s.Name, scope.By.Budget}] = scope.Budget.Totals.Firsts
				shown[2][bulkheadKey{s.Name, scope.By.Concurrency}] = scope.Concurrency.Totals.Entered
			}
		}
		if !reflect.DeepEqual(shown, held) {
			rt.Errorf("shown %v\nheld %v", shown, held)
		}
		if known := o.Known(now); len(known) != len(all) {
			rt.Errorf("%d known, %d read", len(known), len(all))
		}
	})
}

// A piece that was forgotten before the others is shown as a call would find it.
func TestWhatIsNotThereIsShownAsItWouldBeMade(t *testing.T) {
	p, now, o, c := sharedPolicy(t), time.Now(), NewOrigins(), callOf("api.example.com")
	use(o, c, p, now)
	trip(t, o, c, p, now)
	now = now.Add(longIdle)
	o.Sweep(now) // the breaker is open no longer, so nothing stays
	if all := o.Read(now, only(c.Target.Origin)); len(all) != 0 {
		t.Fatalf("%+v", all)
	}
	use(o, c, p, now)
	o.Force(c.Target.Origin, breaker.ForcedOpen, now)
	now = now.Add(longIdle)
	o.Sweep(now)
	s := read(t, o, now, c.Target.Origin)
	if len(s.Scopes) != 1 || s.Scopes[0].Breaker.Mode != breaker.ForcedOpen || s.Scopes[0].Breaker.Attempts != 0 ||
		s.Scopes[0].Budget.Left != 10 || s.Scopes[0].Budget.Totals.Firsts != 0 || s.Scopes[0].Concurrency.Limit != 512 {
		t.Errorf("%+v", s.Scopes)
	}
}

// trip opens the breaker of an origin by failures.
func trip(t testing.TB, o *Origins, c *call.Call, p *policy.Effective, now time.Time) {
	t.Helper()
	s := o.enter(c, p, now)
	defer s.leave()
	for range p.Breaker.ConsecutiveFailures {
		ticket, err := s.breaker.Admit(now, breaker.Attempt{Caller: "one", Repeatable: true, Timeout: time.Minute}, 0.5)
		if err != nil {
			t.Fatal(err)
		}
		if move, ok := ticket.Settle(now, breaker.Result{Kind: breaker.Failed}, 0); ok {
			o.remember(s.name, now, &Notice{What: WhatMove, Move: move})
		}
	}
}

func TestLatencyIsOfAllScopes(t *testing.T) {
	table := tableOf(t, named("strict", func(r *policy.Rule) { r.Breaker.ConsecutiveFailures = new(uint32(2)) }))
	o, now, c := NewOrigins(), time.Now(), callOf("api.example.com")
	learn := func(path string, from, to int) {
		s := o.enter(c, under(t, table, path), now)
		defer s.leave()
		for i := from; i <= to; i++ {
			ticket, _ := s.breaker.Admit(now, breaker.Attempt{Caller: "one"}, 0.5)
			ticket.Settle(now, breaker.Result{Kind: breaker.OK, Latency: time.Duration(i) * time.Millisecond}, 0.5)
		}
	}
	learn("strict", 1, 19)
	if s := read(t, o, now, c.Target.Origin); s.Latency != (Latency{}) {
		t.Errorf("of 19: %+v", s.Latency)
	}
	learn("other", 20, 40)
	want := Latency{Samples: 40, P50: 20 * time.Millisecond, P95: 38 * time.Millisecond, P99: 40 * time.Millisecond}
	if s := read(t, o, now, c.Target.Origin); s.Latency != want {
		t.Errorf("%+v, want %+v", s.Latency, want)
	}
}

func TestHoldsAreTold(t *testing.T) {
	p, now, o, c := sharedPolicy(t), time.Now(), NewOrigins(), callOf("api.example.com")
	use(o, c, p, now)
	until := func(n int) time.Time { return now.Add(time.Duration(n) * time.Second) }
	name := c.Target.Origin
	for i := range holdsTold + 5 {
		o.holds.hold(now, holdKey{name, fmt.Sprint("secret:", i)}, until(10+i))
	}
	o.holds.hold(now, holdKey{origin: name}, until(2))
	o.holds.hold(now, holdKey{origin: "https://other.example.com:443"}, until(9))
	s := read(t, o, now, name)
	if len(s.Holds) != holdsTold || s.Holds[0] != (Hold{Until: until(2)}) || s.Holds[1] != (Hold{Credential: true, Until: until(10 + holdsTold + 4)}) {
		t.Errorf("%d: %+v", len(s.Holds), s.Holds)
	}
	if s = read(t, o, until(2), name); !s.Holds[0].Credential {
		t.Error("a hold that is over")
	}
	if !o.Reset(name, now) {
		t.Error("not known")
	}
	if s = read(t, o, now, name); len(s.Holds) != 0 || o.holds.of(now, c, p).After(now) {
		t.Errorf("after a reset: %+v", s.Holds)
	}
	if other := (holdKey{origin: "https://other.example.com:443"}); o.holds.until[other] != until(9) {
		t.Error("the hold of another origin was lifted")
	}
}

func TestIdleOriginIsForgotten(t *testing.T) {
	p, now, o := sharedPolicy(t), time.Now(), NewOrigins()
	idle, busy := callOf("idle.example.com"), callOf("busy.example.com")
	use(o, idle, p, now)
	s := o.enter(busy, p, now) // a call that lasts
	o.Sweep(now.Add(longIdle - time.Second))
	if n := len(o.Known(now)); n != 2 {
		t.Fatalf("%d known before the time", n)
	}
	now = now.Add(longIdle)
	o.Sweep(now)
	if all := o.Known(now); len(all) != 1 || all[0].Name != busy.Target.Origin {
		t.Errorf("%+v", all)
	}
	s.leave()
	o.Sweep(now)
	if n := len(o.Known(now)); n != 0 {
		t.Errorf("%d known at the end", n)
	}
	if again := o.enter(busy, p, now); again.breaker == s.breaker {
		t.Error("the breaker is still there")
	}
}

func TestManyScopesAreBounded(t *testing.T) {
	o, now, c := NewOrigins(), time.Now(), callOf("api.example.com")
	for i := range scopesTold + 20 {
		p := *sharedPolicy(t)
		p.Generation = uint64(i)
		p.Breaker.ConsecutiveFailures = uint32(i + 1)
		use(o, c, &p, now)
	}
	s := read(t, o, now, c.Target.Origin)
	if len(s.Scopes) != scopesTold || s.Scopes[0].By.Generation != scopesTold+19 {
		t.Errorf("%d scopes, the first of generation %d", len(s.Scopes), s.Scopes[0].By.Generation)
	}
}

// Readers, operators, and calls at once: nothing is lost, and the race detector finds nothing.
func TestReadBesideCalls(t *testing.T) {
	table := tableOf(t, named("strict", func(r *policy.Rule) { r.Breaker.ConsecutiveFailures = new(uint32(2)) }))
	o, start := NewOrigins(), time.Now()
	var callers, readers sync.WaitGroup
	done := make(chan struct{}) // closed when the callers have ended
	reader := func(look func(n int)) {
		readers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
					look(n)
				}
			}
		})
	}
	reader(func(int) { o.Read(start, func(string) bool { return true }) })
	reader(func(int) { o.Known(start) })
	reader(func(n int) {
		name := callOf(fmt.Sprintf("host%d.example.com", n%20)).Target.Origin
		o.Force(name, []breaker.Mode{breaker.ForcedClosed, breaker.Auto}[n%2], start)
		o.Reset(name, start)
	})
	for i := range 4 {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		callers.Go(func() {
			for range 300 {
				use(o, callOf(fmt.Sprintf("host%d.example.com", rnd.IntN(20))), under(t, table, []string{"strict", "other"}[rnd.IntN(2)]), start)
			}
		})
	}
	callers.Wait()
	close(done)
	readers.Wait()
	firsts := uint64(0)
	for _, s := range o.Read(start, func(string) bool { return true }) {
		firsts += s.Scopes[0].Budget.Totals.Firsts // all scopes have one budget
	}
	if firsts != 4*300 {
		t.Errorf("%d first attempts of 1200", firsts)
	}
}

// BenchmarkRead is what a page, one origin and all of ten thousand cost.
func BenchmarkRead(b *testing.B) {
	p, now, o := sharedPolicy(b), time.Now(), NewOrigins()
	for i := range originsMax {
		use(o, callOf(fmt.Sprintf("host%d.example.com", i)), p, now)
	}
	one := callOf("host77.example.com").Target.Origin
	for name, look := range map[string]func(){
		"known": func() { o.Known(now) },
		"one":   func() { o.Read(now, only(one)) },
		"all":   func() { o.Read(now, func(string) bool { return true }) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				look()
			}
		})
	}
}

// BenchmarkCallWhileRead is what calls to ten thousand origins wait for what they share: while nobody reads, while somebody asks for a
// page of a list twenty times a second, and while all of it is read once a second, as for those who watch.
func BenchmarkCallWhileRead(b *testing.B) {
	p, now, o := sharedPolicy(b), time.Now(), NewOrigins()
	calls := make([]*call.Call, originsMax)
	for i := range calls {
		calls[i] = callOf(fmt.Sprintf("host%d.example.com", i))
		use(o, calls[i], p, now)
	}
	page := make(map[string]bool)
	for i := range 50 {
		page[calls[i].Target.Origin] = true
	}
	for _, row := range []struct {
		name  string
		every time.Duration
		look  func()
	}{
		{"nobody reads", time.Hour, nil},
		{"a page 20 times a second", time.Second / 20, func() {
			o.Known(now)
			o.Read(now, func(name string) bool { return page[name] })
		}},
		{"all once a second", time.Second, func() { o.Read(now, func(string) bool { return true }) }},
	} {
		b.Run(row.name, func(b *testing.B) {
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				ticker := time.NewTicker(row.every)
				defer ticker.Stop()
				for {
					select {
					case <-stop:
						return
					case <-ticker.C:
						row.look()
					}
				}
			}()
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				begin := time.Now()
				use(o, calls[i*7919%len(calls)], p, now)
				took = append(took, time.Since(begin))
			}
			close(stop)
			<-stopped
			slices.Sort(took)
			for _, percent := range []float64{50, 99, 99.9} {
				b.ReportMetric(float64(took[int(float64(len(took)-1)*percent/100)].Nanoseconds()), fmt.Sprintf("ns-p%v", percent))
			}
		})
	}
}
