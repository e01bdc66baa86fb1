// Package history is what an audit of effects writes down while it runs: what callers asked and were told, what the upstream saw and
// did, when the broker was killed. It knows neither the broker's code nor its wire; the checker reads nothing else.
package history

import (
	"slices"
	"sync"
	"time"
)

// Operation is one logical operation of the audit. Its name stands in the path of its requests, so that the upstream knows it.
type Operation struct {
	// Name is unique in a history, and the operation id where there is one.
	Name string
	// Route is where it goes.
	Route Route
	// Identified: asked under an operation id. Without one every ask is an operation of its own to the broker.
	Identified bool
	// Padding is how many bytes its bodies have beside the payload.
	Padding int
}

// Ask is one RPC of a caller, and what it was told.
type Ask struct {
	Operation string
	// Trace is the id of the trace that the caller began: what arrives upstream because of this ask bears it.
	Trace string
	// Other: the payload is not that of the operation.
	Other bool
	// Final: after everything late had its time, and with nothing going wrong any more.
	Final bool
	// Start and End are counted from the start of the history.
	Start, End time.Duration
	// Deadline is the time the caller gave, CancelAfter when it went away; 0: it did not.
	Deadline, CancelAfter time.Duration
	Told
}

// Told is what an RPC returned. The words are those of the contract.
type Told struct {
	// Code is the gRPC code, "OK" for a typed outcome; the rest is empty when it is another.
	Code string
	// NothingSent: the error proves that no byte left the broker.
	NothingSent bool
	// Detail is for a person.
	Detail string

	Outcome, Effect, Reason, Next string
	// Status of the answer, 0 without one, and its Body.
	Status int
	Body   string
	// Replayed: the answer was stored.
	Replayed bool
	// Sends are the attempts of which a byte may have arrived, Attempts all that are listed.
	Sends, Attempts int
}

// Reading is what GetOperation said.
type Reading struct {
	Operation  string
	Start, End time.Duration
	// Final as in [Ask].
	Final bool
	// Code is the gRPC code.
	Code                           string
	State, Outcome, Effect, Reason string
	Status                         int
	Body                           string
	Attempts                       int
}

// Arrival is one request that reached the upstream, and what it made of it.
type Arrival struct {
	Operation string
	// Trace is that of the ask that led, Key the idempotency key as it came, Other as in [Ask].
	Trace, Key string
	Other      bool
	// Script is what the upstream meant to do to it.
	Script string
	// At is when it came, End when the upstream was done with it.
	At, End time.Duration
	// Committed is when its effect happened; 0: it had none. Answer is what belongs to the effect, whether it was told or not: every
	// effect has another.
	Committed time.Duration
	Answer    string
	// Status of the answer that was written whole; 0: none was. Body is what it said.
	Status int
	Body   string
}

// Stop is an end of the broker, and its new start.
type Stop struct {
	// At is when it was asked to end, or killed; Back when it served again.
	At, Back time.Duration
	// Killed, rather than asked.
	Killed bool
	// Wrong is what was wrong about it, for a person: a panic, an end that nobody wanted.
	Wrong string
}

// History is all of it. The slices are in no order.
type History struct {
	Operations []Operation
	Asks       []Ask
	Readings   []Reading
	Arrivals   []Arrival
	Stops      []Stop

	// Of the audit of deferred calls.
	Deferred []Deferred
	Acks     []Ack
	Sights   []Sight
	Listings []Listing
}

// Recorder collects a history. It is safe for concurrent use.
type Recorder struct {
	start time.Time

	mu  sync.Mutex // protects the fields below
	all History
}

// NewRecorder starts a history now.
func NewRecorder(now time.Time) *Recorder { return &Recorder{start: now} }

// At is that instant in the history.
func (r *Recorder) At(now time.Time) time.Duration { return now.Sub(r.start) }

// Operation writes one down.
func (r *Recorder) Operation(o Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Operations = append(r.all.Operations, o)
}

// Ask writes down one that has ended.
func (r *Recorder) Ask(a Ask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Asks = append(r.all.Asks, a)
}

// Reading writes one down.
func (r *Recorder) Reading(g Reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Readings = append(r.all.Readings, g)
}

// Arrival writes down one that the upstream is done with.
func (r *Recorder) Arrival(a Arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Arrivals = append(r.all.Arrivals, a)
}

// Stop writes one down.
func (r *Recorder) Stop(s Stop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Stops = append(r.all.Stops, s)
}

// History is what there is so far.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return History{
		Operations: slices.Clone(r.all.Operations), Asks: slices.Clone(r.all.Asks), Readings: slices.Clone(r.all.Readings),
		Arrivals: slices.Clone(r.all.Arrivals), Stops: slices.Clone(r.all.Stops),
		Deferred: slices.Clone(r.all.Deferred), Acks: slices.Clone(r.all.Acks), Sights: slices.Clone(r.all.Sights), Listings: slices.Clone(r.all.Listings),
	}
}
