package engine

import (
	"hash/maphash"
	"iter"
	"runtime"
	"sync"
	"time"

	"github.com/sallyport/sallyport/policy"
)

const (
	// shards keep one origin's lock from being another's.
	shards = 32
	// originsMax bounds what is remembered, per kind of state if it has no bound of its own; beyond it the longest idle leaves first.
	originsMax = 10_000
	// evictionLook is how many of the longest idle are looked at for one that may leave. When all are busy the registry grows.
	evictionLook = 8
)

// registry keeps a value per key, bounded: values that nobody uses leave, the longest idle first, but never one that is not at rest.
type registry[K comparable, V any] struct {
	most   int // as many as are remembered
	make   func(K, time.Time) V
	atRest func(V, time.Time) bool // it may be forgotten without anybody noticing
	seed   maphash.Seed
	shard  [shards]registryShard[K, V]
}

type registryShard[K comparable, V any] struct {
	mu      sync.Mutex // protects the fields below and those of the entries
	start   time.Time  // the first use
	entries map[K]*entry[K, V]
	latest  *entry[K, V] // used; nil when there is none
}

// entry is a value in use by as many calls as users says. Its shard has the entries in a ring: next are those used ever longer ago, and
// before the latest comes the longest idle. The links lie in the entries, where container/list makes an element for each.
type entry[K comparable, V any] struct {
	shard      *registryShard[K, V]
	key        K
	value      V // never changes
	users      int32
	used       uint32         // when it was entered last, in seconds from the start of its shard
	by         *policy.Shared // of the latest user; never changes itself
	next, prev *entry[K, V]
}

func newRegistry[K comparable, V any](create func(K, time.Time) V, atRest func(V, time.Time) bool) *registry[K, V] {
	r := &registry[K, V]{most: originsMax, make: create, atRest: atRest, seed: maphash.MakeSeed()}
	for i := range r.shard {
		r.shard[i].entries = make(map[K]*entry[K, V])
	}
	return r
}

// enter gives the value of a key, to be used under by, and keeps it until leave.
func (r *registry[K, V]) enter(key K, by *policy.Shared, now time.Time) (V, *entry[K, V]) {
	s := r.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= r.most/shards {
			r.evictLocked(s, now)
		}
		e = &entry[K, V]{shard: s, key: key, value: r.make(key, now)}
		s.entries[key] = e
	} else {
		s.unlinkLocked(e)
	}
	s.pushLocked(e)
	e.users++
	e.by, e.used = by, s.sinceLocked(now)
	return e.value, e
}

// sinceLocked is a time in seconds from the start of the shard.
func (s *registryShard[K, V]) sinceLocked(now time.Time) uint32 {
	if s.start.IsZero() {
		s.start = now
	}
	return uint32(max(now.Sub(s.start), 0) / time.Second) //nolint:gosec // good for a hundred years
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

// seen is an entry and who was the latest to use it.
type seen[K comparable, V any] struct {
	*entry[K, V]
	by *policy.Shared
}

// all gives every key and value, as each does.
func (r *registry[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for s := range r.each() {
			if !yield(s.key, s.value) {
				return
			}
		}
	}
}

// each gives every entry there is, a shard at a time, and lets others run between two shards. No lock is held meanwhile: one that has
// just been forgotten may be among them.
func (r *registry[K, V]) each() iter.Seq[seen[K, V]] {
	return func(yield func(seen[K, V]) bool) {
		some := make([]seen[K, V], 0, originsMax/shards+evictionLook)
		for i := range r.shard {
			some = r.shard[i].appendTo(some[:0])
			for _, s := range some {
				if !yield(s) {
					return
				}
			}
			runtime.Gosched()
		}
	}
}

// appendTo copies pointers only: the lock is held a few microseconds.
func (s *registryShard[K, V]) appendTo(some []seen[K, V]) []seen[K, V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		some = append(some, seen[K, V]{e, e.by})
	}
	return some
}

// forget drops what nobody has used for so long and is at rest.
func (r *registry[K, V]) forget(now time.Time, idle time.Duration) {
	for i := range r.shard {
		s := &r.shard[i]
		for _, e := range s.idle(now, idle) {
			s.forgetIfIdle(e, now, idle, r.atRest)
		}
		runtime.Gosched()
	}
}

// idle are the entries that nobody has used for so long.
func (s *registryShard[K, V]) idle(now time.Time, idle time.Duration) (some []*entry[K, V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if s.isIdleLocked(e, now, idle) {
			some = append(some, e)
		}
	}
	return some
}

func (s *registryShard[K, V]) isIdleLocked(e *entry[K, V], now time.Time, idle time.Duration) bool {
	return e.users == 0 && time.Duration(s.sinceLocked(now))*time.Second >= time.Duration(e.used)*time.Second+idle
}

func (s *registryShard[K, V]) forgetIfIdle(e *entry[K, V], now time.Time, idle time.Duration, atRest func(V, time.Time) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.key] != e || !s.isIdleLocked(e, now, idle) || !atRest(e.value, now) {
		return
	}
	s.unlinkLocked(e)
	delete(s.entries, e.key)
}

func (r *registry[K, V]) shardOf(key K) *registryShard[K, V] {
	return &r.shard[maphash.Comparable(r.seed, key)%shards]
}
