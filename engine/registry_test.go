package engine

import (
	"strconv"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/call"
)

func TestRegistryIsBoundedAndKeepsWhatIsInUseOrNotAtRest(t *testing.T) {
	now := time.Now()
	made := 0
	r := newRegistry(func(int, time.Time) *bool { made++; return new(bool) }, func(busy *bool, _ time.Time) bool { return !*busy })
	open, _ := r.enter(-1, nil, now)
	*open = true // not at rest, though nobody uses it
	_, used := r.enter(-2, nil, now)
	for key := range 3 * originsMax {
		_, e := r.enter(key, nil, now)
		e.leave()
	}
	size := 0
	for i := range r.shard {
		size += len(r.shard[i].entries)
	}
	if size > originsMax+2*evictionLook {
		t.Errorf("%d entries, want at most about %d", size, originsMax)
	}
	before := made
	if again, _ := r.enter(-1, nil, now); again != open {
		t.Error("what was not at rest was forgotten")
	}
	if _, again := r.enter(-2, nil, now); again != used {
		t.Error("what was in use was forgotten")
	}
	if made != before {
		t.Error("made anew")
	}
}

func TestAllGivesEveryValueOnceAndStopsWhenTold(t *testing.T) {
	now := time.Now()
	r := newRegistry(func(key int, _ time.Time) int { return key }, func(int, time.Time) bool { return true })
	for range r.all() {
		t.Fatal("a value in an empty registry")
	}
	const many = originsMax / 4
	for key := range many {
		_, e := r.enter(key, nil, now)
		e.leave()
	}
	seen := make(map[int]int)
	for _, key := range r.all() {
		seen[key]++
		_, e := r.enter(key, nil, now) // no lock is held meanwhile
		e.leave()
	}
	for key := range many {
		if seen[key] != 1 {
			t.Errorf("%d was given %d times", key, seen[key])
		}
	}
	n := 0
	for range r.all() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 || len(seen) != many {
		t.Errorf("%d and %d values", n, len(seen))
	}
}

func TestLongestIdleLeavesFirst(t *testing.T) {
	now := time.Now()
	r := newRegistry(func(key int, _ time.Time) int { return key }, func(int, time.Time) bool { return true })
	s := &r.shard[0]
	var mine []int // that live in one shard, as many as there is room for, and some more
	for key := 0; len(mine) < originsMax/shards+3; key++ {
		if r.shardOf(key) == s {
			mine = append(mine, key)
		}
	}
	use := func(key int) {
		_, e := r.enter(key, nil, now)
		e.leave()
	}
	full, more := mine[:originsMax/shards], mine[originsMax/shards:]
	for _, key := range full {
		use(key)
	}
	for _, i := range []int{0, 2, 2, len(full) - 1, 0} {
		use(full[i])
	}
	for _, key := range more {
		use(key)
	}
	for i, key := range full {
		_, kept := s.entries[key]
		if gone := i == 1 || i == 3 || i == 4; kept == gone {
			t.Errorf("the one used as number %d: kept %v", i, kept)
		}
	}
}

func TestHoldsAreBoundedAndNeverShortened(t *testing.T) {
	h, now := newHolds(), time.Now()
	k := holdKey{origin: "o"}
	h.hold(now, k, now.Add(4*time.Second))
	h.hold(now, k, now.Add(time.Second))
	if got := h.until[k].Sub(now); got != 4*time.Second {
		t.Errorf("held for %s, want 4s", got)
	}
	for i := range 2 * holdsMax {
		h.hold(now, holdKey{origin: string(rune(i)), credential: "c"}, now.Add(time.Duration(i)))
		if len(h.until) > holdsMax {
			t.Fatalf("%d holds", len(h.until))
		}
	}
}

func TestCredentialIsNamedByWhatARateLimitCounts(t *testing.T) {
	c := &call.Call{Caller: "one"}
	if got := credentialOf(c, policyOf(t)); got != "caller:one" {
		t.Error(got)
	}
	c.Headers = []call.Header{{Name: "authorization", Value: "Bearer s3cr3t"}}
	own := credentialOf(c, policyOf(t))
	if len(own) != len("authorization:")+32 {
		t.Errorf("%q is not a digest", own)
	}
}

func TestManyThatMayNotLeaveDoNotStopEviction(t *testing.T) {
	now := time.Now()
	r := newRegistry(func(key int, _ time.Time) int { return key }, func(key int, _ time.Time) bool { return key >= 0 })
	const busy = 600
	for key := range busy + 3*originsMax {
		_, e := r.enter(key-busy, nil, now)
		e.leave()
	}
	size := 0
	for i := range r.shard {
		size += len(r.shard[i].entries)
	}
	if size > originsMax+busy {
		t.Errorf("%d entries, want at most %d", size, originsMax+busy)
	}
}

// An open breaker whose origin nobody calls again would otherwise be kept for ever.
func TestBreakerMayBeForgottenLongAfterItsCooldown(t *testing.T) {
	now := time.Now()
	b := breaker.New(sharedPolicy(t).Breaker)
	if !breakerAtRest(b, now) {
		t.Error("a new one is not at rest")
	}
	for b.State(now) == breaker.Closed {
		ticket, err := b.Admit(now, breaker.Attempt{Caller: "one", Repeatable: true, Timeout: time.Minute}, 0.5)
		if err != nil {
			t.Fatal(err)
		}
		ticket.Settle(now, breaker.Result{Kind: breaker.Failed}, 0.5)
	}
	over := b.Snapshot(now).Cooldown + longOver
	if breakerAtRest(b, now.Add(over)) {
		t.Error("forgotten too early")
	}
	if !breakerAtRest(b, now.Add(over+1)) {
		t.Error("never forgotten")
	}
	b.Force(breaker.ForcedOpen, now)
	if breakerAtRest(b, now.Add(2*over)) {
		t.Error("what an operator forced was forgotten")
	}
}

func TestManyCredentialsDoNotLiftTheHoldOfAnOrigin(t *testing.T) {
	h, now := newHolds(), time.Now()
	until := now.Add(time.Minute)
	all := holdKey{origin: "https://api.example.com:443"}
	h.hold(now, all, until)
	for i := range 2 * holdsMax {
		h.hold(now, holdKey{"https://other.example.com:443", strconv.Itoa(i)}, until)
	}
	late := holdKey{origin: "https://late.example.com:443"}
	h.hold(now, late, until)
	if h.until[all] != until || h.until[late] != until || len(h.until) != holdsMax {
		t.Errorf("of %d holds, those of whole origins end %s and %s", len(h.until), h.until[all], h.until[late])
	}
}
