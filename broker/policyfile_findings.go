package broker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"buf.build/go/protovalidate"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// findings gathers what is wrong with a policy file, each with its place in the text. The decoder, the constraints of the proto and
// the checks of package policy each know a part: a position, a field path, a rule number. The tree of the text joins them.
type findings struct {
	file   string
	places map[string]place // of every field that is there, by its path
	paths  map[place]string // the other way round; of two fields at one place the inner one
	list   []finding
}

// place is a position in the text, from 1.
type place struct{ line, column int }

type finding struct {
	at         place
	path, text string
}

func newFindings(file string, root *yaml.Node, message protoreflect.MessageDescriptor) *findings {
	f := &findings{file: file, places: map[string]place{"": {1, 1}}, paths: map[place]string{}}
	f.walk(root, message, "")
	return f
}

// walk records where the fields of a message stand, and finds what the decoder lets pass: a name written twice (the last one would
// win), a field by its number, and two members of a oneof.
func (f *findings) walk(node *yaml.Node, message protoreflect.MessageDescriptor, path string) {
	if node.Kind != yaml.MappingNode {
		return
	}
	seen := map[protoreflect.FullName]string{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		fd := message.Fields().ByJSONName(key.Value)
		if fd == nil {
			fd = message.Fields().ByTextName(key.Value)
		}
		if fd == nil {
			sub := join(path, key.Value)
			f.record(sub, key)
			if isNumber(key.Value) {
				f.add(sub, "unknown field: write its name")
			}
			continue
		}
		sub := join(path, string(fd.Name()))
		f.record(sub, key)
		once := fd.FullName()
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			once = o.FullName()
		}
		if other, twice := seen[once]; twice {
			f.add(sub, fmt.Sprintf("only one of %s may be set, and %s is: remove one", oneOf(fd), other))
		}
		seen[once] = string(fd.Name())
		f.walkValue(value, fd, sub)
	}
}

func (f *findings) walkValue(value *yaml.Node, fd protoreflect.FieldDescriptor, path string) {
	switch {
	case value.Tag == "!!null":
		// The decoder takes it for a text, or for an absent block where its author may have meant an empty one.
		f.record(path, value)
		f.add(path, "has no value: write one ({} for an empty block), or leave the field out to inherit")
	case fd.IsMap() && value.Kind == yaml.MappingNode:
		seen := map[string]bool{}
		for i := 0; i+1 < len(value.Content); i += 2 {
			key := value.Content[i]
			sub := fmt.Sprintf("%s[%q]", path, key.Value)
			f.record(sub, key)
			f.paths[place{value.Content[i+1].Line, value.Content[i+1].Column}] = sub
			if seen[key.Value] {
				f.add(sub, "is there twice: remove one")
			}
			seen[key.Value] = true
		}
	case fd.IsList() && value.Kind == yaml.SequenceNode:
		f.paths[place{value.Line, value.Column}] = path
		for i, element := range value.Content {
			sub := fmt.Sprintf("%s[%d]", path, i)
			f.record(sub, element)
			if fd.Message() != nil {
				f.walk(element, fd.Message(), sub)
			}
		}
	case fd.Message() != nil && !fd.IsList() && value.Kind == yaml.MappingNode:
		f.paths[place{value.Line, value.Column}] = path
		f.walk(value, fd.Message(), path)
	default:
		f.record(path, value)
	}
}

func (f *findings) record(path string, node *yaml.Node) {
	f.places[path] = place{node.Line, node.Column}
	f.paths[f.places[path]] = path
}

// add notes a problem unless the field has one already: the first to speak knows most.
func (f *findings) add(path, text string) {
	for _, other := range f.list {
		if other.path == path {
			return
		}
	}
	f.list = append(f.list, finding{f.nearest(path), path, text})
}

// nearest is the place of a field, or of what it would stand in when it is missing.
func (f *findings) nearest(path string) place {
	for {
		if at, ok := f.places[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// addDecoding notes what the decoder says. Its errors are of an unexported type whose text begins with ":LINE:COLUMN " (there is no
// other way to the position) and which wraps the cause.
func (f *findings) addDecoding(err error) {
	if err == nil {
		return
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // the outermost one is meant
		all = joined.Unwrap()
	}
	for _, e := range all {
		var at place
		cause := errors.Unwrap(e)
		if _, scanErr := fmt.Sscanf(e.Error(), ":%d:%d", &at.line, &at.column); scanErr != nil || cause == nil {
			f.add("", e.Error())
			continue
		}
		if strings.Contains(cause.Error(), "already set for oneof") {
			continue // walk has said so, and names the field
		}
		path := f.paths[at]
		if _, there := f.places[path]; !there || path == "" {
			f.list = append(f.list, finding{at, path, cause.Error()})
			continue
		}
		f.add(path, decodingProblem(path, cause.Error()))
	}
}

// decodingProblem is what the decoder says, but for a status that is none: a text is taken for a size there, and its units are named.
func decodingProblem(path, cause string) string {
	if strings.Contains(path, "_statuses[") || strings.Contains(path, ".statuses[") {
		return "write a number such as 503, and a range as all of its numbers"
	}
	return cause
}

// addViolations notes what the constraints of the proto say.
func (f *findings) addViolations(err error, message protoreflect.MessageDescriptor) {
	var invalid *protovalidate.ValidationError
	switch {
	case err == nil:
	case !errors.As(err, &invalid):
		f.add("", err.Error())
	default:
		for _, v := range invalid.Violations {
			switch v.Proto.GetRuleId() {
			case "policies.unique", "proxy.syntax":
				continue // policy.Check says it with the name and its place, and what of the proxy is to be mended
			}
			f.add(violationPath(v, message), v.Proto.GetMessage())
		}
	}
}

// violationPath is the field a violation speaks of. A rule over a whole message has an id that begins with the name of the field
// (policy.proto): the path of the message is then not the whole path.
func violationPath(v *protovalidate.Violation, message protoreflect.MessageDescriptor) string {
	for _, element := range v.Proto.GetField().GetElements() {
		if message != nil {
			if fd := message.Fields().ByNumber(protoreflect.FieldNumber(element.GetFieldNumber())); fd != nil {
				message = fd.Message()
			}
		}
	}
	path := protovalidate.FieldPathString(v.Proto.GetField())
	first, _, _ := strings.Cut(v.Proto.GetRuleId(), ".")
	if message != nil && message.Fields().ByName(protoreflect.Name(first)) != nil {
		path = join(path, first)
	}
	return path
}

// err is one line for each finding, in the order of the text; nil without any. Names and values of the file may stand in it, and a
// quoted one of them may hold line ends.
func (f *findings) err() error {
	slices.SortStableFunc(f.list, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.at.line, b.at.line), cmp.Compare(a.at.column, b.at.column))
	})
	lines := make([]error, len(f.list))
	for i, x := range f.list {
		subject := x.path
		if subject != "" {
			subject += ": "
		}
		lines[i] = fmt.Errorf("%s:%d:%d: %s", f.file, x.at.line, x.at.column, oneLine.Replace(subject+x.text))
	}
	return errors.Join(lines...)
}

// oneLine keeps a text on its line, also on a terminal.
var oneLine = strings.NewReplacer("\n", " ", "\r", " ")

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// oneOf names a field, or all members of the oneof it belongs to.
func oneOf(fd protoreflect.FieldDescriptor) string {
	o := fd.ContainingOneof()
	if o == nil || o.IsSynthetic() {
		return string(fd.Name())
	}
	names := make([]string, o.Fields().Len())
	for i := range names {
		names[i] = string(o.Fields().Get(i).Name())
	}
	return strings.Join(names, " and ")
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
