package budget_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/sallyport/sallyport/budget"
)

func TestHalfRuleFollowsTheReferenceTable(t *testing.T) {
	text, err := os.ReadFile("testdata/a6_throttle.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		MaxTokens  float64 `json:"max_tokens"`
		TokenRatio float64 `json:"token_ratio"`
		Rows       []struct {
			Step   int     `json:"step"`
			Event  string  `json:"event"`
			Tokens float64 `json:"tokens"`
			Retry  *bool   `json:"retry"`
			Hedge  *bool   `json:"hedge"`
		} `json:"rows"`
		Facts []struct {
			What  string  `json:"what"`
			Value float64 `json:"value"`
		} `json:"facts"`
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) == 0 || len(table.Facts) != 3 {
		t.Fatalf("%d rows, %d facts", len(table.Rows), len(table.Facts))
	}
	b := newBudget(t, bucketOf(table.MaxTokens, table.TokenRatio, budget.RuleHalf))
	for _, row := range table.Rows {
		asks := true // what comes after the event asks the budget
		switch row.Event {
		case "F":
			b.Failed(epoch)
		case "P":
			b.Failed(epoch)
			asks = false
		case "S":
			b.Succeeded(epoch)
		case "X", "T": // told nothing: the one is no failure of the upstream, the other is free
			asks = false
		default:
			t.Fatalf("step %d: no such event %q", row.Step, row.Event)
		}
		if got := b.Snapshot(epoch).Tokens; got != row.Tokens {
			t.Fatalf("step %d %s: %v tokens, want %v", row.Step, row.Event, got, row.Tokens)
		}
		if !asks {
			continue
		}
		want := row.Retry
		if want == nil {
			want = row.Hedge
		}
		if _, err := b.Withdraw(epoch, "a"); (err == nil) != *want {
			t.Fatalf("step %d %s: %v, want allowed %v", row.Step, row.Event, err, *want)
		}
	}

	if got := successesUntil(t, func(b *budget.Budget) bool { return b.Snapshot(epoch).Left > 0 }); got != table.Facts[0].Value {
		t.Errorf("%s: %v, want %v", table.Facts[0].What, got, table.Facts[0].Value)
	}
	if got := successesUntil(t, func(b *budget.Budget) bool { return b.Snapshot(epoch).Left > 1 }); got != table.Facts[1].Value {
		t.Errorf("%s: %v, want %v", table.Facts[1].What, got, table.Facts[1].Value)
	}
	b = newBudget(t, bucketOf(10, 0.5466, budget.RuleHalf))
	b.Failed(epoch)
	b.Succeeded(epoch)
	if got := b.Snapshot(epoch).Tokens - 9; math.Abs(got-table.Facts[2].Value) > 1e-9 {
		t.Errorf("%s: %v, want %v", table.Facts[2].What, got, table.Facts[2].Value)
	}
}

// successesUntil counts from an empty bucket of 10.
func successesUntil(t *testing.T, done func(*budget.Budget) bool) float64 {
	t.Helper()
	b := newBudget(t, bucketOf(10, 0.1, budget.RuleHalf))
	for range 12 {
		b.Failed(epoch)
	}
	if got := b.Snapshot(epoch).Tokens; got != 0 {
		t.Fatalf("%v tokens: a failure takes none that is not there", got)
	}
	n := 0
	for ; !done(b) && n < 1000; n++ {
		b.Succeeded(epoch)
	}
	return float64(n)
}

func TestUnspecifiedRuleIsHalf(t *testing.T) {
	b := newBudget(t, bucketOf(4, 0.5, budget.RuleUnspecified))
	b.Failed(epoch)
	if _, err := b.Withdraw(epoch, ""); err != nil {
		t.Fatal(err)
	}
	b.Failed(epoch)
	refusal(t, b, epoch, "")
}

