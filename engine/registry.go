package engine

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"
)

const (
	// shards keep one origin's lock from being another's.
	shards = 32
	// originsMax bounds what is remembered, per kind of state; beyond it the longest idle leaves first.
	originsMax = 10_000
	// evictionLook is how many of the longest idle are looked at for one that may leave. When all are busy the registry grows.
	evictionLook = 8
)

// registry keeps a value per key, bounded: values that nobody uses leave, the longest idle first, but never one that is not at rest.
type registry[K comparable, V any] struct {
	make   func(K) V
	atRest func(V, time.Time) bool // it may be forgotten without anybody noticing
	seed   maphash.Seed
	shard  [shards]registryShard[K, V]
}

type registryShard[K comparable, V any] struct {
	mu      sync.Mutex // protects the fields below
	entries map[K]*list.Element
	order   list.List // of *entry, the latest used in front
}

// entry is a value in use by as many calls as users says.
type entry[K comparable, V any] struct {
	key   K
	value V
	users int
}

func newRegistry[K comparable, V any](create func(K) V, atRest func(V, time.Time) bool) *registry[K, V] {
	r := &registry[K, V]{make: create, atRest: atRest, seed: maphash.MakeSeed()}
	for i := range r.shard {
		r.shard[i].entries = make(map[K]*list.Element)
	}
	return r
}

// enter gives the value of a key and keeps it until leave.
func (r *registry[K, V]) enter(key K, now time.Time) (V, *entry[K, V]) {
	s := r.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	element, ok := s.entries[key]
	if !ok {
		if len(s.entries) >= originsMax/shards {
			r.evictLocked(s, now)
		}
		element = s.order.PushFront(&entry[K, V]{key: key, value: r.make(key)})
		s.entries[key] = element
	} else {
		s.order.MoveToFront(element)
	}
	e, _ := element.Value.(*entry[K, V]) // nothing else is in the list
	e.users++
	return e.value, e
}

func (r *registry[K, V]) leave(e *entry[K, V]) {
	s := r.shardOf(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.users--
}

// evictLocked makes room for one where it can. Those that may not leave go to the front, so that a few of them do not stop the search
// for ever.
func (r *registry[K, V]) evictLocked(s *registryShard[K, V], now time.Time) {
	for range evictionLook {
		element := s.order.Back()
		if element == nil {
			return
		}
		if e, ok := element.Value.(*entry[K, V]); ok && e.users == 0 && r.atRest(e.value, now) {
			s.order.Remove(element)
			delete(s.entries, e.key)
			return
		}
		s.order.MoveToFront(element)
	}
}

func (r *registry[K, V]) shardOf(key K) *registryShard[K, V] {
	return &r.shard[maphash.Comparable(r.seed, key)%shards]
}
