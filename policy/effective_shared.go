package policy

import (
	"time"

	"github.com/sallyport/sallyport/backoff"
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

// BudgetWindow allows retries as a share of the first attempts of a sliding window.
type BudgetWindow struct {
	// Ratio of retries to first attempts; default 0.2, 0: only MinPerSecond counts.
	Ratio float64
	// Period of the window; default 10s, never 0.
	Period time.Duration
	// MinPerSecond are retries allowed however few the first attempts; default 1, 0: only Ratio counts.
	MinPerSecond float64
}

// TokenBucket allows retries while tokens are left (gRPC A6).
type TokenBucket struct {
	// MaxTokens it starts with and never exceeds; default 10, never 0.
	MaxTokens float64
	// TokenRatio is what a success adds; default 0.1, above 0.
	TokenRatio float64
	// Rule says what a failure costs; default TokenRuleHalf.
	Rule TokenRule
}

// TokenRule says when tokens are taken; its numbers are the wire's.
type TokenRule int32

// The rules, in the order of the wire.
const (
	TokenRuleUnspecified TokenRule = iota
	// TokenRuleHalf is gRPC A6: each retryable failure takes one, retries are allowed above half.
	TokenRuleHalf
	// TokenRulePerRetry takes a whole token for each retry.
	TokenRulePerRetry
)

// Breaker says when an origin is not tried (semantics.md §6).
type Breaker struct {
	// ConsecutiveFailures open it; default 5, 0 switches the rule off.
	ConsecutiveFailures uint32
	// FailureRate of at least MinRequests attempts in Window opens it; defaults 0.5, 20, 10s; none of them may be 0.
	FailureRate float64
	MinRequests uint32
	Window      time.Duration
	// OpenBase is the first cool-down, doubling to OpenCap; defaults 1s and 60s.
	OpenBase, OpenCap time.Duration
	// OpenJitter lengthens a cool-down by up to this part; default 0.5, 0: none.
	OpenJitter float64
	// CloseAfter successful probes close it; default 1, never 0.
	CloseAfter uint32
	// SlowCallThreshold makes a longer attempt a slow one; 0 (default) switches the rule off.
	SlowCallThreshold time.Duration
	// SlowCallRate of slow attempts opens it; default 0.8.
	SlowCallRate float64
	// MinDistinctCallers must have seen failures, or all when fewer were active; default 2, 0 and 1: any one.
	MinDistinctCallers uint32
	// Ramp is the time in which admissions rise to all after closing; 0 (default) switches it off.
	Ramp time.Duration
	// TimeoutFloor: a time-out of an attempt the caller gave less than this may not count; default 1s, 0: none.
	TimeoutFloor time.Duration
}

// Concurrency bounds the attempts in flight to an origin (semantics.md §7).
type Concurrency struct {
	// MaxInFlight attempts run at once; default 512, 0: no limit.
	MaxInFlight uint32
	// MaxPending wait for a slot; default 128, 0: none waits.
	MaxPending uint32
	// PendingWait is the longest such wait; default 100ms, 0: none waits.
	PendingWait time.Duration
}

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
