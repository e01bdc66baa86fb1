package budget_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sallyport/sallyport/budget"
)

// TestWaitLongerThanThePeriodDoesNotSendTwice: were a token dated at its grant, those granted first would leave the window while they
// wait, and a second allowance would be sent along with them.
func TestWaitLongerThanThePeriodDoesNotSendTwice(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 1, 1))
	tokens := waiting(t, b, epoch, "a", 10)
	if got := granted(b, after(11*time.Second), "a", 20); got != 0 {
		t.Errorf("%d granted while the allowance waits to be sent", got)
	}
	for i := range tokens {
		tokens[i].Spend(after(12 * time.Second))
	}
	if got := granted(b, after(22*time.Second-1), "a", 20); got != 0 {
		t.Errorf("%d granted less than a period after the allowance was sent", got)
	}
	if got := granted(b, after(22*time.Second), "a", 20); got != 10 {
		t.Errorf("%d granted a period after it was sent, want 10", got)
	}
}

func TestTokenThatWaitsCountsForAllAndForItsCaller(t *testing.T) {
	const long = time.Hour
	b := newBudget(t, windowOf(0, 10*time.Second, 1, 0.5))
	waiting(t, b, epoch, "a", 5)
	b.Deposit(after(long), "b")
	if r := refusal(t, b, after(long), "a"); r.Reason != budget.ReasonCallerShare || r.RetryAfter != 10*time.Second {
		t.Errorf("%+v", r)
	}
	if got := granted(b, after(long), "b", 20); got != 5 {
		t.Errorf("%d granted to b, want what is left", got)
	}
	if s := b.Snapshot(after(long)); s.Retries != 10 || s.Outstanding != 5 || s.Left != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTokenIsDatedWhenItIsSent(t *testing.T) {
	const period = 10 * time.Second
	for _, sent := range []time.Duration{0, 1, 3*time.Second + 123_456_789, period, 100*period + 499_999_999} {
		t.Run(fmt.Sprint("sent at ", sent), func(t *testing.T) {
			b := newBudget(t, windowOf(0, period, 0.1, 1))
			token := waiting(t, b, epoch, "a", 1)[0]
			refusal(t, b, after(sent), "a")
			token.Spend(after(sent))
			if r := refusal(t, b, after(sent+period-1), "a"); r.RetryAfter != 1 {
				t.Errorf("retry after %v, want 1ns", r.RetryAfter)
			}
			if got := granted(b, after(sent+period), "a", 2); got != 1 {
				t.Errorf("%d granted a period after it was sent, want 1", got)
			}
		})
	}
}

// TestStepLeavesWithTheLastSentInIt: to the safe side, whatever the order of the grants.
func TestStepLeavesWithTheLastSentInIt(t *testing.T) {
	const period, later = 10 * time.Second, 40 * time.Millisecond
	b := newBudget(t, windowOf(0, period, 0.2, 1))
	tokens := waiting(t, b, epoch, "a", 2)
	tokens[1].Spend(epoch)
	tokens[0].Spend(after(later))
	if r := refusal(t, b, after(period), "a"); r.RetryAfter != later {
		t.Errorf("%+v, want %v", r, later)
	}
	if got := granted(b, after(period+later), "a", 3); got != 2 {
		t.Errorf("%d granted, want both", got)
	}
}

func TestTokenSentAtAnEarlierInstantIsDatedAtTheLatest(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 0.1, 1))
	token := waiting(t, b, epoch, "a", 1)[0]
	b.Snapshot(after(time.Hour))
	token.Spend(after(time.Second))
	refusal(t, b, after(time.Hour+10*time.Second-1), "a")
	if got := granted(b, after(time.Hour+10*time.Second), "a", 1); got != 1 {
		t.Error("not granted a period after the latest instant")
	}
}

// TestRetryAfterTakesWhatWaitsAsSentNow: it leaves a period from now at the earliest, and takes the step it is sent in with it.
func TestRetryAfterTakesWhatWaitsAsSentNow(t *testing.T) {
	const period = 10 * time.Second
	rows := []struct {
		name       string
		sent, wait int // of 4, at 1s and at 3s
		now, want  time.Duration
	}{
		{"all were sent", 4, 0, 5 * time.Second, 6 * time.Second},
		{"one waits, one that was sent leaves first", 3, 1, 5 * time.Second, 6 * time.Second},
		{"all wait", 0, 4, 5 * time.Second, period},
		{"all have waited for long", 0, 4, time.Hour, period},
		{"in the step of the last that was sent", 3, 1, 3*time.Second + 1, 8*time.Second - 1},
	}
	for _, row := range rows {
		b := newBudget(t, windowOf(0, period, 0.4, 1))
		granted(b, epoch.Add(time.Second), "a", row.sent)
		waiting(t, b, after(3*time.Second), "a", row.wait)
		if r := refusal(t, b, after(row.now), "a"); r.Reason != budget.ReasonSpent || r.RetryAfter != row.want {
			t.Errorf("%s: %+v, want %v", row.name, r, row.want)
		}
	}

	b := newBudget(t, windowOf(0, period, 0.2, 1))
	granted(b, epoch, "a", 1)
	waiting(t, b, epoch, "a", 1)
	if r := refusal(t, b, after(time.Millisecond), "a"); r.RetryAfter != period {
		t.Errorf("beside one just sent: %+v, want %v", r, period)
	}
}

func TestRetryAfterIsNotKnownWhereNoneFitsWhenAllHaveLeft(t *testing.T) {
	b := newBudget(t, windowOf(1, 10*time.Second, 0, 1))
	b.Deposit(epoch, "a")
	waiting(t, b, epoch, "a", 1)
	if r := refusal(t, b, epoch, "a"); r.RetryAfter != 0 {
		t.Errorf("%+v: only first attempts can refill it", r)
	}
}

