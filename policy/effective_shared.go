package policy

import (
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
)

// StatusProbe is how the upstream is asked whether an operation was applied (semantics.md §3). Off unless a policy has it.
type StatusProbe struct {
	Enabled bool
	// URLTemplate is an absolute URL on the same origin or a path, with {operation_id} and {body:/json/pointer}; "" by default.
	URLTemplate string
	// AppliedStatuses, NotAppliedStatuses and InProgressStatuses decide by the probe's status; empty by default.
	AppliedStatuses, NotAppliedStatuses, InProgressStatuses StatusSet
	// JSONPointer picks the value of the answer that must be in the list of the same name too; "": the status alone decides.
	JSONPointer string
	// AppliedValues and NotAppliedValues are those lists; empty by default.
	AppliedValues, NotAppliedValues []string
	// Authoritative: a "not applied" counts. Default false.
	Authoritative bool
	// Settle must have passed since the last byte was sent before "not applied" counts; no default, 0: it never counts.
	Settle time.Duration
}

// Budget bounds what all callers of an origin together may spend on retries and hedges (semantics.md §5).
type Budget struct {
	// Window or TokenBucket is the rule, exactly one of them not nil; the default is the window.
	Window      *BudgetWindow
	TokenBucket *TokenBucket
	// CallerMaxShare is the part of the allowance one caller may take while others contend, 0 to 1; default 0.5, 0: none.
	CallerMaxShare float64
}

// The settings of what callers share are those of the packages that keep it: one meaning, said there.
type (
	// BudgetWindow has the defaults ratio 0.2, period 10s, min_per_second 1.
	BudgetWindow = budget.Window
	// TokenBucket has the defaults max_tokens 10, token_ratio 0.1, rule TokenRuleHalf.
	TokenBucket = budget.TokenBucket
	// TokenRule says when tokens are taken.
	TokenRule = budget.Rule
	// Breaker says when an origin is not tried (semantics.md §6).
	Breaker = breaker.Config
	// Concurrency bounds the attempts in flight to an origin (semantics.md §7); the defaults are 512, 128 and 100ms.
	Concurrency = bulkhead.Config
)

// The rules of a bucket.
const (
	TokenRuleHalf     = budget.RuleHalf
	TokenRulePerRetry = budget.RulePerRetry
)

// Hedge starts a second attempt beside a slow first one (semantics.md §8). Off unless a policy has it.
type Hedge struct {
	Enabled bool
	// Delay before a hedge when Percentile is 0.
	Delay time.Duration
	// Percentile of the origin's own latency that is waited for, 0 to 100; default 95, 0: Delay counts.
	Percentile float64
	// MaxHedges of one call; default 1, 0 switches hedging off.
	MaxHedges uint32
	// MaxExtra hedges as a share of the origin's first attempts; default 0.05, 0: none but the one always allowed.
	MaxExtra float64
	// Methods that may be hedged beside keyed operations; default GET HEAD OPTIONS.
	Methods []string
}

// Deferred says how a deferred call goes on (semantics.md §11).
type Deferred struct {
	// AtLeastOnce: a submitter may ask for it; default true.
	AtLeastOnce bool
	// MaxAttempts of one deferred call; default 15, never 0.
	MaxAttempts uint32
	// MaxAge ends it; default 24h.
	MaxAge time.Duration
	// Backoff between its attempts; default 5s ×3, cap 1h, full jitter.
	Backoff backoff.Config
	// CompletedRetention and CancelledRetention are how long such records are kept; default 24h, 0: not at all.
	CompletedRetention, CancelledRetention time.Duration
}

// HandOver says which ends of a call may become a deferred one when its caller allows deferral; default neither.
type HandOver struct {
	OnDeadline, OnBreakerOpen bool
}
