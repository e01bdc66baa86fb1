package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"buf.build/go/protovalidate"
	"buf.build/go/protoyaml"
	"go.yaml.in/yaml/v3"

	sallyportv1 "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// LoadPolicyFile reads policies in YAML or in the JSON form of protobuf, field names in snake_case or camelCase. The rules have
// revision 1 and come from the start-up file.
//
// The error has one line for each thing that is wrong, "FILE:LINE:COLUMN: policies[0].retry.backoff.base: cause and fix". Further
// checks add what the rules alone do not tell.
func LoadPolicyFile(path string, checks ...func([]policy.Rule) []policy.Problem) ([]policy.Rule, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	return parsePolicies(path, data, checks...)
}

// ReadPolicyFile is [LoadPolicyFile] for who sends the policies to a broker: it gives them as they are written.
func ReadPolicyFile(path string) ([]*sallyportv1.Policy, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	return ParsePolicyFile(path, data)
}

// ParsePolicyFile is [ReadPolicyFile] of a text; name stands in its errors.
func ParsePolicyFile(name string, data []byte) ([]*sallyportv1.Policy, error) {
	file, _, err := parsePolicyFile(name, data)
	return file.GetPolicies(), err
}

// parsePolicies reads the text of a policy file; name stands in its errors.
func parsePolicies(name string, data []byte, checks ...func([]policy.Rule) []policy.Problem) ([]policy.Rule, error) {
	_, rules, err := parsePolicyFile(name, data, checks...)
	return rules, err
}

func parsePolicyFile(name string, data []byte, checks ...func([]policy.Rule) []policy.Problem) (*sallyportv1.PolicyFile, []policy.Rule, error) {
	if json.Valid(data) {
		// YAML knows no tab between tokens. In JSON a tab is never part of a value (RFC 8259 §7), and a blank keeps the columns.
		data = bytes.ReplaceAll(data, []byte{'\t'}, []byte{' '})
	}
	root, err := singleDocument(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s:%w", name, err)
	}
	file := new(sallyportv1.PolicyFile)
	found := newFindings(name, root, file.ProtoReflect().Descriptor())
	found.addDecoding(protoyaml.Unmarshal(withLines(data, lastLine(root)), file))
	found.addViolations(protovalidate.Validate(file), file.ProtoReflect().Descriptor())

	rules := make([]policy.Rule, len(file.GetPolicies()))
	for i, p := range file.GetPolicies() {
		rules[i] = policyRule(p)
		rules[i].Revision, rules[i].File = 1, true
	}
	for _, check := range append(checks, policy.Check) {
		for _, p := range check(rules) {
			found.add(fmt.Sprintf("policies[%d].%s", p.Rule, p.Path), p.Text)
		}
	}
	if err := found.err(); err != nil {
		return nil, nil, err
	}
	return file, rules, nil
}

// singleDocument reads the tree of the text. One without a list of policies is refused: a file that was cut short, by a full disk or in
// the middle of writing, must not read as "no policies". A second document would be dropped without a word by every decoder here.
func singleDocument(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, errors.New(noPolicies)
	case err != nil:
		return nil, syntaxError(err)
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, syntaxError(err)
	default:
		return nil, fmt.Errorf("%d:%d: a second document begins here: put all policies into one list", second.Line, second.Column)
	}
	if len(document.Content) == 0 || document.Content[0].Tag == "!!null" {
		return nil, errors.New(noPolicies)
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf(`%d:%d: write "policies:" and a list of policies below it`, root.Line, root.Column)
	}
	if len(root.Content) == 0 {
		return nil, errors.New(noPolicies)
	}
	return root, nil
}

const noPolicies = `1:1: nothing in it: write "policies:" and a list of policies below it, or "policies: []" for none`

// withLines gives the text as many lines as its tree speaks of. The decoder quotes the line of an error and takes a line for what
// ends in LF. YAML ends lines in CR and others too, and places an absent value behind the last one: without the lines it counts on,
// the decoder panics. The document is ended first (YAML 1.2 §9.1.2), or the absent value would move behind the new lines as well.
func withLines(data []byte, last int) []byte {
	missing := last - 1 - bytes.Count(data, []byte{'\n'})
	if missing <= 0 {
		return data
	}
	return slices.Concat(data, []byte("\n...\n"), bytes.Repeat([]byte{'\n'}, missing))
}

// lastLine is the greatest line number in a tree.
func lastLine(node *yaml.Node) int {
	last := node.Line
	for _, child := range node.Content {
		last = max(last, lastLine(child))
	}
	return last
}

// syntaxError gives an error of the YAML reader the form of all others; it knows the line alone.
func syntaxError(err error) error {
	line := 1
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if _, scanErr := fmt.Sscanf(text, "line %d:", &line); scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	return fmt.Errorf("%d:1: %s", line, strings.ReplaceAll(text, "\n", " "))
}
