package breaker_test

import (
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

// TestTimeThatWasNotGivenCounts as if the attempt had been admitted with the time it got: its caller cut it short after all.
func TestTimeThatWasNotGivenCounts(t *testing.T) {
	for _, row := range []struct {
		name    string
		given   time.Duration
		excused bool
	}{
		{"all of it", 0, false},
		{"all of it, said so", 10 * time.Second, false},
		{"more than that", time.Minute, false},
		{"enough", time.Second, false},
		{"too little", time.Second - 1, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := plain()
			c.MinDistinctCallers = 1
			result := timeout
			result.Given = row.given
			closed := breaker.New(c)
			for range c.ConsecutiveFailures {
				attempt(t, closed, zero, patient("a"), result)
			}
			want := map[bool]breaker.State{true: breaker.Closed, false: breaker.Open}[row.excused]
			wantState(t, closed, zero, want)

			probed := opened(t, plain())
			probe := admit(t, probed, ms(1000), patient("a"))
			if !probe.Probe() {
				t.Fatal("not the probe")
			}
			_, moved := probe.Settle(ms(2000), result, 0)
			if moved == row.excused {
				t.Errorf("the probe moved the breaker: %t", moved)
			}
		})
	}
}

// TestProbeThatWasGivenTooLittleSaysNothing also where no time-out is excused: it would not have been taken as the probe.
func TestProbeThatWasGivenTooLittleSaysNothing(t *testing.T) {
	c := plain()
	c.TimeoutFloor = 0
	b := opened(t, c)
	result := timeout
	result.Given = time.Second - 1
	if _, moved := admit(t, b, ms(1000), patient("a")).Settle(ms(2000), result, 0); moved {
		t.Error("the breaker moved")
	}
	wantState(t, b, ms(2000), breaker.HalfOpen)
}
