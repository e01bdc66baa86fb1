package policy

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sallyport/sallyport/call"
)

// memoLimit bounds the Effective values a table keeps. Callers choose paths and methods and so which rules meet; past the limit
// all of them are dropped and made anew.
const memoLimit = 1024

// Options are what a table takes from its process.
type Options struct {
	// Generations counts the tables of the process; Compile takes the next number. Nil: the table has generation 0.
	Generations *atomic.Uint64
	// Secrets are what the rules refer to; a reference that leads nowhere is refused. Nil: a table to look at, whose calls would go
	// out without credentials.
	Secrets Secrets
}

// Table is a compiled set of rules. It never changes but for what it remembers, and is safe for concurrent use.
type Table struct {
	generation uint64
	leaves     []leaf
	secrets    Secrets
	rules      []*Rule // those that take part in matching, in the order of lessWithin
	fallback   []*Rule // policies/default when one is given, then the built-in one
	index      *index
	scoped     *index // the rules with a path prefix, without the rest of their match

	mu   sync.RWMutex          // protects the fields below
	memo map[string]*Effective // by the matched rules in their order
}

// Compile makes a table. The rules must not change afterwards. The error is an [*InvalidError].
func Compile(rules []Rule, opt Options) (*Table, error) {
	problems := Check(rules)
	if opt.Secrets != nil {
		problems = append(problems, CheckSecrets(rules, opt.Secrets)...)
	}
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	t := &Table{leaves: settingsLeaves(), secrets: opt.Secrets, memo: map[string]*Effective{}}
	if opt.Generations != nil {
		t.generation = opt.Generations.Add(1)
	}
	var scoped []*Rule
	switched := switchable(t.leaves)
	for i := range rules {
		if rules[i].Off {
			continue
		}
		r := withEnabled(rules[i], switched)
		if r.Name == DefaultName {
			t.fallback = append(t.fallback, r)
			continue
		}
		t.rules = append(t.rules, r)
		if r.Match.PathPrefix != "" {
			scoped = append(scoped, &Rule{Match: Match{Hosts: r.Match.Hosts}})
		}
	}
	t.fallback = append(t.fallback, builtin())
	slices.SortFunc(t.rules, lessWithin)
	t.index, t.scoped = newIndex(t.rules), newIndex(scoped)
	return t, nil
}

// Generation is the number of the table within its process.
func (t *Table) Generation() uint64 { return t.generation }

// Match gives the values for a call. The result is shared; it must not be changed.
func (t *Table) Match(c *call.Call) *Effective {
	var found [32]uint32
	ids := t.index.find(found[:0], c)
	var buf [4 * len(found)]byte
	key := buf[:0]
	for _, id := range ids {
		key = binary.LittleEndian.AppendUint32(key, id)
	}
	t.mu.RLock()
	e := t.memo[string(key)]
	t.mu.RUnlock()
	if e != nil {
		return e
	}
	return t.keepIfNew(string(key), t.effective(ids))
}

// Resolve gives what Match gives and remembers nothing: questions about calls nobody makes must not push out the answers for
// those that are made.
func (t *Table) Resolve(c *call.Call) *Effective {
	return t.effective(t.index.find(nil, c))
}

// Default gives the values where no policy matches but policies/default.
func (t *Table) Default() *Effective {
	t.mu.RLock()
	e := t.memo[""] // the key of no rules
	t.mu.RUnlock()
	if e != nil {
		return e
	}
	return t.keepIfNew("", t.effective(nil))
}

// PathScoped reports whether a policy with a path prefix covers a host (spelled as in [call.Target]), whatever else it matches:
// there a path must have one reading only (contract §1: no %2f, no %5c).
func (t *Table) PathScoped(host string) bool {
	c := call.Call{Target: call.Target{Host: host}}
	c.Target.Address, _ = literal(host)
	var found [1]uint32
	return len(t.scoped.find(found[:0], &c)) > 0
}

// keepIfNew remembers e unless another call was first; all calls with one set of rules share one value.
func (t *Table) keepIfNew(key string, e *Effective) *Effective {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first := t.memo[key]; first != nil {
		return first
	}
	if len(t.memo) >= memoLimit {
		clear(t.memo)
	}
	t.memo[key] = e
	return e
}

// effective merges the rules found, then policies/default, then the built-in table.
func (t *Table) effective(ids []uint32) *Effective {
	rules := make([]*Rule, 0, len(ids)+len(t.fallback))
	for _, id := range ids {
		rules = append(rules, t.rules[id])
	}
	rules = append(rules, t.fallback...)
	settings, sources, setBy := merge(rules, t.leaves)
	e := flatten(settings, t.leaves, setBy, t.secrets)
	e.Policy = rules[0].ID()
	e.Generation = t.generation
	e.table = t
	e.Sources = sources
	e.shared = madeShared{of: e, settings: newShared(e)}
	return e
}
