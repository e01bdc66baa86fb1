// Package docs_test holds the documents to what the code does.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// row is a line of a field table: | `path` | default | meaning |.
var row = regexp.MustCompile("(?m)^\\| `([a-z_.]+\\.[a-z_]+|credentials)` \\| ([^|]*) \\|(.*)\\|$")

// field is what the reference says of one.
type field struct {
	value   string
	meaning string
}

func reference(t *testing.T) map[string]field {
	t.Helper()
	text, err := os.ReadFile("policies.md")
	if err != nil {
		t.Fatal(err)
	}
	fields := make(map[string]field)
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		value, _, _ := strings.Cut(m[2], " (")
		if _, twice := fields[m[1]]; twice {
			t.Errorf("%s stands there twice", m[1])
		}
		fields[m[1]] = field{value: value, meaning: strings.TrimSpace(m[3])}
	}
	return fields
}

func compile(t *testing.T, rules []policy.Rule) *policy.Table {
	t.Helper()
	table, err := policy.Compile(rules, policy.Options{Generations: new(atomic.Uint64)})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestReferenceGivesEveryFieldItsDefault(t *testing.T) {
	fields := reference(t)
	target, err := call.ParseTarget("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range compile(t, nil).Resolve(&call.Call{Method: "GET", Target: target}).Leaves() {
		got, ok := fields[leaf.Path]
		if !ok {
			t.Errorf("%s is missing", leaf.Path)
		} else if got.value != leaf.Value {
			t.Errorf("%s: the reference says %q, the default is %q", leaf.Path, got.value, leaf.Value)
		}
		delete(fields, leaf.Path)
	}
	for path := range fields { // the other members of a choice have no default
		if path != "budget.token_bucket" && path != "hedge.delay" {
			t.Errorf("%s is no field", path)
		}
	}
}

func TestEveryPolicyInTheDocumentsLints(t *testing.T) {
	block := regexp.MustCompile("(?s)\n```yaml\n(policies:\n.*?\n)```\n")
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, document := range append(documents, "../README.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			found++
			file := filepath.Join(t.TempDir(), "policies.yaml")
			if err := os.WriteFile(file, []byte(m[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			rules, err := broker.LoadPolicyFile(file)
			if err != nil {
				t.Errorf("%s: %v", document, err)
			}
			compile(t, rules)
		}
	}
	if found < 3 {
		t.Errorf("found %d policies in the documents", found)
	}
}

// A link to a file or a heading that is not there sends a reader nowhere.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[a-z0-9-]+)?\)`)
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Glob("../examples/*/README.md")
	if err != nil || len(examples) < 2 {
		t.Fatalf("the examples have %d READMEs: %v", len(examples), err)
	}
	for _, document := range slices.Concat(documents, examples, []string{"../README.md"}) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := document
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(document), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", document, err)
				continue
			}
			if m[2] != "" && !slices.Contains(headings(t, target), m[2]) {
				t.Errorf("%s: %s has no heading %s", document, target, m[2])
			}
		}
	}
}

// headings are the anchors of a document, as the usual viewers make them.
func headings(t *testing.T, document string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	dropped := regexp.MustCompile(`[^a-z0-9 _-]`)
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, "#"+strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}
