package budget_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sallyport/sallyport/budget"
)

func TestOneCallerAloneMayTakeAll(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 1, 0.5))
	b.Deposit(epoch, "a")
	if got := granted(b, epoch, "a", 20); got != 10 {
		t.Errorf("%d granted of 10", got)
	}
}

func TestNoCallerTakesMoreThanItsShareWhileOthersContend(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 1, 0.5))
	b.Deposit(epoch, "a")
	b.Deposit(epoch, "b")
	if got := granted(b, epoch, "a", 20); got != 5 {
		t.Errorf("%d granted to a, want half of 10", got)
	}
	if r := refusal(t, b, after(time.Second), "a"); r.Reason != budget.ReasonCallerShare || r.RetryAfter != 9*time.Second {
		t.Errorf("%+v", r)
	}
	if got := granted(b, after(time.Second), "b", 20); got != 5 {
		t.Errorf("%d granted to b, want the other half", got)
	}
	if r := refusal(t, b, after(time.Second), "b"); r.Reason != budget.ReasonSpent {
		t.Errorf("%+v", r)
	}
}

func TestContentionEndsAPeriodAfterTheOtherWasSeen(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 1, 0.2))
	b.Deposit(epoch, "b")
	if got := granted(b, after(time.Second), "a", 20); got != 2 {
		t.Fatalf("%d granted, want a fifth", got)
	}
	if got := granted(b, after(10*time.Second-1), "a", 20); got != 0 {
		t.Errorf("%d granted while b counts", got)
	}
	if got := granted(b, after(10*time.Second), "a", 20); got != 8 {
		t.Errorf("%d granted, want all that is left", got)
	}
}

func TestWhatWasTakenAloneCountsWhenOthersCome(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 1, 0.5))
	if got := granted(b, epoch, "a", 7); got != 7 {
		t.Fatalf("%d granted", got)
	}
	b.Deposit(epoch, "b")
	if r := refusal(t, b, epoch, "a"); r.Reason != budget.ReasonCallerShare {
		t.Errorf("%+v", r)
	}
	if got := granted(b, epoch, "b", 20); got != 3 {
		t.Errorf("%d granted to b, want what is left", got)
	}
}

func TestShareBelowOneIsOne(t *testing.T) {
	b := newBudget(t, windowOf(0.5, 10*time.Second, 0, 0.5))
	for _, caller := range []string{"a", "b"} {
		b.Deposit(epoch, caller)
	}
	if got := granted(b, epoch, "a", 3); got != 1 {
		t.Errorf("%d granted: an allowance of one must be somebody's", got)
	}
}

func TestShareOfNothingIsNothingUnderContention(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 1, 0))
	if got := granted(b, epoch, "a", 1); got != 1 {
		t.Errorf("%d granted alone", got)
	}
	b.Deposit(epoch, "b")
	if r := refusal(t, b, epoch, "a"); r.Reason != budget.ReasonCallerShare {
		t.Errorf("%+v", r)
	}
}

func TestHandBackReturnsToTheCallersShare(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 1, 0.2))
	b.Deposit(epoch, "b")
	token, _ := b.Withdraw(epoch, "a")
	granted(b, epoch, "a", 1)
	refusal(t, b, epoch, "a")
	token.HandBack(epoch)
	if got := granted(b, epoch, "a", 5); got != 1 {
		t.Errorf("%d granted after one was handed back", got)
	}
}

func TestManyNamesGetNoMoreThanOneBeyondTheBound(t *testing.T) {
	b := newBudget(t, windowOf(0, 10*time.Second, 100, 0.01)) // 1000 in all, 10 each
	for i := range 64 {
		granted(b, epoch, fmt.Sprint("own", i), 1)
	}
	total := 0
	for i := range 200 {
		total += granted(b, epoch, fmt.Sprint("other", i), 1)
	}
	if total != 10 {
		t.Errorf("%d granted to 200 names beyond the bound, want the 10 of one", total)
	}
	if got := granted(b, epoch, "own7", 20); got != 9 {
		t.Errorf("%d granted to a caller with an account, want the rest of its 10", got)
	}
	// A period later all accounts are empty, and the names find room.
	later := after(10 * time.Second)
	b.Deposit(later, "own0")
	if got := granted(b, later, "other7", 20); got != 10 {
		t.Errorf("%d granted, want the 10 of an account of its own", got)
	}
	if got := granted(b, later, "other8", 20); got != 10 {
		t.Errorf("%d granted, want 10", got)
	}
}
