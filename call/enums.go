package call

// The numbers of every enum here equal those of the wire (proto/sallyport/v1); broker checks that in a test.

// Outcome says why a call ended: exactly one per call.
type Outcome int32

// The outcomes, in the order of the wire.
const (
	OutcomeUnspecified Outcome = iota
	// OutcomeSuccess: the final answer is a success.
	OutcomeSuccess
	// OutcomeHTTPError: a complete answer that is no success and will not be repeated.
	OutcomeHTTPError
	// OutcomeUnknown: an operation that must not be repeated was (perhaps partly) sent and no complete answer came.
	OutcomeUnknown
	// OutcomeDeadlineExceeded: the remaining time cannot hold further useful work.
	OutcomeDeadlineExceeded
	// OutcomeCancelled: the caller went away.
	OutcomeCancelled
	// OutcomeRetriesExhausted: a repeatable failure, and no attempt is left.
	OutcomeRetriesExhausted
	// OutcomeBudgetExhausted: a repeatable failure, and the shared retry budget refused.
	OutcomeBudgetExhausted
	// OutcomeBreakerOpen: the origin's breaker refused the next attempt.
	OutcomeBreakerOpen
	// OutcomeThrottled: the upstream asked for a longer wait than this call can give, or its origin is held.
	OutcomeThrottled
	// OutcomeOverloaded: the origin's concurrency limit and its queue are full, or the wait there ran out.
	OutcomeOverloaded
	// OutcomeDenied: egress rules forbid the destination; nothing was sent there.
	OutcomeDenied
	// OutcomeUnreachable: no connection, for a cause that trying again will not mend.
	OutcomeUnreachable
	// OutcomeResponseRejected: an answer that breaks a limit or the protocol.
	OutcomeResponseRejected
	// OutcomeOperationConflict: the operation id was used before with another payload.
	OutcomeOperationConflict
	// OutcomeDeferred: handed to the durable service under the same operation id.
	OutcomeDeferred
)

// Effect says what is known of what the operation did upstream, whatever the outcome.
type Effect int32

// The effects, in the order of the wire.
const (
	EffectUnspecified Effect = iota
	// EffectNone: every attempt provably did not reach the upstream or was provably not processed.
	EffectNone
	// EffectAnswered: a definitive answer of the upstream tells.
	EffectAnswered
	// EffectUnknown: an attempt may have been applied and nothing definitive says otherwise.
	EffectUnknown
)

// Reason names the rule that stopped a call, or that was applied after an attempt.
type Reason int32

// The reasons, in the order of the wire.
const (
	ReasonUnspecified Reason = iota
	ReasonSuccess
	ReasonStatusNotRetryable
	ReasonStatusRetryable
	ReasonFailureNotRetryable
	ReasonFailureRetryable
	ReasonNotRepeatable
	ReasonBodyNotReplayable
	ReasonAttemptsExhausted
	ReasonBudgetExhausted
	ReasonDeadline
	ReasonRetryAfterTooLong
	ReasonOriginHeld
	ReasonBreakerOpen
	ReasonConcurrencyLimit
	ReasonCancelled
	ReasonEgressDenied
	ReasonResponseTooLarge
	ReasonMalformedResponse
	ReasonOperationConflict
	ReasonKeyExpired
	ReasonRedirectLimit
	ReasonRedirect
	ReasonSuperseded
	ReasonDeferred
)

// NextStep tells the caller what to do.
type NextStep int32

// The next steps, in the order of the wire.
const (
	NextStepUnspecified NextStep = iota
	NextStepDone
	NextStepFixRequest
	NextStepRetry
	NextStepRetrySameID
	NextStepReconcile
	NextStepWait
)

// Kind says why an attempt was made.
type Kind int32

// The kinds, in the order of the wire.
const (
	KindUnspecified Kind = iota
	// KindPrimary is the first attempt.
	KindPrimary
	// KindRetry follows an outcome.
	KindRetry
	// KindHedge runs beside a live attempt.
	KindHedge
	// KindProbe tests a half-open origin.
	KindProbe
	// KindRedirect follows a redirect.
	KindRedirect
)

// Evidence says how far an attempt provably got.
type Evidence int32

// The evidence, in the order of the wire.
const (
	EvidenceUnspecified Evidence = iota
	// EvidenceNotSent: not one request byte left.
	EvidenceNotSent
	// EvidenceRefused: the peer proved that it did not process the request.
	EvidenceRefused
	// EvidenceSentNoResponse: at least one byte may have left, and nothing came back.
	EvidenceSentNoResponse
	// EvidencePartialResponse: something came back, but no complete and acceptable answer.
	EvidencePartialResponse
	// EvidenceAnswered: a complete answer came back.
	EvidenceAnswered
)

// Failure says what went wrong with an attempt that has no acceptable answer.
type Failure int32

// The failures, in the order of the wire.
const (
	FailureNone Failure = iota
	// FailureNameResolution: the name was not resolved (a time-out there included).
	FailureNameResolution
	// FailureConnect: no TCP connection, or none through the proxy (a time-out there included).
	FailureConnect
	// FailureTLS: no TLS session (a time-out there included).
	FailureTLS
	// FailureConnectionLost: the connection ended before the answer was complete.
	FailureConnectionLost
	// FailureAttemptTimeout: the attempt's time was up after the connection was there.
	FailureAttemptTimeout
	// FailureProtocol: the peer's bytes are no HTTP answer.
	FailureProtocol
	// FailureResponseTooLarge: the answer breaks a size limit.
	FailureResponseTooLarge
	// FailureDenied: a resolved address is forbidden.
	FailureDenied
	// FailureCancelled: the caller went away during the attempt.
	FailureCancelled
)

// Verdict is what was decided after an attempt.
type Verdict int32

// The verdicts, in the order of the wire.
const (
	VerdictUnspecified Verdict = iota
	// VerdictRetry: another attempt follows.
	VerdictRetry
	// VerdictStop: the call ends.
	VerdictStop
	// VerdictFollow: a redirect is followed.
	VerdictFollow
	// VerdictNone: nothing was decided, another attempt is still running.
	VerdictNone
)

// RepeatSafety is what the caller says about repeating the operation.
type RepeatSafety int32

// The values, in the order of the wire.
const (
	// RepeatSafetyUnspecified: the policy decides.
	RepeatSafetyUnspecified RepeatSafety = iota
	// RepeatSafetyNever: never repeat what may have been sent.
	RepeatSafetyNever
	// RepeatSafetyIdempotent: the caller asserts that repeating is safe; honoured only where the policy trusts callers.
	RepeatSafetyIdempotent
)

// Criticality orders calls where they compete.
type Criticality int32

// The values, in the order of the wire.
const (
	CriticalityUnspecified Criticality = iota
	CriticalityCritical
	// CriticalityNormal is the default.
	CriticalityNormal
	CriticalitySheddable
)
