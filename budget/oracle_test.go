package budget_test

import (
	"errors"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/budget"
)

// event is one thing that happened, as the oracle remembers it: all of them, for ever.
type event struct {
	at     time.Duration
	caller string
}

// history is the naive form of a window.
type history struct{ firsts, retries, seen []event }

func count(events []event, after time.Duration, caller string) float64 {
	n := 0
	for _, e := range events {
		if e.at > after && (caller == "" || e.caller == caller) {
			n++
		}
	}
	return float64(n)
}

func (h *history) contended(after time.Duration, caller string) bool {
	return slices.ContainsFunc(h.seen, func(e event) bool { return e.at > after && e.caller != caller })
}

// TestWindowNeverPassesItsBound plays any sequence against a list of all events. What is granted is within the bound of the window
// that ends then, to the nanosecond; what is refused would be over the bound of a window one step stricter.
func TestWindowNeverPassesItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const step = 100 * time.Millisecond
		const period = 20 * step
		ratio := rapid.SampledFrom([]float64{0, 0.1, 0.2, 0.5, 1, 2.5}).Draw(t, "ratio")
		perSecond := rapid.SampledFrom([]float64{0, 0.5, 1, 4}).Draw(t, "per second")
		maxShare := rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "share")
		c := windowOf(ratio, period, perSecond, maxShare)
		b, err := budget.New(c)
		if err != nil {
			t.Fatal(err)
		}
		b.Snapshot(epoch)

		type taken struct {
			token budget.Token
			what  event
		}
		var h history
		var tokens []*taken
		part, now := 1.0, time.Duration(0)
		caller := rapid.SampledFrom([]string{"a", "a", "b", "c"})
		allowance := func(after time.Duration) float64 {
			if part == 0 {
				return 0
			}
			return ratio*count(h.firsts, after, "") + perSecond*period.Seconds()*part
		}
		shareOf := func(allowance float64) float64 {
			if maxShare == 0 {
				return 0
			}
			return max(1, maxShare*allowance)
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1:
				now += time.Duration(rapid.Int64Range(0, int64(period/5)).Draw(t, "pass"))
			case 2:
				now += rapid.SampledFrom([]time.Duration{1, step - 1, step, period - 1, period, period + step}).Draw(t, "edge")
			case 3, 4, 5:
				e := event{now, caller.Draw(t, "caller")}
				h.firsts, h.seen = append(h.firsts, e), append(h.seen, e)
				b.Deposit(after(now), e.caller)
			case 6:
				if len(tokens) > 0 {
					i := rapid.IntRange(0, len(tokens)-1).Draw(t, "which")
					tokens[i].token.HandBack(after(now))
					at := slices.Index(h.retries, tokens[i].what)
					h.retries = slices.Delete(h.retries, at, at+1)
					tokens = slices.Delete(tokens, i, i+1)
				}
			case 7:
				if rapid.Bool().Draw(t, "share changes") {
					part = rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "part")
					b.SetShare(part)
				}
			default:
				e := event{now, caller.Draw(t, "caller")}
				h.seen = append(h.seen, e)
				token, err := b.Withdraw(after(now), e.caller)
				contended := h.contended(now-period, e.caller)
				if err == nil {
					h.retries = append(h.retries, e)
					tokens = append(tokens, &taken{token, e})
					if n, limit := count(h.retries, now-period, ""), allowance(now-period); n > limit+1e-6 {
						t.Fatalf("%v: %v retries in the window, allowed %v", now, n, limit)
					}
					if n, limit := count(h.retries, now-period, e.caller), shareOf(allowance(now-period)); contended && n > limit+1e-6 {
						t.Fatalf("%v: %v retries of %s in the window, its share is %v", now, n, e.caller, limit)
					}
					continue
				}
				all := count(h.retries, now-period-step, "")
				own := count(h.retries, now-period-step, e.caller)
				least := allowance(now - period + step)
				refused, _ := errors.AsType[*budget.RefusedError](err)
				switch refused.Reason {
				case budget.ReasonSpent:
					if all+1 <= least-1e-6 {
						t.Fatalf("%v: refused at %v retries of %v", now, all, least)
					}
				case budget.ReasonCallerShare:
					if !contended || own+1 <= shareOf(least)-1e-6 {
						t.Fatalf("%v: refused %s at %v of its %v, contended %v", now, e.caller, own, shareOf(least), contended)
					}
				}
				if refused.RetryAfter < 0 || refused.RetryAfter > period {
					t.Fatalf("%v: retry after %v", now, refused.RetryAfter)
				}
			}
		}
	})
}

// TestRetryAfterIsKept: when nothing else happens, the time a refusal names is enough, whatever came before.
func TestRetryAfterIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := budget.New(windowOf(0.3, 2*time.Second, 1, 0.5))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now += time.Duration(rapid.Int64Range(0, int64(300*time.Millisecond)).Draw(t, "pass"))
			if who := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "caller"); rapid.Bool().Draw(t, "first") {
				b.Deposit(after(now), who)
			} else {
				granted(b, after(now), who, 3)
			}
		}
		_, err = b.Withdraw(after(now), "a")
		if refused, ok := errors.AsType[*budget.RefusedError](err); ok && refused.RetryAfter > 0 {
			if _, err := b.Withdraw(after(now+refused.RetryAfter), "a"); err != nil {
				t.Fatalf("refused again after %v: %v", refused.RetryAfter, err)
			}
		}
	})
}

// TestBucketFollowsTheOracle plays any sequence against fractions that are exact.
func TestBucketFollowsTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		thousandths := func(n int64) *big.Rat { return big.NewRat(n, 1000) }
		rule := rapid.SampledFrom([]budget.Rule{budget.RuleHalf, budget.RulePerRetry}).Draw(t, "rule")
		most := rapid.Int64Range(1, 20_000).Draw(t, "max")
		gain := rapid.Int64Range(1, 2_000).Draw(t, "ratio")
		b, err := budget.New(bucketOf(float64(most)/1000, float64(gain)/1000, rule))
		if err != nil {
			t.Fatal(err)
		}
		full, ratio, one := thousandths(most), thousandths(gain), big.NewRat(1, 1)
		tokens := new(big.Rat).Set(full)
		add := func(x *big.Rat) {
			if tokens.Add(tokens, x); tokens.Cmp(full) > 0 {
				tokens.Set(full)
			}
		}
		var taken []*budget.Token
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				b.Failed(epoch)
				if rule == budget.RuleHalf {
					if tokens.Sub(tokens, one); tokens.Sign() < 0 {
						tokens.SetInt64(0)
					}
				}
			case 1:
				b.Succeeded(epoch)
				add(ratio)
			case 2:
				want := tokens.Cmp(one) >= 0
				if rule == budget.RuleHalf {
					want = new(big.Rat).Add(tokens, tokens).Cmp(full) > 0
				}
				token, err := b.Withdraw(epoch, "a")
				if (err == nil) != want {
					t.Fatalf("%v of %v: %v", tokens, full, err)
				}
				if err == nil {
					taken = append(taken, &token)
					if rule == budget.RulePerRetry {
						tokens.Sub(tokens, one)
					}
				}
			default:
				if n := len(taken); n > 0 {
					taken[n-1].HandBack(epoch)
					taken = taken[:n-1]
					if rule == budget.RulePerRetry {
						add(one)
					}
				}
			}
			want, _ := tokens.Float64()
			if got := b.Snapshot(epoch).Tokens; math.Abs(got-want) > 1e-9 {
				t.Fatalf("%v tokens, want %v", got, want)
			}
		}
	})
}
