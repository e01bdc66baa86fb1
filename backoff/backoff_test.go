package backoff_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/backoff"
)

// lastRnd is the largest number below 1: what a uniform source can give at most.
var lastRnd = math.Nextafter(1, 0)

func readTable(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func TestWaitFollowsTheReferenceTable(t *testing.T) {
	var table struct {
		Rows []struct {
			Base         float64    `json:"base_ms"`
			Multiplier   float64    `json:"multiplier"`
			Cap          float64    `json:"cap_ms"`
			N            int        `json:"n"`
			None         float64    `json:"none_ms"`
			Full         [2]float64 `json:"full_ms"`
			Equal        [2]float64 `json:"equal_ms"`
			Proportional [2]float64 `json:"proportional_ms"`
		} `json:"rows"`
		Sums []struct {
			Base     float64 `json:"base_ms"`
			Cap      float64 `json:"cap_ms"`
			Attempts int     `json:"attempts"`
			None     float64 `json:"none_ms"`
		} `json:"sums"`
	}
	readTable(t, "backoff.json", &table)
	if len(table.Rows) == 0 || len(table.Sums) == 0 {
		t.Fatal("empty table")
	}
	for _, row := range table.Rows {
		ranges := map[backoff.Jitter][2]float64{
			backoff.JitterUnspecified:  row.Full,
			backoff.JitterFull:         row.Full,
			backoff.JitterNone:         {row.None, row.None},
			backoff.JitterEqual:        row.Equal,
			backoff.JitterProportional: row.Proportional,
		}
		for jitter, want := range ranges {
			t.Run(fmt.Sprintf("base %v cap %v n %d jitter %d", row.Base, row.Cap, row.N, jitter), func(t *testing.T) {
				c := backoff.Config{
					Base: millis(row.Base), Multiplier: row.Multiplier, Cap: millis(row.Cap),
					Jitter: jitter, JitterRatio: 0.2,
				}
				low, middle, high := c.Wait(row.N, false, 0), c.Wait(row.N, false, 0.5), c.Wait(row.N, false, lastRnd)
				near(t, "least", low, millis(want[0]))
				near(t, "mean", middle, millis((want[0]+want[1])/2))
				near(t, "most", high, millis(want[1]))
			})
		}
	}
	for _, sum := range table.Sums {
		c := backoff.Config{Base: millis(sum.Base), Multiplier: 2, Cap: millis(sum.Cap), Jitter: backoff.JitterNone}
		var total time.Duration
		for n := 1; n < sum.Attempts; n++ {
			total += c.Wait(n, false, 0)
		}
		if total != millis(sum.None) {
			t.Errorf("%d attempts wait %v in all, want %v", sum.Attempts, total, millis(sum.None))
		}
	}
}

// near allows the two nanoseconds that halving and rounding down may cost.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if diff := got - want; diff < -2 || diff > 2 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestThrottleBaseReplacesBase(t *testing.T) {
	c := backoff.Config{
		Base: 50 * time.Millisecond, Multiplier: 2, Cap: 3 * time.Second, Jitter: backoff.JitterNone,
		ThrottleBase: time.Second,
	}
	for n, want := range []time.Duration{1: time.Second, 2: 2 * time.Second, 3: 3 * time.Second, 4: 3 * time.Second} {
		if n == 0 {
			continue
		}
		if got := c.Wait(n, true, 0); got != want {
			t.Errorf("wait %d after 429: %v, want %v", n, got, want)
		}
	}
	if got := c.Wait(1, false, 0); got != 50*time.Millisecond {
		t.Errorf("without 429: %v", got)
	}
	c.ThrottleBase = 0
	if got := c.Wait(1, true, 0); got != 50*time.Millisecond {
		t.Errorf("throttle base 0 must leave the base: %v", got)
	}
}

