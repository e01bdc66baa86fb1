package policy

import (
	"crypto/tls"
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
)

// Effective holds the flat values chosen for a call. It is shared between calls and never changes; every field has a value.
type Effective struct {
	// Policy is the first matching policy and its revision, for example "policies/payments@7".
	Policy string
	// Generation counts the tables of this process; connections made under one are not used under another.
	Generation uint64
	// Sources tells, for every leaf by its path ("retry.max_attempts"), the policy that set it.
	Sources map[string]Source

	Deadline    Deadline
	Attempt     AttemptLimits
	Retry       Retry
	Idempotency Idempotency
	StatusProbe StatusProbe
	Budget      Budget
	Breaker     Breaker
	Concurrency Concurrency
	Hedge       Hedge
	Body        Body
	Response    Response
	Deferred    Deferred
	Redirects   Redirects
	Egress      Egress
	Credentials []Credential
	HandOver    HandOver
	Headers     Headers

	// Secrets are what Credentials refer to; nil when the table has none.
	Secrets Secrets

	merged *Settings  // what the blocks above were made of, for Leaves
	table  *Table     // where it comes from
	shared madeShared // for Shared
}

// PathScoped is [Table.PathScoped] of the table that these values come from.
func (e *Effective) PathScoped(host string) bool { return e.table != nil && e.table.PathScoped(host) }

// Source is the policy and revision that set a leaf.
type Source struct {
	Policy   string
	Revision uint64
}

// Deadline bounds the whole call.
type Deadline struct {
	// DefaultTimeout is the time of a call whose caller sent none.
	DefaultTimeout time.Duration
	// MaxTimeout caps every call.
	MaxTimeout time.Duration
	// CallerMargin is kept free at the end; nil: 5 % of the time allowed, at least 10ms, at most 250ms.
	CallerMargin *time.Duration
	// MinAttemptTime: a retry that would have less is not started.
	MinAttemptTime time.Duration
	// Header names the request field that tells the remaining milliseconds; "" sends none.
	Header string
	// MaxStreamDuration caps a stream.
	MaxStreamDuration time.Duration
}

// AttemptLimits bound one attempt. The sub-limits can only shorten Timeout; 0 leaves one out.
type AttemptLimits struct {
	Protocols       []Protocol
	MaxIdleUnsafe   time.Duration
	Timeout         time.Duration
	ConnectTimeout  time.Duration
	DNSTimeout      time.Duration
	HeaderTimeout   time.Duration
	IdleBodyTimeout time.Duration
	// WidenLast: the last permitted attempt gets all that remains.
	WidenLast bool
}

// Protocol is a version of HTTP; its numbers are the wire's.
type Protocol int32

// The protocols, in the order of the wire.
const (
	ProtocolUnspecified Protocol = iota
	ProtocolHTTP11
	ProtocolHTTP2
)

// Retry says what is repeated.
type Retry struct {
	MaxAttempts         uint32
	Statuses            StatusSet
	RejectionStatuses   StatusSet
	IdempotentMethods   []string
	TrustCallers        bool
	RetryAfterMax       time.Duration
	Hold                bool
	HoldMax             time.Duration
	VerdictHeader       VerdictHeader
	SuccessAfterUnknown StatusSet
	TrustGoaway         bool
	Backoff             backoff.Config
}

// VerdictHeader lets an upstream say whether its answer is worth repeating.
type VerdictHeader struct {
	Enabled                 bool
	Name                    string
	RetryValues, StopValues []string
}

// Idempotency is the upstream's contract for keyed operations.
type Idempotency struct {
	Enabled            bool
	Header             string
	Methods            []string
	KeyTTL             time.Duration
	InProgressStatuses StatusSet
	MismatchStatuses   StatusSet
}

// Body bounds bodies, in bytes.
type Body struct {
	MaxRequestBytes, ReplayBytes, MaxResponseBytes uint64
}

// Response says how answers are read.
type Response struct {
	SuccessStatuses StatusSet
	// DefinitiveStatuses tell the effect of an unsafe operation.
	DefinitiveStatuses StatusSet
	MaxHeaderBytes     uint64
}

// Redirects says how many hops are followed; 0: a 3xx is the answer.
type Redirects struct {
	MaxHops uint32
}

// Egress says where a call may go and how TLS is spoken there.
type Egress struct {
	// Rules decide by scheme, port and address.
	Rules guard.Rules
	// TLS is the client's part of a handshake but for the name; never changed, cloned per connection.
	TLS *tls.Config
	// ServerName overrides the URL's host in SNI and certificate check; "" keeps it.
	ServerName string
	// ClientCertificate is a reference into the secrets, and TLS shows what it leads to; "" for none.
	ClientCertificate string
	// ID is the same for equal settings of this block and differs for different ones: connections are shared within it only.
	ID string
	// Proxy is what calls go through; nil for none.
	Proxy *Proxy
}

// Credential is added by the broker to every attempt whose host matches; the value is Prefix and the secret.
type Credential struct {
	// Header is the field's name, Prefix what stands before the secret, Secret the name of its file.
	Header string `leaf:"header"`
	Prefix string `leaf:"prefix"`
	Secret string `leaf:"secret"`
	// Hosts are patterns as in [Match], lower case; [CoversHost] reads them.
	Hosts []string `leaf:"hosts"`
}

// Headers are the policy's own fields.
type Headers struct {
	// Set wins over the caller's fields of the same names.
	Set []call.Header
	// Remove drops the caller's fields; lower case.
	Remove []string
}
