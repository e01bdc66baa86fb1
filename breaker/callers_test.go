package breaker_test

import (
	"fmt"
	"testing"

	"github.com/sallyport/sallyport/breaker"
)

func TestOneCallersPoisonClosesNobodyElsesDoor(t *testing.T) {
	c := usual()
	c.MinRequests = 10
	b := breaker.New(c)
	for i := range 20 {
		attempt(t, b, ms(i), patient("b"), ok)
	}
	for i := range 100 {
		if cause := attempt(t, b, ms(20+i), patient("a"), status503); cause != 0 {
			t.Fatalf("opened by %q through one caller", cause)
		}
	}
	if cause := attempt(t, b, ms(200), patient("b"), status503); cause != breaker.CauseConsecutive {
		t.Errorf("a second caller failing: %q", cause)
	}
}

func TestALoneCallerIsEnough(t *testing.T) {
	b := breaker.New(plain())
	attempt(t, b, zero, patient("b"), ok)
	for range 5 {
		attempt(t, b, ms(1), patient("a"), lost)
	}
	wantState(t, b, ms(1), breaker.Closed)
	// The other caller has left the window.
	if cause := attempt(t, b, ms(10_000), patient("a"), lost); cause != breaker.CauseConsecutive {
		t.Errorf("cause %q", cause)
	}
}

func TestManyHealthyCallersDoNotHideTheFailing(t *testing.T) {
	c := rates()
	c.FailureRate, c.MinDistinctCallers = 0.1, 3
	b := breaker.New(c)
	now := 0
	for _, failing := range []string{"x", "y", "z"} {
		for i := range 30 {
			now++
			attempt(t, b, ms(now), patient(fmt.Sprint("healthy", i)), ok)
		}
		for range 6 {
			now++
			if cause := attempt(t, b, ms(now), patient(failing), status503); cause == breaker.CauseFailureRate && failing == "z" {
				return
			} else if cause != 0 {
				t.Fatalf("%q through %s", cause, failing)
			}
		}
	}
	t.Error("never opened")
}

func TestManyThrottledCallersDoNotHideTheOneFailingInARow(t *testing.T) {
	b := breaker.New(plain())
	attempt(t, b, zero, patient("a"), lost)
	attempt(t, b, zero, patient("a"), lost)
	for i := range 20 {
		attempt(t, b, ms(1+i), patient(fmt.Sprint("throttled", i)), status429)
	}
	if cause := attempt(t, b, ms(30), patient("b"), lost); cause != breaker.CauseConsecutive {
		t.Errorf("cause %q", cause)
	}
}
