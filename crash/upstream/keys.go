package upstream

import (
	"sync"
	"time"
)

// keys remembers what was done under which idempotency key. It is safe for concurrent use.
type keys struct {
	mu    sync.Mutex // protects the fields below
	known map[string]*entry
}

// entry is one key.
type entry struct {
	since   time.Time
	payload string
	done    bool
	answer  answer
}

// answer is what is written back.
type answer struct {
	status int
	body   string
}

// verdict is what a key says of a request.
type verdict int

const (
	fresh verdict = iota // nobody had it: it is the request's now, to be finished or forgotten
	busy
	mismatch
	known
)

// take asks for a key, which is forgotten after ttl.
func (k *keys) take(key, payload string, ttl time.Duration, now time.Time) (verdict, answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.known[key]
	switch {
	case !ok || e.done && now.Sub(e.since) > ttl:
		k.known[key] = &entry{since: now, payload: payload}
		return fresh, answer{}
	case e.payload != payload:
		return mismatch, answer{}
	case !e.done:
		return busy, answer{}
	}
	return known, e.answer
}

// finish keeps the answer under the key.
func (k *keys) finish(key string, a answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.known[key]
	e.done, e.answer = true, a
}
