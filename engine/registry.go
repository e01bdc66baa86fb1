package engine

import (
	"hash/maphash"
	"iter"
	"maps"
	"runtime"
	"slices"
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
	mu      sync.Mutex // protects the fields below and those of the entries
	entries map[K]*entry[K, V]
	latest  *entry[K, V] // used; nil when there is none
}

// entry is a value in use by as many calls as users says. Its shard has the entries in a ring: next are those used ever longer ago, and
// before the latest comes the longest idle. The links lie in the entries, where container/list makes an element for each.
type entry[K comparable, V any] struct {
	shard      *registryShard[K, V]
	key        K
	value      V // never changes
	users      int
	next, prev *entry[K, V]
}

func newRegistry[K comparable, V any](create func(K) V, atRest func(V, time.Time) bool) *registry[K, V] {
	r := &registry[K, V]{make: create, atRest: atRest, seed: maphash.MakeSeed()}
	for i := range r.shard {
		r.shard[i].entries = make(map[K]*entry[K, V])
	}
	return r
}

// enter gives the value of a key and keeps it until leave.
func (r *registry[K, V]) enter(key K, now time.Time) (V, *entry[K, V]) {
	s := r.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= originsMax/shards {
			r.evictLocked(s, now)
		}
		e = &entry[K, V]{shard: s, key: key, value: r.make(key)}
		s.entries[key] = e
	} else {
		s.unlinkLocked(e)
	}
	s.pushLocked(e)
	e.users++
	return e.value, e
}

func (e *entry[K, V]) leave() {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	e.users--
}

// evictLocked makes room for one where it can. Those that may not leave go to the front, so that a few of them do not stop the search
// for ever.
func (r *registry[K, V]) evictLocked(s *registryShard[K, V], now time.Time) {
	for range evictionLook {
		if s.latest == nil {
			return
		}
		e := s.latest.prev
		if e.users == 0 && r.atRest(e.value, now) {
			s.unlinkLocked(e)
			delete(s.entries, e.key)
			return
		}
		s.latest = e
	}
}

// pushLocked makes an entry that is not in the ring the latest.
func (s *registryShard[K, V]) pushLocked(e *entry[K, V]) {
	e.next, e.prev = e, e
	if s.latest != nil {
		e.next, e.prev = s.latest, s.latest.prev
		e.next.prev, e.prev.next = e, e
	}
	s.latest = e
}

func (s *registryShard[K, V]) unlinkLocked(e *entry[K, V]) {
	switch {
	case e.next == e:
		s.latest = nil
	case s.latest == e:
		s.latest = e.next
	}
	e.prev.next, e.next.prev = e.next, e.prev
}

// all gives every key and value there is, a shard at a time, and lets others run between two shards. No lock is held meanwhile: a
// value that has just been forgotten may be among them.
func (r *registry[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		some := make([]*entry[K, V], 0, originsMax/shards+evictionLook)
		for i := range r.shard {
			some = r.shard[i].appendTo(some[:0])
			for _, e := range some {
				if !yield(e.key, e.value) {
					return
				}
			}
			runtime.Gosched()
		}
	}
}

// appendTo copies pointers only: the lock is held a few microseconds.
func (s *registryShard[K, V]) appendTo(some []*entry[K, V]) []*entry[K, V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(some, maps.Values(s.entries))
}

func (r *registry[K, V]) shardOf(key K) *registryShard[K, V] {
	return &r.shard[maphash.Comparable(r.seed, key)%shards]
}
