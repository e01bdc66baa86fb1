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
	grant  *grant // of an extra attempt that was sent
}

// grant is what the oracle knew when an extra attempt was granted.
type grant struct {
	token     budget.Token
	caller    string
	number    int
	allowance float64 // of all
	share     float64 // of the caller; no limit where nobody contended
}

// history is the naive form of a window.
type history struct {
	firsts, sent, seen []event
	outstanding        []*grant
	grants             int
}

// taken is how many extra attempts were sent after an instant or are still to be sent, by a caller or by all.
func (h *history) taken(after time.Duration, caller string) float64 {
	n := count(h.sent, after, caller)
	for _, g := range h.outstanding {
		if caller == "" || g.caller == caller {
			n++
		}
	}
	return n
}

// end takes a grant off the list of those to be sent.
func (h *history) end(t *rapid.T) *grant {
	i := rapid.IntRange(0, len(h.outstanding)-1).Draw(t, "which")
	g := h.outstanding[i]
	h.outstanding = slices.Delete(h.outstanding, i, i+1)
	return g
}

// lastGrant is the latest grant among what was sent after an instant, by a caller or by all.
func (h *history) lastGrant(after time.Duration, caller string) *grant {
	var last *grant
	for _, e := range h.sent {
		if e.at > after && (caller == "" || e.caller == caller) && (last == nil || e.grant.number > last.number) {
			last = e.grant
		}
	}
	return last
}

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

// TestWindowNeverPassesItsBound plays any sequence against a list of all events. At each grant what was sent in the period before it,
// what is still to be sent and the grant itself are within the bound of the window that ends then, to the nanosecond; so what is sent
// in any period is within the bound there was at the last grant among it. What is refused would be over the bound of a window one step
// stricter.
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

		var h history
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
		spend := func(g *grant) {
			g.token.Spend(after(now))
			h.sent = append(h.sent, event{at: now, caller: g.caller, grant: g})
			if n, last := count(h.sent, now-period, ""), h.lastGrant(now-period, ""); n > last.allowance+1e-6 {
				t.Fatalf("%v: %v sent in a period, allowed %v at the last grant among them", now, n, last.allowance)
			}
			if n, last := count(h.sent, now-period, g.caller), h.lastGrant(now-period, g.caller); n > last.share+1e-6 {
				t.Fatalf("%v: %v of %s sent in a period, its share was %v at the last grant among them", now, n, g.caller, last.share)
			}
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0, 1:
				now += time.Duration(rapid.Int64Range(0, int64(period/5)).Draw(t, "pass"))
			case 2:
				now += rapid.SampledFrom([]time.Duration{1, step - 1, step, period - 1, period, period + step}).Draw(t, "edge")
			case 3, 4, 5:
				e := event{at: now, caller: caller.Draw(t, "caller")}
				h.firsts, h.seen = append(h.firsts, e), append(h.seen, e)
				b.Deposit(after(now), e.caller)
			case 6:
				if len(h.outstanding) > 0 {
					g := h.end(t)
					g.token.HandBack(after(now))
					g.token.Spend(after(now)) // nothing
				}
			case 7:
				if len(h.outstanding) > 0 {
					spend(h.end(t))
				}
				if n := len(h.sent); n > 0 && rapid.Bool().Draw(t, "again") { // nothing
					g := h.sent[rapid.IntRange(0, n-1).Draw(t, "sent")].grant
					g.token.Spend(after(now))
					g.token.HandBack(after(now))
				}
			case 8:
				s := b.Snapshot(after(now))
				if s.Outstanding != uint64(len(h.outstanding)) {
					t.Fatalf("%v: %d outstanding, want %d", now, s.Outstanding, len(h.outstanding))
				}
				if n := float64(s.Retries); n < h.taken(now-period, "") || n > h.taken(now-period-step, "") {
					t.Fatalf("%v: %v taken, want %v, or a step more: %v", now, n, h.taken(now-period, ""), h.taken(now-period-step, ""))
				}
				if most := max(allowance(now-period)-h.taken(now-period, ""), 0); s.Left > most+1e-6 {
					t.Fatalf("%v: %v left, want at most %v", now, s.Left, most)
				}
			case 9:
				if rapid.Bool().Draw(t, "share changes") {
					part = rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "part")
					b.SetShare(part)
				}
			default:
				e := event{at: now, caller: caller.Draw(t, "caller")}
				h.seen = append(h.seen, e)
				token, err := b.Withdraw(after(now), e.caller)
				contended := h.contended(now-period, e.caller)
				if err == nil {
					h.grants++
					g := &grant{token: token, caller: e.caller, number: h.grants, allowance: allowance(now - period), share: math.Inf(1)}
					if contended {
						g.share = shareOf(g.allowance)
					}
					h.outstanding = append(h.outstanding, g)
					if n := h.taken(now-period, ""); n > g.allowance+1e-6 {
						t.Fatalf("%v: %v retries taken, allowed %v", now, n, g.allowance)
					}
					if n := h.taken(now-period, e.caller); n > g.share+1e-6 {
						t.Fatalf("%v: %v retries of %s taken, its share is %v", now, n, e.caller, g.share)
					}
					if rapid.Bool().Draw(t, "at once") {
						h.outstanding = h.outstanding[:len(h.outstanding)-1]
						spend(g)
					}
					continue
				}
				all := h.taken(now-period-step, "")
				own := h.taken(now-period-step, e.caller)
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

// TestRetryAfterIsKept: when nothing else happens, the time a refusal names is enough, whatever came before, if what is still to be
// sent is sent at that instant or not at all.
func TestRetryAfterIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := budget.New(windowOf(0.3, 2*time.Second, 1, 0.5))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Duration(0)
		var outstanding []budget.Token
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now += time.Duration(rapid.Int64Range(0, int64(300*time.Millisecond)).Draw(t, "pass"))
			if who := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "caller"); rapid.Bool().Draw(t, "first") {
				b.Deposit(after(now), who)
			} else if !rapid.Bool().Draw(t, "waits") {
				granted(b, after(now), who, 3)
			} else if token, err := b.Withdraw(after(now), who); err == nil {
				outstanding = append(outstanding, token)
			}
		}
		_, err = b.Withdraw(after(now), "a")
		if refused, ok := errors.AsType[*budget.RefusedError](err); ok && refused.RetryAfter > 0 {
			for i := range outstanding {
				if rapid.Bool().Draw(t, "is sent") {
					outstanding[i].Spend(after(now))
				} else {
					outstanding[i].HandBack(after(now))
				}
			}
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
			switch rapid.IntRange(0, 4).Draw(t, "what") {
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
			case 3:
				if n := len(taken); n > 0 {
					taken[n-1].Spend(epoch)
					taken[n-1].HandBack(epoch) // nothing
					taken = taken[:n-1]
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
