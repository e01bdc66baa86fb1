package budget_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/sallyport/sallyport/budget"
)

func kinds() map[string]budget.Config {
	return map[string]budget.Config{
		"window": windowOf(0.2, 10*time.Second, 1, 0.5),
		"bucket": bucketOf(10, 0.1, budget.RuleHalf),
	}
}

// TestIdleBudgetIsSmall: an idle origin has 2 KiB for all of its state.
func TestIdleBudgetIsSmall(t *testing.T) {
	const many = 2000
	for name, limit := range map[string]uint64{"window": 1200, "bucket": 300} {
		c := kinds()[name]
		kept := make([]*budget.Budget, many)
		var before, then runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range kept {
			b, _ := budget.New(c)
			b.Deposit(epoch, "a")
			granted(b, epoch, "a", 1)
			kept[i] = b
		}
		runtime.ReadMemStats(&then)
		if each := (then.TotalAlloc - before.TotalAlloc) / many; each > limit {
			t.Errorf("%s: %d bytes a budget, want at most %d", name, each, limit)
		}
		runtime.KeepAlive(kept)
	}
}

func TestHotPathTakesNoMemory(t *testing.T) {
	for name, c := range kinds() {
		b := newBudget(t, c)
		b.Deposit(epoch, "a")
		granted(b, epoch, "a", 1) // the account of the caller
		now := epoch
		if n := testing.AllocsPerRun(100, func() {
			now = now.Add(time.Second)
			b.Deposit(now, "a")
			token, err := b.Withdraw(now, "a")
			if err != nil {
				t.Fatal(err)
			}
			token.HandBack(now)
			if token, err = b.Withdraw(now, "a"); err != nil {
				t.Fatal(err)
			}
			token.Spend(now)
			b.Failed(now)
			b.Succeeded(now)
			for range 10 {
				b.Succeeded(now)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkDeposit(b *testing.B) {
	for name, c := range kinds() {
		b.Run(name, func(b *testing.B) {
			k := newBudget(b, c)
			b.ReportAllocs()
			for b.Loop() {
				k.Deposit(epoch, "a")
			}
		})
	}
}

func BenchmarkWithdraw(b *testing.B) {
	for name, c := range kinds() {
		b.Run(name, func(b *testing.B) {
			k := newBudget(b, c)
			b.ReportAllocs()
			for b.Loop() {
				if token, err := k.Withdraw(epoch, "a"); err == nil {
					token.HandBack(epoch)
				}
			}
		})
	}
}

// BenchmarkSpend is an extra attempt that is sent, each in a step of its own, which moves the window on.
func BenchmarkSpend(b *testing.B) {
	for name, c := range kinds() {
		b.Run(name, func(b *testing.B) {
			k := newBudget(b, c)
			b.ReportAllocs()
			now := epoch
			for b.Loop() {
				now = now.Add(time.Second)
				if granted(k, now, "a", 1) != 1 {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkWithdrawRefused is the storm: everybody asks, and the window is spent.
func BenchmarkWithdrawRefused(b *testing.B) {
	for name, c := range kinds() {
		b.Run(name, func(b *testing.B) {
			k := newBudget(b, c)
			for range 20 {
				k.Failed(epoch)
				granted(k, epoch, "a", 1)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = k.Withdraw(epoch, "a")
			}
		})
	}
}

// BenchmarkContention is 64 goroutines on one budget: a first attempt, an extra one, and its end.
func BenchmarkContention(b *testing.B) {
	for name, c := range kinds() {
		b.Run(name, func(b *testing.B) {
			k := newBudget(b, c)
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					k.Deposit(epoch, "a")
					if token, err := k.Withdraw(epoch, "a"); err == nil {
						token.HandBack(epoch)
					}
				}
			})
		})
	}
}

func BenchmarkBytesPerBudget(b *testing.B) {
	for name, c := range kinds() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k, _ := budget.New(c)
				k.Deposit(epoch, "a")
				_, _ = k.Withdraw(epoch, "a")
			}
		})
	}
}