func TestWaitSurvivesNonsense(t *testing.T) {
	rows := []struct {
		name string
		c    backoff.Config
		n    int
		want time.Duration
	}{
		{"n of 0 is the first", backoff.Config{Base: 1, Multiplier: 2, Cap: 10}, 0, 1},
		{"negative n is the first", backoff.Config{Base: 1, Multiplier: 2, Cap: 10}, math.MinInt, 1},
		{"no base", backoff.Config{Multiplier: 2, Cap: 10}, math.MaxInt, 0},
		{"no cap", backoff.Config{Base: 1, Multiplier: 2}, 3, 0},
		{"cap below base", backoff.Config{Base: 10, Multiplier: 2, Cap: 5}, 1, 5},
		{"multiplier below 1", backoff.Config{Base: 4, Multiplier: 0.5, Cap: 10}, 3, 4},
		{"multiplier is no number", backoff.Config{Base: 4, Multiplier: math.NaN(), Cap: 10}, 3, 4},
		{"multiplier is infinite", backoff.Config{Base: 4, Multiplier: math.Inf(1), Cap: 10}, 2, 10},
		{"greatest of all", backoff.Config{Base: math.MaxInt64, Multiplier: 2, Cap: math.MaxInt64}, math.MaxInt, math.MaxInt64},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			row.c.Jitter = backoff.JitterNone
			if got := row.c.Wait(row.n, false, 0.5); got != row.want {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
}

// TestNoCeilingOverflows holds the ceiling to exact arithmetic.
func TestNoCeilingOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		multiplier := rapid.SampledFrom([]float64{1, 1.5, 2, 3, 10}).Draw(t, "multiplier")
		c := backoff.Config{
			Base:       time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "base")),
			Multiplier: multiplier,
			Cap:        time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "cap")),
			Jitter:     backoff.JitterNone,
		}
		n := rapid.IntRange(1, 300).Draw(t, "n")

		exact := new(big.Float).SetPrec(2000).SetInt64(int64(c.Base))
		for range n - 1 {
			exact.Mul(exact, big.NewFloat(multiplier))
		}
		want := c.Cap
		if exact.Cmp(new(big.Float).SetInt64(int64(c.Cap))) < 0 {
			v, _ := exact.Int64()
			want = time.Duration(v)
		}
		got := c.Wait(n, false, 0)
		// A float64 holds 53 bits: up to 2^-52 of the value, and a nanosecond, may be lost.
		if slack := float64(want)/(1<<51) + 1; math.Abs(float64(got)-float64(want)) > slack || got < 0 || got > c.Cap {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestJitterStaysInItsRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := backoff.Config{
			Base:        time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "base")),
			Multiplier:  rapid.Float64Range(1, 100).Draw(t, "multiplier"),
			Cap:         time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "cap")),
			JitterRatio: rapid.Float64Range(0, 2).Draw(t, "ratio"),
		}
		n := rapid.IntRange(1, math.MaxInt).Draw(t, "n")
		rnd := rapid.Float64Range(0, lastRnd).Draw(t, "rnd")

		wait := func(j backoff.Jitter) time.Duration {
			c.Jitter = j
			return c.Wait(n, false, rnd)
		}
		ceiling := wait(backoff.JitterNone)
		if got := wait(backoff.JitterFull); got < 0 || got > ceiling {
			t.Fatalf("full: %d not within 0 and %d", got, ceiling)
		}
		if got := wait(backoff.JitterEqual); got < ceiling/2 || got > ceiling {
			t.Fatalf("equal: %d not within half and all of %d", got, ceiling)
		}
		got := float64(wait(backoff.JitterProportional))
		most := min(float64(ceiling)*(1+c.JitterRatio), math.MaxInt64)
		if least := max(float64(ceiling)*(1-c.JitterRatio), 0); got < least-1 || got > most {
			t.Fatalf("proportional: %v not within %v and %v", got, least, most)
		}
	})
}

func TestAnUnrulyRandomStaysInRange(t *testing.T) {
	c := backoff.Config{Base: 8, Multiplier: 2, Cap: 8}
	for rnd, want := range map[float64]time.Duration{-1: 0, 1: 8, 5: 8, math.Inf(1): 8} {
		if got := c.Wait(1, false, rnd); got != want {
			t.Errorf("rnd %v: %v, want %v", rnd, got, want)
		}
	}
	if got := c.Wait(1, false, math.NaN()); got != 0 {
		t.Errorf("rnd NaN: %v", got)
	}
}

func TestSpreadNeverComesEarly(t *testing.T) {
	rows := []struct {
		name   string
		d      time.Duration
		jitter backoff.Jitter
		rnd    float64
		want   time.Duration
	}{
		{"least", 8 * time.Second, backoff.JitterFull, 0, 8 * time.Second},
		{"half", 8 * time.Second, backoff.JitterFull, 0.5, 9 * time.Second},
		{"nearly a quarter", 8 * time.Second, backoff.JitterEqual, lastRnd, 10*time.Second - 1},
		{"proportional spreads as well", 8 * time.Second, backoff.JitterProportional, 0.5, 9 * time.Second},
		{"none adds nothing", 8 * time.Second, backoff.JitterNone, 0.5, 8 * time.Second},
		{"nothing of nothing", 0, backoff.JitterFull, 0.5, 0},
		{"saturates", math.MaxInt64 - 1, backoff.JitterFull, 0.5, math.MaxInt64},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if got := backoff.Spread(row.d, row.jitter, row.rnd); got != row.want {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		rnd := rapid.Float64Range(0, lastRnd).Draw(t, "rnd")
		if got := backoff.Spread(d, backoff.JitterFull, rnd); got < d || float64(got) > float64(d)*1.25 {
			t.Fatalf("%d became %d", d, got)
		}
	})
}

func BenchmarkWait(b *testing.B) {
	c := backoff.Config{Base: 50 * time.Millisecond, Multiplier: 2, Cap: 2 * time.Second}
	b.ReportAllocs()
	for b.Loop() {
		c.Wait(4, false, 0.5)
	}
}
