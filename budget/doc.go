// Package budget says how many extra attempts, retries and hedges, all callers of an origin together may spend (semantics.md §5).
// A failing upstream answers every attempt with a failure; without a bound three tries make three times the load just when it can
// bear least, and the retries alone keep it down after the cause is gone. First attempts are never charged and never refused.
//
// There are two kinds. The window counts what was tried of late:
//
//	          now − period                                  now
//	               │◄──────────────── period ────────────────►│
//	first attempts │·  · ···  ·  · ·· ···  ·  ·· ·   ··· · · ·│   a retry is allowed while
//	retries        │   ▪        ▪          ▪         ▪        │   retries + 1 ≤ ratio · first attempts + min_per_second · period
//
// The token bucket counts how it went:
//
//	              failure −1 (TOKEN_RULE_HALF), retry −1 (TOKEN_RULE_PER_RETRY)
//	             ◄──────────────────────────────────────────────
//	0 ├───────────────────────────┬────────────────────────────┤ max_tokens (it starts here)
//	             ──────────────────────────────────────────────►
//	              success + token_ratio
//
//	HALF (gRPC A6):    refused    │          allowed
//	PER_RETRY:     <1 refused, else allowed
//
// A retry is paid for in the step that allows it, so that any number of callers at once cannot overdraw, and handed back when it is
// not sent after all:
//
//	Withdraw ──► Token ──► sent: spent
//	   │           └─────► not sent: HandBack, as if it had never been taken
//	   └──► *RefusedError: which budget, why, and when to ask again if that is known
//
// The package reads no clock and starts no goroutine: the instant is a parameter. An instant older than one already seen counts as
// the latest seen, since callers read their clocks before they get the lock.
package budget