func TestTokenEndsOnce(t *testing.T) {
	ends := map[string]func(*budget.Token){
		"spent twice":              func(k *budget.Token) { k.Spend(epoch); k.Spend(after(time.Second)) },
		"handed back after it":     func(k *budget.Token) { k.Spend(epoch); k.HandBack(epoch) },
		"handed back a period on":  func(k *budget.Token) { k.Spend(epoch); k.HandBack(after(9 * time.Second)) },
		"spent after handing back": func(k *budget.Token) { k.HandBack(epoch); k.Spend(epoch) },
		"handed back twice":        func(k *budget.Token) { k.HandBack(epoch); k.HandBack(epoch) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b := newBudget(t, windowOf(0, 10*time.Second, 0.3, 1))
			tokens := waiting(t, b, epoch, "a", 2)
			end(&tokens[0])
			if tokens[0] != (budget.Token{}) {
				t.Errorf("%+v is left", tokens[0])
			}
			s := b.Snapshot(after(9 * time.Second))
			if want := 2 - s.Totals.HandedBack; s.Retries != want || s.Outstanding != 1 || s.Totals.HandedBack > 1 {
				t.Errorf("%+v, want %d taken and one of them outstanding", s, want)
			}
		})
	}
}

func TestBucketTokenEndsOnce(t *testing.T) {
	b := newBudget(t, bucketOf(3, 0.1, budget.RulePerRetry))
	token := waiting(t, b, epoch, "a", 1)[0]
	token.Spend(epoch)
	token.Spend(epoch)
	token.HandBack(epoch)
	if s := b.Snapshot(epoch); s.Tokens != 2 || s.Totals.HandedBack != 0 || token != (budget.Token{}) {
		t.Errorf("%+v, %+v", s, token)
	}
}

func TestZeroTokenIsNone(t *testing.T) {
	var none budget.Token
	none.Spend(epoch)
	none.HandBack(epoch)
	b := newBudget(t, windowOf(0, 10*time.Second, 0, 1))
	refused, err := b.Withdraw(epoch, "a")
	if err == nil || refused != none {
		t.Fatalf("%+v, %v", refused, err)
	}
	refused.Spend(epoch)
	refused.HandBack(epoch)
	if s := b.Snapshot(epoch); s.Retries != 0 || s.Outstanding != 0 || s.Totals.HandedBack != 0 {
		t.Errorf("%+v", s)
	}
}

// TestCopyOfATokenTakesNothingBelowNone: a copy is a mistake of the caller's; it must not make a count huge.
func TestCopyOfATokenTakesNothingBelowNone(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 0.3, 1))
	token := waiting(t, b, epoch, "a", 1)[0]
	again, handedBack := token, token
	token.Spend(epoch)
	handedBack.HandBack(epoch)
	if s := b.Snapshot(epoch); s.Retries != 1 || s.Outstanding != 0 {
		t.Errorf("%+v", s)
	}
	again.Spend(epoch)
	if s := b.Snapshot(epoch); s.Retries != 2 || s.Outstanding != 0 {
		t.Errorf("%+v", s)
	}
	if got := granted(b, epoch, "a", 3); got != 1 {
		t.Errorf("%d granted, want the rest of 3", got)
	}
}

func TestAccountOfATokenThatWaitsIsNotForgotten(t *testing.T) {
	const period = 10 * time.Second
	b := newBudget(t, windowOf(0, period, 100, 0.01)) // 1000 in all, 10 each
	tokens := waiting(t, b, epoch, "waits", 10)
	for i := range 63 {
		granted(b, epoch, fmt.Sprint("own", i), 1)
	}
	later := after(3 * period)
	b.Deposit(later, "somebody else")
	for i := range 63 { // the other accounts are empty, and make room
		if got := granted(b, later, fmt.Sprint("other", i), 20); got != 10 {
			t.Fatalf("%d granted to other%d, want the 10 of an account of its own", got, i)
		}
	}
	refusal(t, b, later, "waits")
	for i := range tokens[:9] {
		tokens[i].Spend(later)
	}
	tokens[9].HandBack(later)
	if got := granted(b, later, "waits", 20); got != 1 {
		t.Errorf("%d granted, want the one handed back", got)
	}
	// All was sent; a period later it has left, and the account makes room too.
	b.Deposit(later.Add(period), "somebody else")
	if got := granted(b, later.Add(period), "new", 20); got != 10 {
		t.Errorf("%d granted, want 10", got)
	}
	if s := b.Snapshot(later.Add(period)); s.Retries != 10 || s.Outstanding != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTokensThatWaitFillTheTableAndNoMore(t *testing.T) {
	const period = 10 * time.Second
	b := newBudget(t, windowOf(0, period, 100, 0.01)) // 1000 in all, 10 each
	var tokens []budget.Token
	for i := range 64 {
		tokens = append(tokens, waiting(t, b, epoch, fmt.Sprint("own", i), 1)...)
	}
	tokens = append(tokens, waiting(t, b, epoch, "beyond0", 10)...)
	later := after(3 * period)
	b.Deposit(later, "somebody else")
	if r := refusal(t, b, later, "beyond1"); r.Reason != budget.ReasonCallerShare {
		t.Errorf("%+v, want those beyond the bound to share what one may take", r)
	}
	for i := range tokens {
		tokens[i].Spend(later)
	}
	b.Deposit(later.Add(period-1), "somebody else")
	refusal(t, b, later.Add(period-1), "beyond1")
	if got := granted(b, later.Add(period), "beyond1", 20); got != 10 {
		t.Errorf("%d granted a period after all were sent, want 10", got)
	}
}
