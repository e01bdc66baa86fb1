package docs_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// protoField is a field of a policy as proto/ has it, with the comment above it.
type protoField struct{ name, kind, comment string }

var (
	messageLine = regexp.MustCompile(`^message (\w+) \{`)
	fieldLine   = regexp.MustCompile(`^ +(?:repeated |optional )?([\w.]+|map<[^>]+>) (\w+) = \d+`)
	commentLine = regexp.MustCompile(`^ +// ?(.*)$`)
)

// policyMessages reads the messages of policy.proto. They are flat but for choices, and a field ends with its number on one line,
// which buf format sees to.
func policyMessages(t *testing.T) map[string][]protoField {
	t.Helper()
	text, err := os.ReadFile("../proto/sallyport/v1/policy.proto")
	if err != nil {
		t.Fatal(err)
	}
	messages := map[string][]protoField{}
	var message, comment string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if m := messageLine.FindStringSubmatch(line); m != nil {
			message, comment = m[1], ""
		} else if m := commentLine.FindStringSubmatch(line); m != nil {
			comment = strings.TrimSpace(comment + " " + m[1])
		} else if m := fieldLine.FindStringSubmatch(line); m != nil {
			messages[message] = append(messages[message], protoField{name: m[2], kind: m[1], comment: comment})
			comment = ""
		} else if line == "}" {
			message, comment = "", ""
		}
	}
	return messages
}

// whole are the messages that a policy sets as one, and whose fields one row describes.
func whole(kind string) bool {
	return slices.Contains([]string{"WindowBudget", "TokenBucketBudget", "Credential"}, kind)
}

// leaves are the fields of a policy's blocks by their paths.
func leaves(t *testing.T, messages map[string][]protoField, message, path string) map[string]protoField {
	t.Helper()
	all := map[string]protoField{}
	for _, f := range messages[message] {
		at := strings.TrimPrefix(path+"."+f.name, ".")
		if messages[f.kind] == nil || whole(f.kind) {
			all[at] = f
			continue
		}
		maps.Copy(all, leaves(t, messages, f.kind, at))
	}
	return all
}

func TestEveryFieldOfEveryPolicyMessageIsDescribed(t *testing.T) {
	messages := policyMessages(t)
	fields := reference(t)
	text, err := os.ReadFile("policies.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for path, f := range leaves(t, messages, "Policy", "") {
		found++
		if f.comment == "" {
			t.Errorf("%s has no comment in proto/", path)
		}
		block, name, inBlock := strings.Cut(path, ".")
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(path) + "`.*\\| *([^|]+?) *\\|$").FindString(string(text))
		switch {
		case inBlock && block == "match":
			row = regexp.MustCompile("(?m)^\\| `" + name + "` \\| [^|]{5,} \\|$").FindString(string(text))
		case !inBlock && !whole(f.kind): // etag, revision and times are the broker's, not a file's
			if slices.Contains([]string{"etag", "revision", "create_time", "update_time", "read_only"}, path) {
				continue
			}
			row = regexp.MustCompile("(?m)^\\| `" + path + "` \\| [^|]{5,} \\| [^|]*\\|$").FindString(string(text))
		case inBlock && fields[path].meaning == "":
			t.Errorf("policies.md does not say what %s means", path)
		}
		if row == "" {
			t.Errorf("policies.md has no row for %s", path)
		}
		for _, part := range messages[f.kind] {
			if whole(f.kind) && !strings.Contains(row, part.name) {
				t.Errorf("policies.md: the row of %s does not name its %s", path, part.name)
			}
		}
	}
	if found < 90 {
		t.Errorf("found %d fields", found)
	}
}

// defaultIn is what a comment says of the default, up to the end of the sentence or to what other values mean.
var defaultIn = regexp.MustCompile(`Default (.+?)(?: alone)?(?:[;:,(]|\. |\.$| when |$)`)

func TestReferenceAndProtoAgreeOnDefaults(t *testing.T) {
	fields := reference(t)
	compared := 0
	for path, f := range leaves(t, policyMessages(t), "Policy", "") {
		m := defaultIn.FindStringSubmatch(f.comment)
		if m == nil || fields[path].value == "" {
			continue
		}
		said, ok := plainValue(m[1])
		// enabled means something else where its block is not written, and a deferred call waits longer than a retry does.
		if !ok || strings.HasSuffix(path, ".enabled") || strings.HasPrefix(path, "deferred.backoff.") {
			continue
		}
		compared++
		if value, _ := plainValue(fields[path].value); value != said {
			t.Errorf("%s: proto/ says %q, policies.md %q", path, m[1], fields[path].value)
		}
	}
	if compared < 50 {
		t.Errorf("compared %d defaults", compared)
	}
}

// plainValue is a value in one spelling: durations by length, sizes in bytes, status ranges by each. What is told in
// words is no plain value.
func plainValue(s string) (string, bool) {
	s = strings.TrimSpace(s)
	switch s {
	case "empty", `""`, "none", "unset":
		return "unset", true
	}
	if d, err := time.ParseDuration(s); err == nil {
		return d.String(), true
	}
	if n, ok := strings.CutSuffix(s, " MiB"); ok {
		size, err := strconv.Atoi(n)
		return strconv.Itoa(size << 20), err == nil
	}
	if n, ok := strings.CutSuffix(s, " KiB"); ok {
		size, err := strconv.Atoi(n)
		return strconv.Itoa(size << 10), err == nil
	}
	var parts []string
	for part := range strings.FieldsSeq(strings.ReplaceAll(s, "–", "-")) {
		low, high, isRange := strings.Cut(part, "-")
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		switch {
		case isRange && err1 == nil && err2 == nil:
			for n := from; n <= to; n++ {
				parts = append(parts, strconv.Itoa(n))
			}
		case regexp.MustCompile(`^([0-9.]+|true|false|[A-Z][A-Z0-9_]+)$`).MatchString(part):
			parts = append(parts, part)
		default:
			return s, false
		}
	}
	return strings.Join(parts, " "), true
}
