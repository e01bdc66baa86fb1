package budget_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/budget"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return epoch.Add(d) }

func newBudget(t testing.TB, c budget.Config) *budget.Budget {
	t.Helper()
	b, err := budget.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func windowOf(ratio float64, period time.Duration, perSecond, share float64) budget.Config {
	return budget.Config{
		Name:           "policies/default",
		Window:         &budget.Window{Ratio: ratio, Period: period, MinPerSecond: perSecond},
		CallerMaxShare: share,
	}
}

func bucketOf(maxTokens, ratio float64, rule budget.Rule) budget.Config {
	return budget.Config{Name: "policies/default", TokenBucket: &budget.TokenBucket{MaxTokens: maxTokens, TokenRatio: ratio, Rule: rule}}
}

// granted withdraws at most n times, sends at once what is allowed, and counts it.
func granted(b *budget.Budget, now time.Time, caller string, n int) int {
	count := 0
	for range n {
		if token, err := b.Withdraw(now, caller); err == nil {
			token.Spend(now)
			count++
		}
	}
	return count
}

// waiting withdraws n times, all of which must be allowed, and sends nothing.
func waiting(t testing.TB, b *budget.Budget, now time.Time, caller string, n int) []budget.Token {
	t.Helper()
	tokens := make([]budget.Token, n)
	for i := range tokens {
		var err error
		if tokens[i], err = b.Withdraw(now, caller); err != nil {
			t.Fatal(err)
		}
	}
	return tokens
}

func refusal(t testing.TB, b *budget.Budget, now time.Time, caller string) *budget.RefusedError {
	t.Helper()
	_, err := b.Withdraw(now, caller)
	refused, ok := errors.AsType[*budget.RefusedError](err)
	if !ok {
		t.Fatalf("not refused: %v", err)
	}
	return refused
}
