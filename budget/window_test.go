package budget_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/budget"
)

func TestRatioOfFirstAttempts(t *testing.T) {
	rows := []struct {
		ratio  float64
		firsts int
		want   int
	}{
		{0, 1000, 0},
		{0.5, 1, 0},
		{0.5, 2, 1},
		{0.2, 20, 4},
		{0.29, 100, 29}, // 28.999999999999996 in binary
		{0.1, 30, 3},    // 3.0000000000000004
		{0.7, 10, 7},
		{3, 2, 6},
	}
	for _, row := range rows {
		b := newBudget(t, windowOf(row.ratio, 10*time.Second, 0, 1))
		for range row.firsts {
			b.Deposit(epoch, "a")
		}
		if got := granted(b, epoch, "a", 100); got != row.want {
			t.Errorf("ratio %v of %d: %d granted, want %d", row.ratio, row.firsts, got, row.want)
		}
	}
}

func TestEveryOtherFailingCallMayRepeatOnce(t *testing.T) {
	b := newBudget(t, windowOf(0.5, time.Minute, 0, 0.5))
	for i := range 20 {
		now := after(time.Duration(i) * 100 * time.Millisecond)
		b.Deposit(now, "a")
		if got, want := granted(b, now, "a", 1), i%2; got != want {
			t.Fatalf("call %d: %d granted, want %d", i, got, want)
		}
	}
}

func TestFloorHoldsWithoutFirstAttempts(t *testing.T) {
	b := newBudget(t, windowOf(0, 3*time.Second, 1, 0.5))
	if got := granted(b, epoch, "a", 5); got != 3 {
		t.Errorf("%d granted, want 1/s · 3s", got)
	}
}

func TestEdgesOfTheWindowAreExact(t *testing.T) {
	const period = 10 * time.Second
	for _, start := range []time.Duration{0, 1, 499_999_999, 500 * time.Millisecond, 7*time.Second + 123_456_789} {
		t.Run(fmt.Sprint("a retry leaves after a period, taken at ", start), func(t *testing.T) {
			b := newBudget(t, windowOf(0, period, 0.1, 1))
			b.Snapshot(epoch) // the grid begins here
			if got := granted(b, after(start), "a", 2); got != 1 {
				t.Fatalf("%d granted, want 1", got)
			}
			if r := refusal(t, b, after(start+1), "a"); r.RetryAfter != period-1 {
				t.Errorf("retry after %v, want %v", r.RetryAfter, period-1)
			}
			if r := refusal(t, b, after(start+period-1), "a"); r.RetryAfter != 1 {
				t.Errorf("retry after %v, want 1ns", r.RetryAfter)
			}
			if got := granted(b, after(start+period), "a", 2); got != 1 {
				t.Errorf("%d granted a period later, want 1", got)
			}
		})
		t.Run(fmt.Sprint("a first attempt leaves after a period, made at ", start), func(t *testing.T) {
			b := newBudget(t, windowOf(1, period, 0, 1))
			b.Snapshot(epoch)
			b.Deposit(after(start), "a")
			if s := b.Snapshot(after(start + period - 1)); s.Firsts != 1 || s.Left != 1 {
				t.Errorf("just before: %+v", s)
			}
			if s := b.Snapshot(after(start + period)); s.Firsts != 0 || s.Left != 0 {
				t.Errorf("a period later: %+v", s)
			}
			if r := refusal(t, b, after(start+period), "a"); r.RetryAfter != 0 {
				t.Errorf("no time is known, and it says %v", r.RetryAfter)
			}
		})
	}
}

func TestEdgesOfALongWindowAreSafe(t *testing.T) {
	const period = 10 * time.Hour // a mark is 420 ns here
	b := newBudget(t, windowOf(0, period, 1/period.Seconds(), 1))
	b.Snapshot(epoch)
	start := 17*time.Minute + 123_456_789
	granted(b, after(start), "a", 1)
	refusal(t, b, after(start+period-1), "a")
	if got := granted(b, after(start+period+time.Microsecond), "a", 1); got != 1 {
		t.Error("not granted a microsecond past the period")
	}
}

func TestTimeGoingBackCountsAsTheLatest(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 0.1, 1))
	granted(b, after(time.Hour), "a", 1)
	refusal(t, b, epoch, "a")
	refusal(t, b, after(time.Hour+9*time.Second), "a")
	if got := granted(b, after(time.Hour+10*time.Second), "a", 1); got != 1 {
		t.Error("not granted a period after the latest instant")
	}
}

