package call

// The names are those of the wire without their enum's prefix.

func (o Outcome) String() string {
	return name(o, "UNSPECIFIED", "SUCCESS", "HTTP_ERROR", "UNKNOWN", "DEADLINE_EXCEEDED", "CANCELLED", "RETRIES_EXHAUSTED",
		"BUDGET_EXHAUSTED", "BREAKER_OPEN", "THROTTLED", "OVERLOADED", "DENIED", "UNREACHABLE", "RESPONSE_REJECTED",
		"OPERATION_CONFLICT", "DEFERRED")
}

func (e Effect) String() string { return name(e, "UNSPECIFIED", "NONE", "ANSWERED", "UNKNOWN") }

func (r Reason) String() string {
	return name(r, "UNSPECIFIED", "SUCCESS", "STATUS_NOT_RETRYABLE", "STATUS_RETRYABLE", "FAILURE_NOT_RETRYABLE",
		"FAILURE_RETRYABLE", "NOT_REPEATABLE", "BODY_NOT_REPLAYABLE", "ATTEMPTS_EXHAUSTED", "BUDGET_EXHAUSTED", "DEADLINE",
		"RETRY_AFTER_TOO_LONG", "ORIGIN_HELD", "BREAKER_OPEN", "CONCURRENCY_LIMIT", "CANCELLED", "EGRESS_DENIED",
		"RESPONSE_TOO_LARGE", "MALFORMED_RESPONSE", "OPERATION_CONFLICT", "KEY_EXPIRED", "REDIRECT_LIMIT", "REDIRECT",
		"SUPERSEDED", "DEFERRED")
}

func (n NextStep) String() string {
	return name(n, "UNSPECIFIED", "DONE", "FIX_REQUEST", "RETRY", "RETRY_SAME_ID", "RECONCILE", "WAIT")
}

func (k Kind) String() string {
	return name(k, "UNSPECIFIED", "PRIMARY", "RETRY", "HEDGE", "PROBE", "REDIRECT")
}

func (e Evidence) String() string {
	return name(e, "UNSPECIFIED", "NOT_SENT", "REFUSED", "SENT_NO_RESPONSE", "PARTIAL_RESPONSE", "ANSWERED")
}

func (f Failure) String() string {
	return name(f, "UNSPECIFIED", "NAME_RESOLUTION", "CONNECT", "TLS", "CONNECTION_LOST", "ATTEMPT_TIMEOUT", "PROTOCOL",
		"RESPONSE_TOO_LARGE", "DENIED", "CANCELLED")
}

func (v Verdict) String() string { return name(v, "UNSPECIFIED", "RETRY", "STOP", "FOLLOW", "NONE") }

func (s RepeatSafety) String() string { return name(s, "UNSPECIFIED", "NEVER", "IDEMPOTENT") }

func (c Criticality) String() string {
	return name(c, "UNSPECIFIED", "CRITICAL", "NORMAL", "SHEDDABLE")
}

func name[E ~int32](e E, names ...string) string {
	if i := int(e); i >= 0 && i < len(names) {
		return names[i]
	}
	return "?"
}
