package policy

import (
	"reflect"
	"strconv"
	"strings"
)

// Change is one field of a rule before and after, as a person reads it; "" for one that is absent. It tells no secret.
type Change struct {
	// Path is the field's on the wire, for example "retry.backoff.cap".
	Path          string
	Before, After string
}

// Changes lists the fields in which two rules differ, in the order of the contract's table. Name and revision are none of them. Nil
// stands for a rule that is not there.
func Changes(before, after *Rule) []Change {
	was, is := shownFields(before), shownFields(after)
	var out []Change
	for i := range was {
		if was[i].Value != is[i].Value || was[i].differs(&is[i]) {
			out = append(out, Change{was[i].paths(&is[i]), was[i].Value, is[i].Value})
		}
	}
	return out
}

// shown is a field of a rule and its text.
type shown struct {
	Leaf
	value any // tells fields apart whose texts are equal: of a secret the text has only the length
}

func (s *shown) differs(t *shown) bool { return !reflect.DeepEqual(s.value, t.value) }

// paths is the name of the field; of a oneof that changed its member both names.
func (s *shown) paths(t *shown) string {
	if s.Value == "" || s.Path == t.Path {
		return t.Path
	}
	if t.Value == "" {
		return s.Path
	}
	return s.Path + " → " + t.Path
}

// shownFields lists every field there is.
func shownFields(r *Rule) []shown {
	if r == nil {
		r = new(Rule)
	}
	field := func(path, text string) shown { return shown{Leaf: Leaf{Path: path, Value: text}, value: text} }
	out := []shown{field("description", r.Description), field("priority", ""), field("mode", "")}
	if r.Priority != 0 {
		out[1] = field("priority", strconv.Itoa(int(r.Priority)))
	}
	if r.Off {
		out[2] = field("mode", "POLICY_MODE_OFF")
	}
	for field, value := range reflect.ValueOf(&r.Match).Elem().Fields() {
		out = append(out, shownLeaf(r, "match."+field.Tag.Get("leaf"), value))
	}
	for _, l := range settingsLeaves() {
		v := l.in(&r.Settings)
		out = append(out, shownLeaf(r, l.nameOf(v), v))
	}
	return out
}

func shownLeaf(r *Rule, path string, v reflect.Value) shown {
	s := shown{Leaf: Leaf{Path: path}}
	if isSet(v) {
		s.Value, s.value = showSparse(&r.Settings, path, v), v.Interface()
	}
	return s
}

// showSparse writes one leaf of a rule.
func showSparse(s *Settings, path string, v reflect.Value) string {
	if text, ok := showGuarded(s, path, v); ok {
		return text
	}
	if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		return showMember(v.Elem())
	}
	return showValue(v)
}

// showMember writes a oneof, whose path says which member it is.
func showMember(oneof reflect.Value) string {
	for _, member := range oneof.Fields() {
		if member.IsNil() {
			continue
		}
		if block := member.Elem(); block.Kind() == reflect.Struct {
			return showBlock(block)
		}
		return showValue(member)
	}
	return ""
}

// showBlock writes the fields of a block that are set.
func showBlock(block reflect.Value) string {
	var parts []string
	for field, value := range block.Fields() {
		if isSet(value) {
			parts = append(parts, field.Tag.Get("leaf")+" "+showValue(value))
		}
	}
	if parts == nil {
		return "defaults"
	}
	return strings.Join(parts, ", ")
}
