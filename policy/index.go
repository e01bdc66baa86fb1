package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/call"
)

// index finds the rules that cover a call, in the order of the contract (§5): host (exact, longer wildcard, none), longer path
// prefix, callers set, methods set, ports set, higher priority, smaller name. The first three are lookups, from the most
// specific key to the least; the rest is how each list was sorted when the index was made.
type index struct {
	names     map[string]*hostNode     // exact names
	addresses map[netip.Addr]*hostNode // literal addresses
	wildcards map[string]*hostNode     // "example.com" for *.example.com
	anyHost   hostNode
}

// hostNode holds the rules of one host pattern by path prefix; "" is none.
type hostNode struct {
	prefixes map[string]*pathNode
	longest  int // of the prefixes, so that a long path costs no more than they do
}

// pathNode holds the rules of one host pattern and one prefix.
type pathNode struct {
	callers   map[string][]entry
	anyCaller []entry
}

// entry is one rule and what is left to compare.
type entry struct {
	rule    uint32 // its place in Table.rules
	methods []string
	ports   []uint32
}

// newIndex takes rules in the order that is left within one key (see lessWithin).
func newIndex(rules []*Rule) *index {
	x := &index{
		names:     map[string]*hostNode{},
		addresses: map[netip.Addr]*hostNode{},
		wildcards: map[string]*hostNode{},
	}
	for i, r := range rules {
		e := entry{rule: uint32(i), methods: r.Match.Methods, ports: r.Match.Ports}
		for _, n := range x.nodesOf(r.Match.Hosts) {
			n.add(normalPrefix(r.Match.PathPrefix), r.Match.Callers, e)
		}
	}
	return x
}

// nodesOf makes the nodes of a rule's patterns, each once.
func (x *index) nodesOf(hosts []string) []*hostNode {
	if len(hosts) == 0 {
		return []*hostNode{&x.anyHost}
	}
	nodes := make([]*hostNode, 0, len(hosts))
	taken := make(map[*hostNode]bool, len(hosts))
	for _, pattern := range hosts {
		var n *hostNode
		if a, ok := literal(pattern); ok {
			n = nodeAt(x.addresses, a)
		} else if suffix, wild := strings.CutPrefix(normalHost(pattern), "*."); wild {
			n = nodeAt(x.wildcards, suffix)
		} else {
			n = nodeAt(x.names, suffix)
		}
		if !taken[n] {
			taken[n] = true
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func nodeAt[K comparable](m map[K]*hostNode, key K) *hostNode {
	if m[key] == nil {
		m[key] = &hostNode{}
	}
	return m[key]
}

func (n *hostNode) add(prefix string, callers []string, e entry) {
	if n.prefixes == nil {
		n.prefixes = map[string]*pathNode{}
	}
	p := n.prefixes[prefix]
	if p == nil {
		p = &pathNode{callers: map[string][]entry{}}
		n.prefixes[prefix] = p
	}
	n.longest = max(n.longest, len(prefix))
	if len(callers) == 0 {
		p.anyCaller = append(p.anyCaller, e)
		return
	}
	for _, caller := range slices.Compact(slices.Sorted(slices.Values(callers))) {
		p.callers[caller] = append(p.callers[caller], e)
	}
}

// find appends the rules that cover c, the most specific first. A rule with several patterns for one host comes again at the lesser
// ones; its first place is the one that counts, for what it sets is taken there.
func (x *index) find(ids []uint32, c *call.Call) []uint32 {
	if c.Target.Address.IsValid() {
		ids = x.addresses[c.Target.Address.Unmap()].find(ids, c)
	} else {
		host := c.Target.Host
		ids = x.names[host].find(ids, c)
		for i := strings.IndexByte(host, '.'); i >= 0; {
			rest := host[i+1:]
			ids = x.wildcards[rest].find(ids, c)
			next := strings.IndexByte(rest, '.')
			if next < 0 {
				break
			}
			i += 1 + next
		}
	}
	return x.anyHost.find(ids, c)
}

func (n *hostNode) find(ids []uint32, c *call.Call) []uint32 {
	if n == nil || n.prefixes == nil {
		return ids
	}
	if n.longest > 0 {
		// One byte more than the longest prefix shows whether a segment ends there.
		var buf [256]byte
		path := appendPath(buf[:0], c.Target.Path, n.longest+3)
		for i := min(len(path), n.longest); i > 0; i-- {
			if i == len(path) || path[i] == '/' || i == 1 {
				ids = n.prefixes[string(path[:i])].find(ids, c)
			}
		}
	}
	return n.prefixes[""].find(ids, c)
}

func (p *pathNode) find(ids []uint32, c *call.Call) []uint32 {
	if p == nil {
		return ids
	}
	ids = appendCovering(ids, p.callers[c.Caller], c)
	return appendCovering(ids, p.anyCaller, c)
}

func appendCovering(ids []uint32, entries []entry, c *call.Call) []uint32 {
	for i := range entries {
		e := &entries[i]
		if len(e.methods) > 0 && !slices.Contains(e.methods, c.Method) ||
			len(e.ports) > 0 && !slices.Contains(e.ports, uint32(c.Target.Port)) {
			continue
		}
		ids = append(ids, e.rule)
	}
	return ids
}

// lessWithin orders rules that equal each other in host, prefix and callers.
func lessWithin(a, b *Rule) int {
	return cmp.Or(
		setFirst(len(a.Match.Methods), len(b.Match.Methods)),
		setFirst(len(a.Match.Ports), len(b.Match.Ports)),
		cmp.Compare(b.Priority, a.Priority),
		strings.Compare(a.Name, b.Name),
	)
}

// setFirst orders a list that is there before one that is not.
func setFirst(a, b int) int {
	return cmp.Compare(min(b, 1), min(a, 1))
}
