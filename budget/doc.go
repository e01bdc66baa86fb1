// Package budget says how many extra attempts, retries and hedges, all callers of an origin together may spend (semantics.md §5).
// A failing upstream answers every attempt with a failure; without a bound three tries make three times the load just when it can
// bear least, and the retries alone keep it down after the cause is gone. First attempts are never charged and never refused.
//
// There are two kinds. The window counts what was tried of late:
//
//	          now − period                                  now
//	               │◄──────────────── period ────────────────►│
//	first attempts │·  · ···  ·  · ·· ···  ·  ·· ·   ··· · · ·│
//	retries sent   │   ▪        ▪          ▪         ▪        │ ▫ ▫  outstanding: granted, neither sent nor handed back
//
//	a retry is allowed while  sent + outstanding + 1 ≤ ratio · first attempts + min_per_second · period
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
//	Withdraw ──► Token ──► sent: Spend, dated now
//	   │           └─────► not sent: HandBack, as if it had never been taken
//	   └──► *RefusedError: which budget, why, and when to ask again if that is known
//
// Between grant and sending lies a backoff or a Retry-After, and it may be longer than the period. Until it ends the token counts as
// taken, however old it is, and a window dates it at the instant of sending. Dated at its grant it would leave the window unsent, the
// next one would be granted its place, and both would be sent within a period: twice the allowance. This way what is sent in any
// period is within the allowance there was at the last grant among it.
//
// A window in use costs some 600 bytes, and some 250 for each caller, 64 at most, that took an extra attempt in the last
// period. After a period in which nothing happened Trim makes 160 bytes of all that.
//
// The package reads no clock and starts no goroutine: the instant is a parameter. An instant older than one already seen counts as
// the latest seen, since callers read their clocks before they get the lock.
package budget
