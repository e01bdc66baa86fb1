package budget

import (
	"fmt"
	"math"
	"time"
)

// Rule says when tokens are taken from a bucket; its numbers are the wire's.
type Rule int32

// The rules, in the order of the wire.
const (
	// RuleUnspecified is RuleHalf.
	RuleUnspecified Rule = iota
	// RuleHalf is gRPC A6: each retryable failure takes one token, extra attempts are allowed while more than half are left.
	RuleHalf
	// RulePerRetry takes a whole token for each extra attempt and refuses below one.
	RulePerRetry
)

// Config is one budget. Every number is taken as it stands: the defaults are those of the policy.
type Config struct {
	// Name is how refusals call the budget, so that nobody takes them for the upstream's.
	Name string
	// Window or TokenBucket is the kind, exactly one of them not nil.
	Window      *Window
	TokenBucket *TokenBucket
	// CallerMaxShare is the part of a window's allowance that one caller may take while others contend, 0 to 1; 0: none at all,
	// 1: all of it, and no caller is told from another.
	// A token bucket has no allowance to share and takes no notice.
	CallerMaxShare float64
}

// Window allows extra attempts as a share of the first attempts of the last Period.
type Window struct {
	// Ratio of extra to first attempts, 0 or more; 0: only MinPerSecond counts.
	Ratio float64
	// Period is the length of the window, above 0 and at most [MaxPeriod] (see steps for its resolution).
	Period time.Duration
	// MinPerSecond, times Period, are allowed however few the first attempts; 0: only Ratio counts.
	MinPerSecond float64
}

// TokenBucket allows extra attempts while tokens are left. Tokens are kept in thousandths, cut off below (gRPC A6).
type TokenBucket struct {
	// MaxTokens is what it starts with and never exceeds, from [LeastMaxTokens] to [MostMaxTokens].
	MaxTokens float64
	// TokenRatio is what a success adds, above 0; less than a thousandth counts as one, or the bucket would never fill again.
	TokenRatio float64
	// Rule says what takes tokens; unspecified is RuleHalf.
	Rule Rule
}

// What a bucket may hold at most: from the least that is counted, to a thousand times what gRPC allows, far from any overflow.
const (
	LeastMaxTokens = 0.001
	MostMaxTokens  = 1e6
)

func (c *Config) check() error {
	switch {
	case (c.Window == nil) == (c.TokenBucket == nil):
		return fmt.Errorf("budget %q: give a window or a token bucket, and one of them only", c.Name)
	case !within(c.CallerMaxShare, 0, 1):
		return fmt.Errorf("budget %q: caller_max_share %v is not in 0 to 1", c.Name, c.CallerMaxShare)
	case c.Window != nil:
		return c.Window.check(c.Name)
	default:
		return c.TokenBucket.check(c.Name)
	}
}

func (w *Window) check(name string) error {
	switch {
	case !within(w.Ratio, 0, math.MaxFloat64):
		return fmt.Errorf("budget %q: window.ratio %v is not 0 or more", name, w.Ratio)
	case w.Period <= 0 || w.Period > MaxPeriod:
		return fmt.Errorf("budget %q: window.period %v is not above 0 and at most %v", name, w.Period, MaxPeriod)
	case !within(w.MinPerSecond, 0, math.MaxFloat64):
		return fmt.Errorf("budget %q: window.min_per_second %v is not 0 or more", name, w.MinPerSecond)
	}
	return nil
}

func (t *TokenBucket) check(name string) error {
	switch {
	case !within(t.MaxTokens, LeastMaxTokens, MostMaxTokens):
		return fmt.Errorf("budget %q: token_bucket.max_tokens %v is not in %v to %v", name, t.MaxTokens, LeastMaxTokens, float64(MostMaxTokens))
	case !(t.TokenRatio > 0) || math.IsInf(t.TokenRatio, 0):
		return fmt.Errorf("budget %q: token_bucket.token_ratio %v is not above 0", name, t.TokenRatio)
	case t.Rule < RuleUnspecified || t.Rule > RulePerRetry:
		return fmt.Errorf("budget %q: token_bucket.rule %d is none of the rules", name, t.Rule)
	}
	return nil
}

// within is false for what is no number.
func within(x, low, high float64) bool { return x >= low && x <= high }
