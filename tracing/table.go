package tracing

import (
	"maps"
	"sync"
	"sync/atomic"
)

// table is a map that is read without a lock. It is copied whenever something is added, which what it holds must bound.
type table[K comparable, V any] struct {
	seen atomic.Pointer[map[K]V]
	mu   sync.Mutex // held while something is added
}

// get gives the value of a key.
func (t *table[K, V]) get(k K) (v V, ok bool) {
	if seen := t.seen.Load(); seen != nil {
		v, ok = (*seen)[k]
	}
	return v, ok
}

// add gives the value of a key that get did not find: another goroutine may have added it by now, else create makes it, or says that
// there shall be none.
func (t *table[K, V]) add(k K, create func() (V, bool)) (V, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.get(k); ok {
		return v, true
	}
	v, ok := create()
	if !ok {
		return v, false
	}
	seen := map[K]V{k: v}
	if before := t.seen.Load(); before != nil {
		maps.Copy(seen, *before)
	}
	t.seen.Store(&seen)
	return v, true
}

// all is everything there is; it is not to be changed.
func (t *table[K, V]) all() map[K]V {
	if seen := t.seen.Load(); seen != nil {
		return *seen
	}
	return nil
}
