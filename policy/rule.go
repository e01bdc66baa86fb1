package policy

import (
	"fmt"
	"time"

	"github.com/sallyport/sallyport/backoff"
)

// Rule is one policy as it was written. It is sparse: a leaf that is nil or empty is absent and inherits.
type Rule struct {
	// Name is "policies/{id}"; it is unique within a table.
	Name string
	// Revision counts the writes of this name; the built-in policies/default has 0, a policy from a file starts at 1.
	Revision uint64
	// Description is for people.
	Description string
	// Priority decides between policies of equal specificity; the higher wins. Default 0.
	Priority int32
	// Off takes the policy out of matching; it stays in the list.
	Off bool
	// File says that the policy came from the start-up file: only such a one opens loopback (semantics.md §9).
	File bool
	// Match says which calls the policy covers.
	Match Match
	// Settings are what it sets.
	Settings
}

// ID is how replies name the policy: "policies/payments@7".
func (r *Rule) ID() string { return fmt.Sprintf("%s@%d", r.Name, r.Revision) }

// Match says which calls a policy covers. An empty field covers any.
type Match struct {
	// Hosts are names, literal addresses, or names after one leading "*." that stands for one or more labels.
	Hosts []string `leaf:"hosts"`
	// Ports of the target, the scheme's when the URL has none.
	Ports []uint32 `leaf:"ports"`
	// Methods are case-sensitive (RFC 9110 §9.1).
	Methods []string `leaf:"methods"`
	// PathPrefix covers the path itself and what lies below it, by whole segments.
	PathPrefix string `leaf:"path_prefix"`
	// Callers are authenticated identities.
	Callers []string `leaf:"callers"`
}

// Settings are the leaves of a rule, block by block in the order of the contract. The tags are the names of the wire; a tag
// with two names is a oneof, which is one leaf. Meaning, unit and zero of every leaf stand at its counterpart in [Effective].
type Settings struct {
	Deadline    DeadlineRule    `leaf:"deadline"`
	Attempt     AttemptRule     `leaf:"attempt"`
	Retry       RetryRule       `leaf:"retry"`
	Idempotency IdempotencyRule `leaf:"idempotency"`
	StatusProbe StatusProbeRule `leaf:"status_probe"`
	Budget      BudgetRule      `leaf:"budget"`
	Breaker     BreakerRule     `leaf:"breaker"`
	Concurrency ConcurrencyRule `leaf:"concurrency"`
	Hedge       HedgeRule       `leaf:"hedge"`
	Body        BodyRule        `leaf:"body"`
	Response    ResponseRule    `leaf:"response"`
	Deferred    DeferredRule    `leaf:"deferred"`
	Redirects   RedirectsRule   `leaf:"redirects"`
	Egress      EgressRule      `leaf:"egress"`
	Credentials []Credential    `leaf:"credentials"`
	HandOver    HandOverRule    `leaf:"hand_over"`
	Headers     HeadersRule     `leaf:"headers"`
}

// DeadlineRule is the sparse form of [Deadline].
type DeadlineRule struct {
	DefaultTimeout    *time.Duration `leaf:"default_timeout"`
	MaxTimeout        *time.Duration `leaf:"max_timeout"`
	CallerMargin      *time.Duration `leaf:"caller_margin"`
	MinAttemptTime    *time.Duration `leaf:"min_attempt_time"`
	Header            *string        `leaf:"header"`
	MaxStreamDuration *time.Duration `leaf:"max_stream_duration"`
}

// AttemptRule is the sparse form of [AttemptLimits].
type AttemptRule struct {
	Protocols       []Protocol     `leaf:"protocols"`
	MaxIdleUnsafe   *time.Duration `leaf:"max_idle_unsafe"`
	Timeout         *time.Duration `leaf:"timeout"`
	ConnectTimeout  *time.Duration `leaf:"connect_timeout"`
	DNSTimeout      *time.Duration `leaf:"dns_timeout"`
	HeaderTimeout   *time.Duration `leaf:"header_timeout"`
	IdleBodyTimeout *time.Duration `leaf:"idle_body_timeout"`
	WidenLast       *bool          `leaf:"widen_last"`
}

