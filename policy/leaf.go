package policy

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// leaf is one settings field: what it is called on the wire and where it stands in [Settings].
type leaf struct {
	path  string // "retry.max_attempts"; a oneof has all its members: "budget.window|token_bucket"
	index []int  // in Settings, for reflect.Value.FieldByIndex
	flat  []int  // in Effective, where the same Go names lead; nil when they lead nowhere
}

// settingsLeaves lists the leaves in the order of the contract's table. The tags are the only list there is of them: merging,
// printing and reading a policy file all walk it, so that a field cannot be forgotten in one of them.
func settingsLeaves() []leaf {
	return appendLeaves(nil, leaf{}, reflect.TypeFor[Settings](), reflect.TypeFor[Effective]())
}

// appendLeaves walks the sparse type and, where it can, the flat one beside it.
func appendLeaves(all []leaf, at leaf, sparse, flat reflect.Type) []leaf {
	for i := range sparse.NumField() {
		f := sparse.Field(i)
		l := leaf{
			path:  strings.TrimPrefix(at.path+"."+f.Tag.Get("leaf"), "."),
			index: append(slices.Clone(at.index), i),
		}
		var counterpart reflect.Type
		if flat != nil && flat.Kind() == reflect.Struct {
			if g, ok := flat.FieldByName(f.Name); ok {
				counterpart, l.flat = g.Type, append(slices.Clone(at.flat), g.Index...)
			}
		}
		if f.Type.Kind() == reflect.Struct {
			all = appendLeaves(all, l, f.Type, counterpart)
			continue
		}
		all = append(all, l)
	}
	return all
}

// in is the leaf's place in one rule's settings.
func (l *leaf) in(s *Settings) reflect.Value {
	return reflect.ValueOf(s).Elem().FieldByIndex(l.index)
}

// nameOf is the leaf's path, of a oneof the path of the member that is set.
func (l *leaf) nameOf(v reflect.Value) string {
	parent, members := "", l.path
	if i := strings.LastIndexByte(l.path, '.'); i >= 0 {
		parent, members = l.path[:i+1], l.path[i+1:]
	}
	if !strings.Contains(members, "|") || v.IsNil() {
		return l.path
	}
	for i, name := range strings.Split(members, "|") {
		if !v.Elem().Field(i).IsNil() {
			return parent + name
		}
	}
	return l.path
}

// isSet reports whether a leaf is there: an empty list is absent, since protobuf cannot tell it from one that is.
func isSet(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer {
		return !v.IsNil()
	}
	return v.Len() > 0
}

// merge takes every leaf from the first rule that sets it. The last rule is the built-in one; a leaf that it leaves open too
// is unset and counts as its.
func merge(rules []*Rule, leaves []leaf) (*Settings, map[string]Source, map[string]*Rule) {
	out := new(Settings)
	sources := make(map[string]Source, len(leaves))
	setBy := make(map[string]*Rule, len(leaves))
	for i := range leaves {
		l := &leaves[i]
		setter, value := rules[len(rules)-1], l.in(out)
		for _, r := range rules {
			if v := l.in(&r.Settings); isSet(v) {
				setter = r
				value.Set(v)
				break
			}
		}
		path := l.nameOf(value)
		sources[path] = Source{Policy: setter.Name, Revision: setter.Revision}
		setBy[path] = setter
	}
	return out, sources, setBy
}

// withEnabled gives a rule that mentions a block with an "enabled" leaf that leaf, true unless the rule says otherwise: to
// write the block is to switch it on.
//
// The leaves are those of [switchable] blocks: a table of thousands of rules is made at every write.
func withEnabled(r Rule, leaves []leaf) *Rule {
	present := map[string]bool{}
	for i := range leaves {
		if isSet(leaves[i].in(&r.Settings)) {
			block, _ := splitLast(leaves[i].path)
			present[block] = true
		}
	}
	for i := range leaves {
		block, name := splitLast(leaves[i].path)
		if v := leaves[i].in(&r.Settings); name == "enabled" && present[block] && v.IsNil() {
			v.Set(reflect.ValueOf(new(true)))
		}
	}
	return &r
}

// switchable picks the leaves of blocks that have one named "enabled".
func switchable(leaves []leaf) []leaf {
	blocks := map[string]bool{}
	for i := range leaves {
		if block, name := splitLast(leaves[i].path); name == "enabled" {
			blocks[block] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(leaves), func(l leaf) bool {
		block, _ := splitLast(l.path)
		return !blocks[block]
	})
}

func splitLast(path string) (block, name string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

// LeafPaths lists the settings fields by their paths on the wire, in the order of the contract's table; a oneof stands once,
// with all its members.
func LeafPaths() []string {
	var paths []string
	for _, l := range settingsLeaves() {
		paths = append(paths, l.path)
	}
	return paths
}

// sortedKeys are the names of a map in a stable order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
