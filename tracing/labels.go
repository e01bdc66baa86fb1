package tracing

import (
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// What bounds /metrics. Origins and callers are outside input, and so are statuses and methods: whoever makes them up must not fill
// the memory of the broker or of who scrapes it. The names told apart are bounded by number and by length; the series of an
// instrument by the text they take. What has no room is counted all the same, under other. Nothing that has its place loses it before
// the process ends, since a series that comes and goes would count backwards. Together the bounds keep a scrape below 5 MiB
// (TestScrapeIsBounded).
const (
	// maxNames is how many origins, and how many callers, are told apart.
	maxNames = 1000
	// maxNameBytes is how long their names are together.
	maxNameBytes = 48 << 10
	// other is the name of all that came too late.
	other = "other"
	// reserve is the room for the series of other, beyond that of the instrument.
	reserve = 16 << 10
)

// names are the origins or the callers that are told apart, each with what is counted of it.
type names[V any] struct {
	create func(name string) *V
	table  table[string, *V]
	number atomic.Int64 // of names that may still come
	bytes  atomic.Int64 // that they may have
	other  *V
}

func newNames[V any](create func(name string) *V) *names[V] {
	n := &names[V]{create: create, other: create(other)}
	n.number.Store(maxNames)
	n.bytes.Store(maxNameBytes)
	return n
}

// of gives what is counted of a name.
func (n *names[V]) of(name string) *V {
	if v, ok := n.table.get(name); ok {
		return v
	}
	size := int64(len(name))
	if n.number.Load() <= 0 || n.bytes.Load() < size {
		return n.other // a flood of names takes no lock
	}
	v, ok := n.table.add(name, func() (*V, bool) {
		if n.number.Load() <= 0 || n.bytes.Load() < size { // changes under the lock of the table only
			return nil, false
		}
		n.number.Add(-1)
		n.bytes.Add(-size)
		return n.create(name), true
	})
	if !ok {
		return n.other
	}
	return v
}

// told is how many names are told apart.
func (n *names[V]) told() int64 { return maxNames - n.number.Load() }

// each calls f with what is counted of every name, other included.
func (n *names[V]) each(f func(*V)) {
	for _, v := range n.table.all() {
		f(v)
	}
	f(n.other)
}

// family is one instrument whose series are of origins or of callers, and of what K says. V is what a series is made of.
type family[K comparable, V any] struct {
	attributes func(k K) []attribute.KeyValue
	create     func(attribute.Set) V
	width      int // of a line but for its labels
	lines      int // of a series
	room       atomic.Int64
	full       atomic.Bool // no name gets another series
	spent      atomic.Bool // and other gets none but its last
}

func newFamily[K comparable, V any](room, lines, width int, attributes func(K) []attribute.KeyValue, create func(attribute.Set) V) *family[K, V] {
	f := &family[K, V]{attributes: attributes, create: create, width: width, lines: lines}
	f.room.Store(int64(room))
	return f
}

// series are those of one family and one name.
type series[K comparable, V any] struct {
	label []attribute.KeyValue // the name
	known table[K, V]
}

// at gives the series of a key: of own, or where the family has no room of others, or in the end the one of others and the zero key.
func (f *family[K, V]) at(own, others *series[K, V], k K) V {
	if v, ok := own.known.get(k); ok {
		return v
	}
	if own != others {
		if v, ok := f.admit(own, k, 0, &f.full); ok {
			return v
		}
		return f.at(others, others, k)
	}
	if v, ok := f.admit(others, k, -reserve, &f.spent); ok {
		return v
	}
	var last K
	v, _ := others.known.add(last, func() (V, bool) { return f.create(f.set(others, last)), true })
	return v
}

// admit makes a series as long as that leaves so much room. Once one found none, none is asked for any more: a flood takes no lock.
func (f *family[K, V]) admit(to *series[K, V], k K, least int64, none *atomic.Bool) (v V, ok bool) {
	if none.Load() {
		return v, false
	}
	return to.known.add(k, func() (v V, ok bool) {
		set := f.set(to, k)
		if size := f.size(&set); f.room.Add(-size) < least {
			f.room.Add(size)
			none.Store(true)
			return v, false
		}
		return f.create(set), true
	})
}

func (f *family[K, V]) set(of *series[K, V], k K) attribute.Set {
	return attribute.NewSet(append(f.attributes(k), of.label...)...)
}

// size is the text that a series takes at most: on every line the labels, each with its quotation marks, equals sign and comma.
func (f *family[K, V]) size(set *attribute.Set) int64 {
	line := f.width
	for i := set.Iter(); i.Next(); {
		kv := i.Attribute()
		line += len(kv.Key) + len(kv.Value.String()) + len(`="",`)
	}
	return int64(f.lines * line)
}

// counter is one series of a counter. It is read when somebody asks: a counter of the SDK costs some hundred nanoseconds each time.
type counter struct {
	n   atomic.Int64
	set attribute.Set
}

func newCounter(set attribute.Set) *counter { return &counter{set: set} }

func (c *counter) add() { c.n.Add(1) }
