package policy

import (
	"time"

	"github.com/sallyport/sallyport/backoff"
)

// DefaultName is the policy of a call that nothing else covers. It is built in with revision 0; a policy of that name replaces
// it and inherits from it.
const DefaultName = "policies/default"

// defaultBudgetPeriod is the budget window's when a policy names a window without one.
const defaultBudgetPeriod = 10 * time.Second

// Builtin gives the built-in policies/default, revision 0, to look at.
func Builtin() Rule { return *builtin() }

// builtin is the table of the contract. A leaf that is absent here has no default: its zero value in [Effective] says unset.
func builtin() *Rule {
	get := []string{"GET", "HEAD", "OPTIONS"}
	return &Rule{Name: DefaultName, Description: "built in", Settings: Settings{
		Deadline: DeadlineRule{
			DefaultTimeout:    new(15 * time.Second),
			MaxTimeout:        new(time.Minute),
			MinAttemptTime:    new(50 * time.Millisecond),
			Header:            new(""),
			MaxStreamDuration: new(time.Hour),
		},
		Attempt: AttemptRule{
			Protocols:      []Protocol{ProtocolHTTP11},
			MaxIdleUnsafe:  new(2 * time.Second),
			Timeout:        new(10 * time.Second),
			ConnectTimeout: new(3 * time.Second),
			DNSTimeout:     new(2 * time.Second),
			WidenLast:      new(false),
		},
		Retry: RetryRule{
			MaxAttempts:       new(uint32(3)),
			Statuses:          []uint32{408, 425, 429, 500, 502, 503, 504},
			IdempotentMethods: []string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"},
			TrustCallers:      new(false),
			RetryAfterMax:     new(10 * time.Second),
			Hold:              new(true),
			HoldMax:           new(time.Minute),
			VerdictHeader:     VerdictHeaderRule{Enabled: new(false)},
			TrustGoaway:       new(false),
			Backoff:           builtinBackoff(50*time.Millisecond, 2, 2*time.Second, time.Second),
		},
		Idempotency: IdempotencyRule{
			Header:             new("Idempotency-Key"),
			Methods:            []string{"POST", "PATCH"},
			KeyTTL:             new(24 * time.Hour),
			InProgressStatuses: []uint32{409},
			MismatchStatuses:   []uint32{422},
			Enabled:            new(false),
		},
		StatusProbe: StatusProbeRule{Authoritative: new(false), Enabled: new(false)},
		Budget: BudgetRule{
			Limit: &BudgetLimitRule{Window: &BudgetWindowRule{
				Ratio: new(0.2), Period: new(defaultBudgetPeriod), MinPerSecond: new(1.0),
			}},
			CallerMaxShare: new(0.5),
		},
		Breaker: BreakerRule{
			ConsecutiveFailures: new(uint32(5)),
			FailureRate:         new(0.5),
			MinRequests:         new(uint32(20)),
			Window:              new(10 * time.Second),
			OpenBase:            new(time.Second),
			OpenCap:             new(time.Minute),
			OpenJitter:          new(0.5),
			CloseAfter:          new(uint32(1)),
			SlowCallRate:        new(0.8),
			MinDistinctCallers:  new(uint32(2)),
			Ramp:                new(time.Duration(0)),
			TimeoutFloor:        new(time.Second),
		},
		Concurrency: ConcurrencyRule{
			MaxInFlight: new(uint32(512)), MaxPending: new(uint32(128)), PendingWait: new(100 * time.Millisecond),
		},
		Hedge: HedgeRule{
			Trigger:   &HedgeTriggerRule{Percentile: new(95.0)},
			MaxHedges: new(uint32(1)),
			MaxExtra:  new(0.05),
			Methods:   get,
			Enabled:   new(false),
		},
		Body: BodyRule{
			MaxRequestBytes: new(uint64(3 << 20)), ReplayBytes: new(uint64(1 << 20)), MaxResponseBytes: new(uint64(3 << 20)),
		},
		Response: ResponseRule{
			SuccessStatuses:    statusRange(nil, 200, 399),
			DefinitiveStatuses: definitive(),
			MaxHeaderBytes:     new(uint64(64 << 10)),
		},
		Deferred: DeferredRule{
			AtLeastOnce: new(true),
			MaxAttempts: new(uint32(15)),
			MaxAge:      new(24 * time.Hour),
			// After a 429 the wait must not be shorter than after any other failure, hence 5s and not 1s.
			Backoff:            builtinBackoff(5*time.Second, 3, time.Hour, 5*time.Second),
			CompletedRetention: new(24 * time.Hour),
			CancelledRetention: new(24 * time.Hour),
		},
		Redirects: RedirectsRule{MaxHops: new(uint32(0))},
		Egress: EgressRule{
			Ports:     []uint32{80, 443},
			AnyPort:   new(false),
			AllowHTTP: new(true),
			TLS: TLSRule{
				MinVersion: new(TLSVersion12), CAPEM: new(""), ClientCertificate: new(""), ServerName: new(""),
			},
			Proxy: new(""),
		},
		HandOver: HandOverRule{OnDeadline: new(false), OnBreakerOpen: new(false)},
	}}
}

func builtinBackoff(base time.Duration, multiplier float64, limit, throttle time.Duration) BackoffRule {
	return BackoffRule{
		Base:         new(base),
		Multiplier:   new(multiplier),
		Cap:          new(limit),
		Jitter:       new(backoff.JitterFull),
		JitterRatio:  new(0.2),
		ThrottleBase: new(throttle),
	}
}

// definitive lists the statuses that tell the effect of an unsafe operation: a gateway's 500, 502, 503 or 504 says nothing of
// what happened behind it, and 408, 425 and 429 ask for a repeat.
func definitive() []uint32 {
	s := statusRange(nil, 200, 407)
	s = statusRange(s, 409, 424)
	s = statusRange(s, 426, 428)
	s = statusRange(s, 430, 499)
	return append(s, 501, 505)
}

func statusRange(s []uint32, first, last uint32) []uint32 {
	for code := first; code <= last; code++ {
		s = append(s, code)
	}
	return s
}