func TestHalfRuleChargesFailuresAndNotRetries(t *testing.T) {
	b := newBudget(t, bucketOf(10, 0.1, budget.RuleHalf))
	token, err := b.Withdraw(epoch, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := granted(b, epoch, "", 100); got != 100 {
		t.Errorf("%d of 100 allowed without a failure", got)
	}
	b.Failed(epoch)
	token.HandBack(epoch)
	if got := b.Snapshot(epoch).Tokens; got != 9 {
		t.Errorf("%v tokens: what took none gives none back", got)
	}
}

func TestPerRetryRuleTakesAWholeToken(t *testing.T) {
	b := newBudget(t, bucketOf(2, 0.5, budget.RulePerRetry))
	b.Failed(epoch) // costs nothing here
	if got := granted(b, epoch, "", 5); got != 2 {
		t.Fatalf("%d granted of 2", got)
	}
	b.Succeeded(epoch)
	if r := refusal(t, b, epoch, ""); r.Reason != budget.ReasonSpent || r.RetryAfter != 0 {
		t.Errorf("half a token: %+v", r)
	}
	b.Succeeded(epoch)
	if got := granted(b, epoch, "", 5); got != 1 {
		t.Fatalf("%d granted of 1", got)
	}
	for range 100 {
		b.Succeeded(epoch)
	}
	if got := b.Snapshot(epoch).Tokens; got != 2 {
		t.Errorf("%v tokens, over the maximum of 2", got)
	}
}

func TestRatioBelowAThousandthStillRefills(t *testing.T) {
	b := newBudget(t, bucketOf(1, 0.0001, budget.RulePerRetry))
	granted(b, epoch, "", 1)
	for range 1000 {
		b.Succeeded(epoch)
	}
	if got := granted(b, epoch, "", 2); got != 1 {
		t.Errorf("%d granted after 1000 successes", got)
	}
}

func TestBucketHandBackIsOnce(t *testing.T) {
	b := newBudget(t, bucketOf(3, 0.1, budget.RulePerRetry))
	first, _ := b.Withdraw(epoch, "")
	if _, err := b.Withdraw(epoch, ""); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		first.HandBack(epoch)
	}
	if s := b.Snapshot(epoch); s.Tokens != 2 || s.Totals.HandedBack != 1 {
		t.Errorf("%+v", s)
	}
	var none budget.Token
	none.HandBack(epoch)
}

func TestShareOfABucketKeepsHowFullItIs(t *testing.T) {
	b := newBudget(t, bucketOf(10, 0.1, budget.RulePerRetry))
	granted(b, epoch, "", 5)
	rows := []struct {
		share, tokens, allowance float64
		granted                  bool
	}{
		{0.5, 2.5, 5, true},
		{math.NaN(), 2.5, 5, true},
		{1, 5, 10, true},
		{7, 5, 10, true},
		{0, 5, 0, false},
		{0.00001, 5, 0, false}, // less than a thousandth of a token is none
		{-1, 5, 0, false},
		{0.2, 1, 2, true},
		{0.1, 0.5, 1, false},
		{1, 5, 10, true},
	}
	for i, row := range rows {
		b.SetShare(row.share)
		s := b.Snapshot(epoch)
		if s.Tokens != row.tokens || s.Allowance != row.allowance {
			t.Errorf("row %d, share %v: %v tokens of %v, want %v of %v", i, row.share, s.Tokens, s.Allowance, row.tokens, row.allowance)
		}
		token, err := b.Withdraw(epoch, "")
		if (err == nil) != row.granted {
			t.Errorf("row %d, share %v: %v", i, row.share, err)
		}
		token.HandBack(epoch)
	}
}

func TestThousandthsAreNotLostInBinary(t *testing.T) {
	b := newBudget(t, bucketOf(5, 1.001, budget.RulePerRetry)) // 1.001 · 1000 is 1000.9999999999999
	granted(b, epoch, "", 3)
	b.Succeeded(epoch)
	if got := b.Snapshot(epoch).Tokens; got != 3.001 {
		t.Errorf("%v tokens, want 3.001", got)
	}
}
