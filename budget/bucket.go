package budget

import "math"

// bucket holds tokens in thousandths, as gRPC A6 asks: whole numbers add up the same in any order.
type bucket struct {
	max      int64 // of this broker's share
	tokens   int64
	ratio    int64
	full     int64 // max_tokens of the policy
	perRetry bool
	closed   bool // the share is nothing
}

// whole is one token.
const whole = 1000

func newBucket(c *TokenBucket) *bucket {
	full := thousandths(c.MaxTokens)
	return &bucket{
		max: full, tokens: full, full: full,
		ratio:    max(thousandths(min(c.TokenRatio, MostMaxTokens)), 1),
		perRetry: c.Rule == RulePerRetry,
	}
}

func (k *bucket) failed() {
	if !k.perRetry {
		k.tokens = max(k.tokens-whole, 0)
	}
}

func (k *bucket) succeeded() { k.tokens = min(k.tokens+k.ratio, k.max) }

func (k *bucket) withdraw(part float64) *RefusedError {
	if !k.open(part) {
		return &RefusedError{Reason: ReasonSpent}
	}
	if k.perRetry {
		k.tokens -= whole
	}
	return nil
}

// open reports whether an extra attempt may be granted to somebody who may have that part of the bucket. Under A6 the failure has paid already (gRPC A6: "tokens > maxTokens / 2").
func (k *bucket) open(part float64) bool {
	kept := int64(float64(k.max) * (1 - part)) // for the others
	switch {
	case k.closed:
		return false
	case k.perRetry:
		return k.tokens-kept >= whole
	default:
		return 2*k.tokens > k.max+kept
	}
}

func (k *bucket) handBack() {
	if k.perRetry {
		k.tokens = min(k.tokens+whole, k.max)
	}
}

// setShare keeps how full the bucket is: were the tokens kept, a growing share would find the bucket below half and refuse, and
// one that shrinks and grows again would lose them.
func (k *bucket) setShare(f float64) {
	grown := int64(float64(k.full) * f)
	k.closed = grown == 0
	if k.closed || grown == k.max {
		return
	}
	k.tokens = min(int64(float64(k.tokens)*float64(grown)/float64(k.max)), grown)
	k.max = grown
}

// left is how many tokens may still go before the next refusal.
func (k *bucket) left() float64 {
	switch {
	case !k.open(1):
		return 0
	case k.perRetry:
		return float64(k.tokens) / whole
	default:
		return float64(2*k.tokens-k.max) / (2 * whole)
	}
}

// thousandths cuts off what is finer (0.5466 is 546), but for the error a decimal fraction has in binary.
func thousandths(x float64) int64 { return int64(math.Floor(x*whole + 1e-6)) }
