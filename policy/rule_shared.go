package policy

import "time"

// StatusProbeRule is the sparse form of [StatusProbe].
type StatusProbeRule struct {
	URLTemplate        *string        `leaf:"url_template"`
	AppliedStatuses    []uint32       `leaf:"applied_statuses"`
	NotAppliedStatuses []uint32       `leaf:"not_applied_statuses"`
	InProgressStatuses []uint32       `leaf:"in_progress_statuses"`
	JSONPointer        *string        `leaf:"json_pointer"`
	AppliedValues      []string       `leaf:"applied_values"`
	NotAppliedValues   []string       `leaf:"not_applied_values"`
	Authoritative      *bool          `leaf:"authoritative"`
	Settle             *time.Duration `leaf:"settle"`
	Enabled            *bool          `leaf:"enabled"`
}

// BudgetRule is the sparse form of [Budget].
type BudgetRule struct {
	Limit          *BudgetLimitRule `leaf:"window|token_bucket"`
	CallerMaxShare *float64         `leaf:"caller_max_share"`
}

// BudgetLimitRule is a oneof: the first member that is not nil counts. What a member leaves out has the table's default, not
// a less specific policy's value, for a oneof is one leaf.
type BudgetLimitRule struct {
	Window      *BudgetWindowRule `leaf:"window"`
	TokenBucket *TokenBucketRule  `leaf:"token_bucket"`
}

// BudgetWindowRule is the sparse form of [BudgetWindow].
type BudgetWindowRule struct {
	Ratio        *float64       `leaf:"ratio"`
	Period       *time.Duration `leaf:"period"`
	MinPerSecond *float64       `leaf:"min_per_second"`
}

// TokenBucketRule is the sparse form of [TokenBucket].
type TokenBucketRule struct {
	MaxTokens  *float64   `leaf:"max_tokens"`
	TokenRatio *float64   `leaf:"token_ratio"`
	Rule       *TokenRule `leaf:"rule"`
}

// BreakerRule is the sparse form of [Breaker].
type BreakerRule struct {
	ConsecutiveFailures *uint32        `leaf:"consecutive_failures"`
	FailureRate         *float64       `leaf:"failure_rate"`
	MinRequests         *uint32        `leaf:"min_requests"`
	Window              *time.Duration `leaf:"window"`
	OpenBase            *time.Duration `leaf:"open_base"`
	OpenCap             *time.Duration `leaf:"open_cap"`
	OpenJitter          *float64       `leaf:"open_jitter"`
	CloseAfter          *uint32        `leaf:"close_after"`
	SlowCallThreshold   *time.Duration `leaf:"slow_call_threshold"`
	SlowCallRate        *float64       `leaf:"slow_call_rate"`
	MinDistinctCallers  *uint32        `leaf:"min_distinct_callers"`
	Ramp                *time.Duration `leaf:"ramp"`
	TimeoutFloor        *time.Duration `leaf:"timeout_floor"`
}

// ConcurrencyRule is the sparse form of [Concurrency].
type ConcurrencyRule struct {
	MaxInFlight *uint32        `leaf:"max_in_flight"`
	MaxPending  *uint32        `leaf:"max_pending"`
	PendingWait *time.Duration `leaf:"pending_wait"`
}

// HedgeRule is the sparse form of [Hedge].
type HedgeRule struct {
	Trigger   *HedgeTriggerRule `leaf:"delay|percentile"`
	MaxHedges *uint32           `leaf:"max_hedges"`
	MaxExtra  *float64          `leaf:"max_extra"`
	Methods   []string          `leaf:"methods"`
	Enabled   *bool             `leaf:"enabled"`
}

// HedgeTriggerRule is a oneof: the first member that is not nil counts.
type HedgeTriggerRule struct {
	Delay      *time.Duration `leaf:"delay"`
	Percentile *float64       `leaf:"percentile"`
}

// DeferredRule is the sparse form of [Deferred].
type DeferredRule struct {
	AtLeastOnce        *bool          `leaf:"at_least_once"`
	MaxAttempts        *uint32        `leaf:"max_attempts"`
	MaxAge             *time.Duration `leaf:"max_age"`
	Backoff            BackoffRule    `leaf:"backoff"`
	CompletedRetention *time.Duration `leaf:"completed_retention"`
	CancelledRetention *time.Duration `leaf:"cancelled_retention"`
}

// HandOverRule is the sparse form of [HandOver].
type HandOverRule struct {
	OnDeadline    *bool `leaf:"on_deadline"`
	OnBreakerOpen *bool `leaf:"on_breaker_open"`
}
