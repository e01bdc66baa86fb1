package call

import "time"

// Call is what a caller asked for, once, with one deadline. It is checked when it is made and never changes afterwards.
type Call struct {
	// Method is a token, case-sensitive (RFC 9110 §9.1).
	Method string
	// Target is where the request goes.
	Target Target
	// Headers are the caller's fields that may be sent, in order; [CleanHeaders] has dropped the others.
	Headers []Header
	// Body is sent whole; it must not change while the call runs.
	Body []byte
	// Stream is where the bodies of a streamed call come from and go to; nil: the call is none. Body is empty then.
	Stream *Stream

	// Foreign: a redirect led to another origin on the way here. Nothing that the policy sets or holds goes along, nor the
	// operation's key, also on the way back.
	Foreign bool

	// Caller is the authenticated identity, never a request field.
	Caller string
	// OperationID names one logical operation of this caller; "" when there is none.
	OperationID string
	// RepeatSafety is the caller's word on repeating.
	RepeatSafety RepeatSafety
	// Criticality orders calls where they compete.
	Criticality Criticality
	// SingleUseBody: the body may be sent once only.
	SingleUseBody bool

	// MaxAttempts may lower the policy's number; 0 = policy.
	MaxAttempts uint32
	// AttemptTimeout may lower the policy's; 0 = policy.
	AttemptTimeout time.Duration
	// MaxResponseBytes may lower the policy's; 0 = policy.
	MaxResponseBytes uint64
	// Reserve is the time the caller wants left when the answer arrives; 0 = the policy's margin alone.
	Reserve time.Duration

	// Arrived is when the broker took the call (monotonic).
	Arrived time.Time
	// Deadline is the caller's; the zero time when none was sent.
	Deadline time.Time
	// Latest is when the work must be over at the latest, whatever deadline and margins say; zero: they alone rule.
	Latest time.Time
	// Before is what earlier calls under the same id left behind; the zero value: nothing.
	Before Before
	// Dispatch is which one this is of a deferred call; zero: the call is none.
	Dispatch Dispatch
	// DuplicatesAccepted: whoever submitted a deferred call would have it twice rather than not at all.
	DuplicatesAccepted bool
	// Deferral is set where the caller allows the call to go on as a deferred one; nil: he does not.
	Deferral *Deferral
	// MayRunOn: somebody waits for a sent attempt that outlives the caller (semantics.md §3, late answers).
	MayRunOn bool
	// Labels go to the call's span, never to the upstream.
	Labels map[string]string
}

// Deferral is what a call needs to go on as a deferred one.
type Deferral struct {
	// Expire is when that is given up, on the wall clock.
	Expire time.Time
	// Encode gives the call in the form in which a deferred one is kept, with that many attempts at most (0: as the policy says).
	Encode func(maxAttempts uint32) ([]byte, error)
}

// Dispatch tells dispatches of a deferred call apart: each is a call of one attempt, without the free resend (semantics.md §11).
type Dispatch uint8

// The dispatches.
const (
	// DispatchFirst is like the first attempt of a call.
	DispatchFirst Dispatch = iota + 1
	// DispatchRepeat draws a token before it begins, as a retry does, and leaves half of the budget to calls whose callers wait.
	DispatchRepeat
)

// Before is what earlier calls under the same operation id left behind, whose id was given back.
type Before struct {
	// FirstSend is when a byte of the operation may have left first; zero: none has.
	FirstSend time.Time
	// Unknown: one of them may have been applied.
	Unknown bool
}

// Safe reports whether the method is safe (RFC 9110 §9.2.1): whatever such a request did, any complete answer tells all.
func Safe(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}