func TestHandBackIsAsIfNeverTaken(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 0.2, 1))
	first, err := b.Withdraw(epoch, "a")
	if err != nil {
		t.Fatal(err)
	}
	if got := granted(b, after(time.Second), "a", 2); got != 1 {
		t.Fatalf("%d granted, want the second of two", got)
	}
	first.HandBack(after(2 * time.Second))
	first.HandBack(after(2 * time.Second))
	if got := granted(b, after(2*time.Second), "a", 2); got != 1 {
		t.Errorf("%d granted after one was handed back", got)
	}
}

func TestHandBackOfWhatHasLeftChangesNothing(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 0.1, 1))
	old, _ := b.Withdraw(epoch, "a")
	old.Spend(epoch)
	if got := granted(b, after(10500*time.Millisecond), "a", 1); got != 1 { // kept where the old one was
		t.Fatal("not granted a period later")
	}
	old.HandBack(after(11 * time.Second))
	refusal(t, b, after(11*time.Second), "a")
}

func TestShareOfAFleetScalesTheFloorAlone(t *testing.T) {
	rows := []struct {
		share float64
		want  int
	}{{1, 14}, {0.25, 6}, {2, 14}, {0, 0}, {-1, 0}}
	for _, row := range rows {
		b := newBudget(t, windowOf(0.2, 10*time.Second, 1, 1))
		for range 20 {
			b.Deposit(epoch, "a")
		}
		b.SetShare(row.share)
		if got := granted(b, epoch, "a", 100); got != row.want {
			t.Errorf("share %v: %d granted, want 20·0.2 + 10·share, or none for none: %d", row.share, got, row.want)
		}
	}
}

func TestRefusalNamesTheBudget(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 0, 1))
	r := refusal(t, b, epoch, "a")
	if r.Budget != "policies/default" || !strings.Contains(r.Error(), `retry budget "policies/default"`) {
		t.Errorf("%+v: %v", r, r)
	}
}

func TestConfigThatCannotBeIsRefusedByField(t *testing.T) {
	rows := []struct {
		field string
		c     budget.Config
	}{
		{"window or a token bucket", budget.Config{}},
		{"one of them", budget.Config{Window: &budget.Window{Period: 1}, TokenBucket: &budget.TokenBucket{MaxTokens: 1, TokenRatio: 1}}},
		{"caller_max_share", windowOf(0.2, time.Second, 0, 1.1)},
		{"caller_max_share", windowOf(0.2, time.Second, 0, math.NaN())},
		{"window.ratio", windowOf(-1, time.Second, 0, 1)},
		{"window.ratio", windowOf(math.Inf(1), time.Second, 0, 1)},
		{"window.period", windowOf(0.2, 0, 0, 1)},
		{"window.period", windowOf(0.2, math.MaxInt64, 0, 1)},
		{"window.min_per_second", windowOf(0.2, time.Second, math.NaN(), 1)},
		{"token_bucket.max_tokens", bucketOf(0, 0.1, budget.RuleHalf)},
		{"token_bucket.max_tokens", bucketOf(1e7, 0.1, budget.RuleHalf)},
		{"token_bucket.token_ratio", bucketOf(10, 0, budget.RuleHalf)},
		{"token_bucket.token_ratio", bucketOf(10, math.Inf(1), budget.RuleHalf)},
		{"token_bucket.rule", bucketOf(10, 0.1, 3)},
	}
	for _, row := range rows {
		if _, err := budget.New(row.c); err == nil || !strings.Contains(err.Error(), row.field) {
			t.Errorf("%+v: %v, want one about %s", row.c, err, row.field)
		}
	}
}

func TestShortestAndLongestPeriods(t *testing.T) {
	for _, period := range []time.Duration{1, 19, 21, 366 * 24 * time.Hour} {
		b := newBudget(t, windowOf(1, period, 0, 1))
		for i := range 50 {
			now := after(time.Duration(i) * 3 * period)
			b.Deposit(now, "a")
			if got := granted(b, now, "a", 2); got != 1 {
				t.Fatalf("period %v, call %d: %d granted", period, i, got)
			}
		}
	}
}
