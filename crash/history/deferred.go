package history

import "time"

// Deferred is one deferred call of the audit.
type Deferred struct {
	// Name is its operation id, and stands in the path of its requests.
	Name string
	Mode Mode
	// Step is where the broker was killed, "" for any moment.
	Step Step
	// Cancelled: somebody wanted it to end.
	Cancelled bool
}

// Mode is a way to treat a deferred call.
type Mode struct {
	Name string
	// Route it takes.
	Route Route
	// Delivery is the word of the contract, "" for what the policy says.
	Delivery string
	// Repeatable: it may be sent again after it may have been sent.
	Repeatable bool
	// OneKey: all its requests bear the same idempotency key.
	OneKey bool
}

// Modes are all there are.
func Modes() []Mode {
	routes := Routes()
	return []Mode{
		{Name: "get", Route: routes["get"], Repeatable: true},
		{Name: "put", Route: routes["put"], Repeatable: true},
		{Name: "keyed", Route: routes["keyed"], Repeatable: true, OneKey: true},
		{Name: "least", Route: routes["plain"], Delivery: "AT_LEAST_ONCE", Repeatable: true, OneKey: true},
		{Name: "plain", Route: routes["plain"]},
		{Name: "most", Route: routes["keyed"], Delivery: "AT_MOST_ONCE"},
	}
}

// Step is how far an attempt had come when the broker was killed.
type Step string

// The steps, in their order.
const (
	// Accepted: acknowledged, not due yet.
	Accepted Step = "after accept"
	// Claimed: it is due, and the broker cannot write that an attempt begins.
	Claimed Step = "after claim"
	// Intended: "an attempt begins" is on the disk, and its connection is not made.
	Intended Step = "after intent"
	// FirstByte: of the request, is upstream.
	FirstByte Step = "after first byte"
	// Headers of the answer are written; its effect has happened.
	Headers Step = "after headers"
	// Halfway: a half of the answer is written.
	Halfway Step = "mid body"
	// Uncommitted: the answer is written, and the broker cannot write what became of the call.
	Uncommitted Step = "before commit"
	// Committed: the broker has told of its end.
	Committed Step = "after commit"
)

// Steps are all of them.
func Steps() []Step {
	return []Step{Accepted, Claimed, Intended, FirstByte, Headers, Halfway, Uncommitted, Committed}
}

// Ack is what a submission was told.
type Ack struct {
	Operation  string
	Start, End time.Duration
	// Code is the gRPC code, ID the name that the broker gave.
	Code, ID string
}

// Sight is what the broker said of a deferred call.
type Sight struct {
	Operation  string
	Start, End time.Duration
	// Final: nothing happens to it any more by itself, or it was given up to wait for that.
	Final bool
	Code  string

	State, Failure, Effect, Reason string
	PossibleDuplicate              bool
	Status                         int
	Body                           string
	Attempts                       []Attempt
}

// Attempt is one as it is told.
type Attempt struct {
	// Sent: a byte of it may have arrived.
	Sent bool
	// Orphaned: its broker ended during it, and told no more of it.
	Orphaned bool
	Status   int
}

// Listing is what the broker said of all of them in the end.
type Listing struct {
	// States, by operation.
	States map[string]string
	// Counts, by state.
	Counts map[string]int
}

// Deferred writes one down.
func (r *Recorder) Deferred(d Deferred) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Deferred = append(r.all.Deferred, d)
}

// Ack writes down a submission that has ended.
func (r *Recorder) Ack(a Ack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Acks = append(r.all.Acks, a)
}

// Sight writes one down.
func (r *Recorder) Sight(s Sight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Sights = append(r.all.Sights, s)
}

// Listing writes one down.
func (r *Recorder) Listing(l Listing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Listings = append(r.all.Listings, l)
}
