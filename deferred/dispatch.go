package deferred

import (
	"context"
	"time"

	"github.com/sallyport/sallyport/call"
)

// Dispatcher makes attempts of deferred calls.
type Dispatcher interface {
	// Judge finds what rules the call now, from its Request. An error: it can never be made (its request is not valid under the policies of
	// today); Detail of it is for a person.
	Judge(r *Record) (Terms, error)
	// Dispatch makes one attempt and no more, without the free resend. It returns in time; ctx ends it. Nobody waits for a late answer.
	Dispatch(ctx context.Context, r *Record, t *Terms) call.Final
	// Inquire asks the status probe of a call that is UNKNOWN, of which the last byte was sent at lastByte or before. An error: it cannot be
	// asked, as far as the policies of today say.
	Inquire(ctx context.Context, r *Record, lastByte time.Time) (Found, error)
}

// Found is what a status probe says.
type Found struct {
	// Applied is its answer, where that says that the operation was applied.
	Applied *call.Response
	// NotApplied: it is proved that nothing was done.
	NotApplied bool
	// Provable is from when on it can be; zero: it never can.
	Provable time.Time
}

// Terms are what a policy says of a deferred call.
type Terms struct {
	// Repeatable: it may be sent again after it may have been sent: by the policy, by its key, or since duplicates are accepted.
	Repeatable bool
	// MaxAttempts bounds the attempts where the submission gave no number of repeats.
	MaxAttempts uint32
	// Wait is the backoff before repeat k, from 1, where the submission gave none; throttled after a 429.
	Wait func(k uint32, throttled bool, random float64) time.Duration
	// KeyUntil is when its key may be forgotten upstream; zero: never, or it has none.
	KeyUntil func(firstSend time.Time) time.Time
	// CompletedRetention and CancelledRetention are how long such records are kept.
	CompletedRetention, CancelledRetention time.Duration
	// Of is for Dispatch.
	Of any
}
