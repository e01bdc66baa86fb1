package breaker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

func TestLatenciesAreThoseOfTheLatestSuccesses(t *testing.T) {
	b := breaker.New(plain())
	for i := range 40 {
		result := ok
		result.Latency = time.Duration(i)*time.Millisecond + 1
		admit(t, b, ms(0), patient("a")).Settle(ms(0), result, 0)
	}
	failed := status503
	failed.Latency = time.Hour
	admit(t, b, ms(0), patient("a")).Settle(ms(0), failed, 0)
	got := b.AppendLatencies([]time.Duration{0})
	slices.Sort(got)
	if len(got) != 33 || got[0] != 0 || got[1] != time.Millisecond || got[32] != 32*time.Millisecond {
		t.Errorf("%d: %v", len(got), got)
	}
	b.Reset(ms(1))
	if got := b.AppendLatencies(nil); len(got) != 0 {
		t.Errorf("after a reset: %v", got)
	}
}
