package budget_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/budget"
)

// together runs n goroutines that start at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func TestManyAtOnceNeverOverdraw(t *testing.T) {
	for name, c := range map[string]budget.Config{
		"window":     windowOf(0, 10*time.Second, 10, 1),
		"per retry":  bucketOf(100, 0.1, budget.RulePerRetry),
		"with share": windowOf(0, 10*time.Second, 10, 0.5),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBudget(t, c)
			b.Deposit(epoch, "caller0")
			b.Deposit(epoch, "caller1")
			var total atomic.Int64
			together(64, func(i int) {
				total.Add(int64(granted(b, epoch, fmt.Sprint("caller", i%2), 10)))
			})
			if total.Load() != 100 {
				t.Errorf("%d granted of 100", total.Load())
			}
		})
	}
}

func TestHandBacksAtOnceLoseNothing(t *testing.T) {
	for name, c := range map[string]budget.Config{
		"window":    windowOf(0, 10*time.Second, 10, 1),
		"per retry": bucketOf(100, 0.1, budget.RulePerRetry),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBudget(t, c)
			together(64, func(i int) {
				for n := range 200 {
					now := after(time.Duration(n) * time.Millisecond)
					if token, err := b.Withdraw(now, fmt.Sprint("caller", i)); err == nil {
						token.HandBack(now)
					}
					b.Snapshot(now)
				}
			})
			s := b.Snapshot(after(time.Second))
			if s.Totals.Granted != s.Totals.HandedBack || s.Left != 100 {
				t.Errorf("%+v", s)
			}
			if got := granted(b, after(time.Second), "caller0", 200); got != 100 {
				t.Errorf("%d granted afterwards, want all 100", got)
			}
		})
	}
}

func TestSpendsAtOnceLoseNothing(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 10, 1))
	tokens := make([]budget.Token, 64*10)
	together(64, func(i int) {
		for n := range 10 {
			tokens[10*i+n], _ = b.Withdraw(epoch, fmt.Sprint("caller", i))
		}
	})
	if s := b.Snapshot(after(time.Minute)); s.Outstanding != 100 {
		t.Fatalf("%d outstanding of 100", s.Outstanding)
	}
	together(64, func(i int) {
		for n := range 10 {
			k := &tokens[10*i+n]
			if i%2 == 0 {
				k.HandBack(after(time.Minute))
			}
			k.Spend(after(time.Minute))
		}
	})
	s := b.Snapshot(after(time.Minute))
	if s.Outstanding != 0 || s.Retries != 100-s.Totals.HandedBack {
		t.Errorf("%+v", s)
	}
	if got := granted(b, after(time.Minute), "caller0", 200); got != int(s.Totals.HandedBack) {
		t.Errorf("%d granted afterwards, want the %d handed back", got, s.Totals.HandedBack)
	}
}

func TestTotalsOnlyGrow(t *testing.T) {
	b := newBudget(t, windowOf(0.5, time.Second, 1, 0.5))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var last budget.Totals
		for {
			now := b.Snapshot(epoch).Totals
			if now.Firsts < last.Firsts || now.Granted < last.Granted || now.HandedBack < last.HandedBack ||
				now.Refused < last.Refused || now.HandedBack > now.Granted {
				t.Errorf("%+v after %+v", now, last)
				return
			}
			last = now
			select {
			case <-done:
				return
			default:
			}
		}
	})
	together(8, func(i int) {
		for n := range 1000 {
			now := after(time.Duration(n) * 10 * time.Millisecond)
			b.Deposit(now, "a")
			if token, err := b.Withdraw(now, "b"); err == nil && i%2 == 0 {
				token.HandBack(now)
			} else {
				token.Spend(now) // none where it was refused
			}
		}
	})
	close(done)
	wg.Wait()
	if got := b.Snapshot(epoch).Totals; got.Firsts != 8000 || got.Granted+got.Refused != 8000 {
		t.Errorf("%+v, want 8000 of each", got)
	}
}