// RetryRule is the sparse form of [Retry].
type RetryRule struct {
	MaxAttempts         *uint32           `leaf:"max_attempts"`
	Statuses            []uint32          `leaf:"statuses"`
	RejectionStatuses   []uint32          `leaf:"rejection_statuses"`
	IdempotentMethods   []string          `leaf:"idempotent_methods"`
	TrustCallers        *bool             `leaf:"trust_callers"`
	RetryAfterMax       *time.Duration    `leaf:"retry_after_max"`
	Hold                *bool             `leaf:"hold"`
	HoldMax             *time.Duration    `leaf:"hold_max"`
	VerdictHeader       VerdictHeaderRule `leaf:"verdict_header"`
	SuccessAfterUnknown []uint32          `leaf:"success_after_unknown"`
	TrustGoaway         *bool             `leaf:"trust_goaway"`
	Backoff             BackoffRule       `leaf:"backoff"`
}

// VerdictHeaderRule is the sparse form of [VerdictHeader].
type VerdictHeaderRule struct {
	Name        *string  `leaf:"name"`
	RetryValues []string `leaf:"retry_values"`
	StopValues  []string `leaf:"stop_values"`
	Enabled     *bool    `leaf:"enabled"`
}

// BackoffRule is the sparse form of [backoff.Config].
type BackoffRule struct {
	Base         *time.Duration  `leaf:"base"`
	Multiplier   *float64        `leaf:"multiplier"`
	Cap          *time.Duration  `leaf:"cap"`
	Jitter       *backoff.Jitter `leaf:"jitter"`
	JitterRatio  *float64        `leaf:"jitter_ratio"`
	ThrottleBase *time.Duration  `leaf:"throttle_base"`
}

// IdempotencyRule is the sparse form of [Idempotency].
type IdempotencyRule struct {
	Header             *string        `leaf:"header"`
	Methods            []string       `leaf:"methods"`
	KeyTTL             *time.Duration `leaf:"key_ttl"`
	InProgressStatuses []uint32       `leaf:"in_progress_statuses"`
	MismatchStatuses   []uint32       `leaf:"mismatch_statuses"`
	Enabled            *bool          `leaf:"enabled"`
}

// BodyRule is the sparse form of [Body].
type BodyRule struct {
	MaxRequestBytes  *uint64 `leaf:"max_request_bytes"`
	ReplayBytes      *uint64 `leaf:"replay_bytes"`
	MaxResponseBytes *uint64 `leaf:"max_response_bytes"`
}

// ResponseRule is the sparse form of [Response].
type ResponseRule struct {
	SuccessStatuses    []uint32 `leaf:"success_statuses"`
	DefinitiveStatuses []uint32 `leaf:"definitive_statuses"`
	MaxHeaderBytes     *uint64  `leaf:"max_header_bytes"`
}

// RedirectsRule is the sparse form of [Redirects].
type RedirectsRule struct {
	MaxHops *uint32 `leaf:"max_hops"`
}

// EgressRule is the sparse form of [Egress].
type EgressRule struct {
	AllowCIDRs []string `leaf:"allow_cidrs"`
	DenyCIDRs  []string `leaf:"deny_cidrs"`
	Ports      []uint32 `leaf:"ports"`
	AnyPort    *bool    `leaf:"any_port"`
	AllowHTTP  *bool    `leaf:"allow_http"`
	TLS        TLSRule  `leaf:"tls"`
	Proxy      *string  `leaf:"proxy"`
}

// TLSRule is how TLS is spoken: MinVersion and CAPEM end in [Egress].TLS. CAPEM replaces the system's roots.
type TLSRule struct {
	MinVersion        *TLSVersion `leaf:"min_version"`
	CAPEM             *string     `leaf:"ca_pem"`
	ClientCertificate *string     `leaf:"client_certificate"`
	ServerName        *string     `leaf:"server_name"`
}

// TLSVersion is a version of TLS; its numbers are the wire's.
type TLSVersion int32

// The versions, in the order of the wire.
const (
	TLSVersionUnspecified TLSVersion = iota
	TLSVersion12
	TLSVersion13
)

// HeadersRule is the sparse form of [Headers].
type HeadersRule struct {
	Set    map[string]string `leaf:"set"`
	Remove []string          `leaf:"remove"`
}
