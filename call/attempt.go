package call

import "time"

// Attempt is one request on the wire for a call: first what it was given, then what came of it.
type Attempt struct {
	// Number counts from 1 over all attempts of the call.
	Number uint32
	// Kind says why it was made.
	Kind Kind
	// Origin is where it went, scheme://host:port.
	Origin string
	// Start is when it began; StartTime the same on the wall clock comes from it.
	Start time.Time
	// Offset is Start since the call arrived.
	Offset time.Duration
	// Waited is the backoff before it.
	Waited time.Duration
	// Queued is the wait for a concurrency slot.
	Queued time.Duration
	// Timeout is the time it was given, Deadline the instant that ends it.
	Timeout  time.Duration
	Deadline time.Time
	// Clipped: it ends with the call's own time, not with a time-out of its own.
	Clipped bool
	// Remaining is the call's own remaining time when it began, told upstream when the policy names a header for it.
	Remaining time.Duration
	// Departure lets a request that has left outlive its caller; nil: the attempt ends with its call. It is the sender's only.
	Departure *Departure

	// Stream is what an attempt of a streamed call has beside; nil: the call is none. It is the sender's only.
	Stream *AttemptStream

	// TraceParent is the W3C field sent upstream, filled in by the observer; "" sends none.
	TraceParent string
	// TraceID and SpanID are its parts, in hex.
	TraceID, SpanID string

	// Duration is how long it ran.
	Duration time.Duration
	// Result is what it gave.
	Result Result
	// Decision is what was decided after it.
	Decision Decision
}

// Decision is what was decided after an attempt.
type Decision struct {
	Verdict Verdict
	Reason  Reason
	// Wait before the next attempt; 0 unless Verdict is VerdictRetry or VerdictFollow.
	Wait time.Duration
}

// Result is what one attempt gave.
type Result struct {
	// Evidence says how far the attempt provably got.
	Evidence Evidence
	// Failure says what went wrong; FailureNone beside EvidenceAnswered.
	Failure Failure
	// Terminal: trying again cannot mend this failure (no such name, a refused certificate, a proxy that says no).
	Terminal bool
	// TimedOut: the attempt's own deadline ended it, whatever Failure it bears.
	TimedOut bool
	// Detail is one sentence for a person; no secrets, no body text, no resolved address of a denied name.
	Detail string
	// Note is what only the operator may read, for the log: which rule denied an address.
	Note string
	// Status is the answer's, also when its body then failed; 0 without a head.
	Status int
	// Response is the complete answer; nil unless Evidence is EvidenceAnswered. That of a forwarded one has no body.
	Response *Response
	// Forwarded: the caller of a streamed call got a part of the answer, or all of it.
	Forwarded bool
	// Starved: the attempt's time passed while the next piece of the caller's body was waited for. That says nothing of the origin.
	Starved bool
	// Head is how long a streamed answer's head took; 0 when there was none.
	Head time.Duration
	// RemoteAddress is host:port of the peer, through a proxy that of the target; "" when there was no connection.
	RemoteAddress string
	// Protocol is "HTTP/1.1" or "HTTP/2", "" when there was no connection.
	Protocol string
	// Reused: the connection had served an attempt before.
	Reused bool
	// Opening is what a fresh connection took, or what it took until it failed; nil when an idle one was used.
	Opening *Opening
}

// Opening is how long the steps to a fresh connection took; 0 for one that was not taken, as for a name that was known.
type Opening struct {
	// DNS is the lookup of the name, Connect that of TCP over all addresses tried, TLS the handshake.
	DNS, Connect, TLS time.Duration
}

// Response is a complete answer.
type Response struct {
	Status   int
	Headers  []Header
	Body     []byte
	Trailers []Header
	// Protocol is "HTTP/1.1" or "HTTP/2".
	Protocol string
	// BodyOmitted: there was a body, and it is not kept any more. Only an answer from a ledger can be so.
	BodyOmitted bool
}

// Final is why a call ended and what is known.
type Final struct {
	Outcome Outcome
	Effect  Effect
	Reason  Reason
	// Detail is one sentence for a person; no secrets, no body text.
	Detail string
	// Note is what only the operator may read, for the log.
	Note string
	// Response is the last complete answer, nil when there was none.
	Response *Response
	Attempts []Attempt
	// Sends counts attempts of which at least one byte may have left.
	Sends uint32
	// RetrySafe: submitting it again with the same operation id cannot add an effect.
	RetrySafe bool
	Next      NextStep
	// RetryAfter is the earliest useful moment to try again, from now; 0 when not known.
	RetryAfter time.Duration
	// OperationID as given, or as generated under an idempotency contract.
	OperationID string
	// Elapsed since the broker took the call.
	Elapsed time.Duration
	// FirstSend is when a byte of the operation may have left first, in an earlier call under the same id too; zero: none has.
	FirstSend time.Time
	// Told is what a repeat under the same operation id is told; zero: the id is free again.
	Told Told
	// Late receives what the call would have ended with if its caller had waited, once, and is never closed; nil when nothing runs on.
	// It is of an attempt that was sent and must not be repeated, whose answer is still worth having (semantics.md §3, late
	// answers). Whoever keeps operations waits for it.
	Late <-chan Final
}

// Told is how an operation that is over is told of to those who ask again.
type Told struct {
	Outcome Outcome
	Reason  Reason
}
