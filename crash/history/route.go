package history

import "time"

// Route is a way to treat operations: the policy, the upstream and the checker all go by it.
type Route struct {
	// Name is the first segment of its paths.
	Name string
	// Method of its requests.
	Method string
	// Keyed: the upstream honours idempotency keys, and the policy says so.
	Keyed bool
	// KeyTTL is what the policy says of how long keys are remembered. The upstream adds [KeyGrace].
	KeyTTL time.Duration
	// Proves are the statuses by which the upstream proves that it did nothing, and the policy says so.
	Proves []int
	// Probed: the policy has a status probe, the upstream answers it.
	Probed bool
}

// KeyGrace is how much longer than the policy says the upstream remembers a key. The broker judges when a send starts; on a busy machine
// it arrives later.
const KeyGrace = time.Second

// AttemptTimeout is what the policy gives one attempt, and so the longest that an answer may be late.
const AttemptTimeout = time.Second

// MaxAttempts is what the policy gives one call. One resend more is free: that of a request of which not a byte left.
const MaxAttempts = 4

// Routes are all there are, by name. Names of those with more in their policy than a Route tells say what it is.
func Routes() map[string]Route {
	routes := map[string]Route{}
	for _, r := range []Route{
		{Name: "plain", Method: "POST"},
		{Name: "guarded", Method: "POST"}, // a breaker that opens
		{Name: "rejecting", Method: "POST", Proves: []int{503}},
		{Name: "probed", Method: "POST", Probed: true},
		{Name: "keyed", Method: "POST", Keyed: true, KeyTTL: 10 * time.Minute},
		{Name: "short", Method: "POST", Keyed: true, KeyTTL: 1500 * time.Millisecond},
		{Name: "hedged", Method: "POST", Keyed: true, KeyTTL: 10 * time.Minute},
		{Name: "put", Method: "PUT"},
		{Name: "get", Method: "GET"}, // of deferred calls alone
	} {
		routes[r.Name] = r
	}
	return routes
}

// MustNotRepeat tells that what may have been sent is not sent again.
func (r Route) MustNotRepeat() bool { return r.Method == "POST" && !r.Keyed }
