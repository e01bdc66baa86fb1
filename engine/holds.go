package engine

import (
	"crypto/sha256"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// holds remembers until when an origin asked not to be called: after a 503 by anybody, after a 429 by one credential, since rate
// limits are per key (semantics.md §4).
type holds struct {
	last  atomic.Pointer[time.Time] // the end of the hold that ends last; nil before the first; written under mu
	mu    sync.Mutex                // protects the fields below
	until map[holdKey]time.Time
	swept time.Time // when those that are over were last forgotten, while the map was full
}

// holdKey is an origin, and the credential that is held; "" holds all.
type holdKey struct {
	origin     string
	credential string
}

const (
	// holdsMax bounds what is remembered. Beyond it those that are over leave; if all stand, a credential's hold is not remembered, and
	// one of a whole origin takes the place of a credential's: nobody's many credentials lift an origin's hold.
	holdsMax   = 10_000
	sweepEvery = time.Second
)

func newHolds() *holds { return &holds{until: make(map[holdKey]time.Time)} }

// of is until when a call is held: for all callers of its origin, or for its credential. A time that has passed holds nobody.
func (h *holds) of(now time.Time, c *call.Call, p *policy.Effective) time.Time {
	if last := h.last.Load(); last == nil || !last.After(now) {
		return time.Time{} // the usual case needs no lock and no credential
	}
	credential := credentialOf(c, p)
	h.mu.Lock()
	defer h.mu.Unlock()
	all, own := h.until[holdKey{origin: c.Target.Origin}], h.until[holdKey{c.Target.Origin, credential}]
	if all.After(own) {
		return all
	}
	return own
}

// hold never shortens a hold that stands, and tells whether it set or prolonged one.
func (h *holds) hold(now time.Time, k holdKey, until time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.until[k]; !known && len(h.until) >= holdsMax && !h.roomLocked(now, k) {
		return false
	}
	if !until.After(h.until[k]) {
		return false
	}
	h.until[k] = until
	if last := h.last.Load(); last == nil || until.After(*last) {
		h.last.Store(&until)
	}
	return true
}

// lift ends every hold of an origin.
func (h *holds) lift(origin string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	looked := 0
	for k := range h.until {
		if k.origin == origin {
			delete(h.until, k)
		}
		if looked++; looked%copiedAtOnce == 0 {
			yield(&h.mu)
		}
	}
}

// roomLocked makes room for one more hold, if it is worth another's place.
func (h *holds) roomLocked(now time.Time, k holdKey) bool {
	if now.Sub(h.swept) >= sweepEvery {
		h.swept = now
		maps.DeleteFunc(h.until, func(_ holdKey, until time.Time) bool { return !until.After(now) })
	}
	if len(h.until) < holdsMax {
		return true
	}
	if k.credential != "" {
		return false
	}
	for other := range h.until {
		if other.credential != "" {
			delete(h.until, other)
			return true
		}
	}
	return false
}

// credentialOf names what an upstream's rate limit counts by: the credential that the policy injects, else the request's own
// Authorization, else the caller. Never empty, so that it is never all.
func credentialOf(c *call.Call, p *policy.Effective) string {
	for i := range p.Credentials {
		if c.Foreign {
			break // it bears none of them
		}
		if cred := &p.Credentials[i]; cred.Covers(c.Target.Host) {
			return "secret:" + cred.Secret
		}
	}
	if own := fieldValues(c.Headers, "Authorization"); len(own) > 0 {
		sum := sha256.Sum256([]byte(own[0])) // not the secret itself
		return "authorization:" + string(sum[:])
	}
	return "caller:" + c.Caller
}
