package budget_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/budget"
)

func TestCallersTellsWhoTookHowMuch(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 10, 0.5))
	for _, caller := range []string{"idle", "c", "b", "a"} {
		b.Deposit(epoch, caller)
	}
	granted(b, epoch, "a", 1)
	granted(b, epoch, "c", 2)
	waiting(t, b, after(time.Second), "b", 2)
	want := []budget.CallerUse{{"b", 2}, {"c", 2}, {"a", 1}}
	if got := b.Callers(after(time.Second), 32); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := b.Callers(after(time.Second), 2); !slices.Equal(got, want[:2]) {
		t.Errorf("of two: %v", got)
	}
	// What was sent has left the window, what still waits has not.
	if got := b.Callers(after(10*time.Second), 32); !slices.Equal(got, want[:1]) {
		t.Errorf("a period later: %v", got)
	}
}

// What the callers took adds up to what is counted of all.
func TestCallersAddUp(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 100, 0.5))
	for i := range 60 {
		granted(b, epoch, fmt.Sprint("caller", i), i%5)
	}
	sum := uint64(0)
	for _, use := range b.Callers(epoch, 100) {
		sum += use.Taken
	}
	if s := b.Snapshot(epoch); sum != s.Retries || sum != 120 {
		t.Errorf("%d, counted %d", sum, s.Retries)
	}
}

func TestThereAreBudgetsThatTellNoCallerFromAnother(t *testing.T) {
	for name, c := range map[string]budget.Config{
		"a bucket": bucketOf(10, 0.1, budget.RulePerRetry), "a window for any": windowOf(0, 10*time.Second, 1, 1), "unused": windowOf(0, time.Second, 1, 0.5),
	} {
		b := newBudget(t, c)
		if name != "unused" {
			granted(b, epoch, "a", 2)
		}
		if got := b.Callers(epoch, 32); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}
