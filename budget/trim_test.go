package budget_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/budget"
)

// TestTrimChangesNoAnswer plays any sequence to a budget that is trimmed now and then and to one that never is.
func TestTrimChangesNoAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period := rapid.SampledFrom([]time.Duration{2 * time.Second, 10 * time.Hour}).Draw(t, "period") // the latter has coarse marks
		c := windowOf(
			rapid.SampledFrom([]float64{0, 0.5, 2}).Draw(t, "ratio"), period,
			rapid.SampledFrom([]float64{0, 1, 4}).Draw(t, "in a period")/period.Seconds(),
			rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "share"),
		)
		kept, trimmed := newOf(t, c), newOf(t, c)
		type twins struct{ kept, trimmed budget.Token }
		var tokens []twins
		now := time.Duration(0)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			caller := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "caller")
			at := after(now)
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 0:
				now += time.Duration(rapid.Int64Range(0, int64(period/4)).Draw(t, "pass"))
			case 1:
				now += rapid.SampledFrom([]time.Duration{1, period / 20, period - 1, period, period + 1, 3 * period}).Draw(t, "edge")
			case 2:
				kept.Deposit(at, caller)
				trimmed.Deposit(at, caller)
			case 3, 4:
				one, err1 := kept.Withdraw(at, caller)
				two, err2 := trimmed.Withdraw(at, caller)
				if fmt.Sprint(err1) != fmt.Sprint(err2) {
					t.Fatalf("%v: %v; trimmed: %v", now, err1, err2)
				}
				tokens = append(tokens, twins{one, two}) // none where they were refused
			case 5, 6:
				if n := len(tokens); n > 0 {
					k := &tokens[rapid.IntRange(0, n-1).Draw(t, "which")]
					if rapid.Bool().Draw(t, "is sent") {
						k.kept.Spend(at)
						k.trimmed.Spend(at)
					} else {
						k.kept.HandBack(at)
						k.trimmed.HandBack(at)
					}
				}
			case 7:
				kept.Snapshot(at) // its clock goes on, too
				trimmed.Trim(at)
			case 8:
				part := rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "part")
				kept.SetShare(part)
				trimmed.SetShare(part)
			}
			if one, two := kept.Snapshot(after(now)), trimmed.Snapshot(after(now)); one != two {
				t.Fatalf("%v: %+v; trimmed: %+v", now, one, two)
			}
		}
	})
}

func newOf(t *rapid.T, c budget.Config) *budget.Budget {
	b, err := budget.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// heapPer is the heap that a budget costs after what was done to it.
func heapPer(t *testing.T, c budget.Config, done func(b *budget.Budget)) int64 {
	t.Helper()
	const many = 1000
	kept := make([]*budget.Budget, many)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what lay in a pool survives the first
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range kept {
		kept[i] = newBudget(t, c)
		done(kept[i])
	}
	each := (heap() - before) / many
	runtime.KeepAlive(kept)
	return each
}

func TestTrimmedBudgetIsSmallWhateverItWasUsedFor(t *testing.T) {
	const period = 10 * time.Second
	everybody := func(b *budget.Budget) {
		for i := range 80 { // more than have an account of their own
			b.Deposit(epoch, fmt.Sprint("caller", i))
			if got := granted(b, epoch, fmt.Sprint("caller", i), 1); got != 1 {
				t.Fatal("not granted")
			}
		}
	}
	rows := []struct {
		name  string
		share float64
		done  func(b *budget.Budget)
		most  int64
	}{
		{"never used", 0.5, func(*budget.Budget) {}, 200},
		{"as long as it counts", 0.5, func(b *budget.Budget) { everybody(b); b.Trim(after(period - 1)) }, 24 << 10},
		{"nothing counts", 0.5, func(b *budget.Budget) { everybody(b); b.Trim(after(period)) }, 200},
		{"nothing counts, and somebody looks", 0.5, func(b *budget.Budget) {
			everybody(b)
			b.Trim(after(period))
			b.Snapshot(after(period))
			b.Trim(after(2 * period))
		}, 200},
		{"nobody takes anything", 0.5, func(b *budget.Budget) {
			everybody(b)
			b.Deposit(after(period), "a")
			b.Trim(after(period))
		}, 640},
		{"all may take all", 1, everybody, 640},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if got := heapPer(t, windowOf(1, period, 1, row.share), row.done); got > row.most {
				t.Errorf("%d bytes, want at most %d", got, row.most)
			}
		})
	}
}

func TestTrimOfABudgetInUseLeavesTheSharersTheirBound(t *testing.T) {
	const period = 10 * time.Second
	b := newBudget(t, windowOf(0, period, 100, 0.01)) // 1000 in all, 10 each
	for i := range 64 {
		granted(b, epoch, fmt.Sprint("own", i), 1)
	}
	if got := granted(b, after(period/2), "beyond0", 20); got != 10 {
		t.Fatalf("%d granted to those beyond the bound, want 10", got)
	}
	b.Trim(after(period)) // the others' accounts are empty
	if r := refusal(t, b, after(period), "beyond1"); r.Reason != budget.ReasonCallerShare || r.RetryAfter != period/2 {
		t.Errorf("%+v", r)
	}
	b.Deposit(after(period*3/2), "own0")
	b.Trim(after(period * 3 / 2)) // so is theirs
	for _, name := range []string{"beyond0", "beyond1"} {
		if got := granted(b, after(period*3/2), name, 20); got != 10 {
			t.Errorf("%d granted to %s, want the 10 of an account of its own", got, name)
		}
	}
}

func TestCopyOfATokenThatIsEndedAfterTrimChangesNothing(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 1, 0.5))
	token, err := b.Withdraw(epoch, "a")
	if err != nil {
		t.Fatal(err)
	}
	again := token
	token.HandBack(epoch)
	b.Trim(after(time.Minute))
	again.HandBack(after(time.Minute))
	if s := b.Snapshot(after(time.Minute)); s.Retries != 0 || s.Outstanding != 0 || s.Left != 10 {
		t.Errorf("%+v", s)
	}
}

func TestTrimOfABucketKeepsItsTokens(t *testing.T) {
	b := newBudget(t, bucketOf(10, 0.1, budget.RuleHalf))
	b.Failed(epoch)
	b.Trim(after(time.Hour))
	if got := b.Snapshot(after(time.Hour)).Tokens; got != 9 {
		t.Errorf("%v tokens", got)
	}
}

func TestTrimsAtOnceLoseNothing(t *testing.T) {
	b := newBudget(t, windowOf(0, time.Millisecond, 100_000, 0.5)) // 100 in all
	together(16, func(i int) {
		for n := range 300 {
			now := after(time.Duration(n) * 2 * time.Millisecond)
			if token, err := b.Withdraw(now, fmt.Sprint("caller", i)); err == nil {
				b.Trim(now)
				token.Spend(now)
			}
			b.Trim(now)
		}
	})
	s := b.Snapshot(after(time.Minute))
	if s.Outstanding != 0 || s.Retries != 0 || s.Totals.Granted == 0 || s.Totals.Granted+s.Totals.Refused != 16*300 {
		t.Errorf("%+v", s)
	}
}
