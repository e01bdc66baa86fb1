package policy

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/backoff"
)

// Leaf is one effective value as a person reads it.
type Leaf struct {
	// Path is the leaf's on the wire, for example "retry.max_attempts".
	Path string
	// Value is its text: durations like 1.5s, lists separated by blanks, "unset" for none. It tells no secret.
	Value string
	// Source is the policy that set it.
	Source Source
}

// Leaves lists every value in the order of the contract's table; none for an Effective that no table made.
func (e *Effective) Leaves() []Leaf {
	if e.merged == nil {
		return nil
	}
	var out []Leaf
	for _, l := range settingsLeaves() {
		v := l.in(e.merged)
		path := l.nameOf(v)
		out = append(out, Leaf{Path: path, Value: e.show(path, v), Source: e.Sources[path]})
	}
	return out
}

// Merged is the values as a rule: each leaf as the policy that set it has it. Its name and revision are those of [Effective.Policy].
func (e *Effective) Merged() *Rule {
	name, revision, _ := strings.Cut(e.Policy, "@")
	r := &Rule{Name: name}
	r.Revision, _ = strconv.ParseUint(revision, 10, 64) // a table wrote it
	if e.merged != nil {
		r.Settings = *e.merged
	}
	return r
}

// show writes one leaf. The limit of the budget is shown as it counts, with the defaults of what the policy left out.
func (e *Effective) show(path string, v reflect.Value) string {
	if !isSet(v) {
		return "unset"
	}
	if text, ok := showGuarded(e.merged, path, v); ok {
		return text
	}
	switch path {
	case "budget.window":
		w := e.Budget.Window
		return fmt.Sprintf("ratio %v, period %s, min_per_second %v", w.Ratio, showDuration(w.Period), w.MinPerSecond)
	case "budget.token_bucket":
		b := e.Budget.TokenBucket
		return fmt.Sprintf("max_tokens %v, token_ratio %v, rule %s", b.MaxTokens, b.TokenRatio, showPlain(b.Rule))
	case "hedge.delay":
		return showDuration(e.Hedge.Delay)
	case "hedge.percentile":
		return showPlain(e.Hedge.Percentile)
	}
	return showValue(v)
}

// showGuarded writes the leaves that may hold more than a person is to read.
func showGuarded(s *Settings, path string, v reflect.Value) (string, bool) {
	switch path {
	case "egress.tls.ca_pem":
		return hidden(v.Elem().String()), true
	case "headers.set":
		return showSet(s.Headers.Set), true
	case "credentials":
		return showCredentials(s.Credentials), true
	}
	return "", false
}

// showValue writes a leaf that is set and no oneof.
func showValue(v reflect.Value) string {
	if codes, ok := reflect.TypeAssert[[]uint32](v); ok {
		return showNumbers(codes)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return showPlain(v.Elem().Interface())
	case reflect.String:
		return showPlain(v.Interface())
	}
	texts := make([]string, v.Len())
	for i := range texts {
		texts[i] = showPlain(v.Index(i).Interface())
	}
	return strings.Join(texts, " ")
}

// showPlain writes one value; enum names are the wire's.
func showPlain(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return showDuration(v)
	case string:
		if v == "" {
			return `""`
		}
		return v
	case Protocol:
		return enumName(int(v), "PROTOCOL_UNSPECIFIED", "PROTOCOL_HTTP_1_1", "PROTOCOL_HTTP_2")
	case backoff.Jitter:
		return enumName(int(v), "JITTER_UNSPECIFIED", "JITTER_FULL", "JITTER_NONE", "JITTER_EQUAL", "JITTER_PROPORTIONAL")
	case TLSVersion:
		return enumName(int(v), "TLS_VERSION_UNSPECIFIED", "TLS_VERSION_1_2", "TLS_VERSION_1_3")
	case TokenRule:
		return enumName(int(v), "TOKEN_RULE_UNSPECIFIED", "TOKEN_RULE_HALF", "TOKEN_RULE_PER_RETRY")
	}
	return fmt.Sprint(v)
}

func enumName(i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return strconv.Itoa(i)
	}
	return names[i]
}

// showDuration drops the zero tail of time.Duration's form: 1h and not 1h0m0s.
func showDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// showNumbers writes runs of three and more as first-last.
func showNumbers(n []uint32) string {
	var parts []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if j-i < 2 {
			j = i
			parts = append(parts, strconv.FormatUint(uint64(n[i]), 10))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", n[i], n[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, " ")
}

// showSet writes the policy's own fields; a value whose name speaks of a secret is only counted.
func showSet(set map[string]string) string {
	var parts []string
	for _, name := range sortedKeys(set) {
		value := showPlain(set[name])
		if speaksOfSecret(name) {
			value = hidden(set[name])
		}
		parts = append(parts, name+": "+value)
	}
	return strings.Join(parts, ", ")
}

// showCredentials names the field and the file; a prefix may hold a part of the secret and is only counted.
func showCredentials(all []Credential) string {
	var parts []string
	for _, c := range all {
		text := fmt.Sprintf("%s from %s", c.Header, c.Secret)
		if c.Prefix != "" {
			text += " after a prefix of " + hidden(c.Prefix)
		}
		if len(c.Hosts) > 0 {
			text += " for " + strings.Join(c.Hosts, " ")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// speaksOfSecret follows the list of names that no redirect carries to another origin (semantics.md §9).
func speaksOfSecret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"key", "token", "secret", "auth", "password", "signature", "cookie"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

func hidden(s string) string {
	if s == "" {
		return `""`
	}
	return fmt.Sprintf("(%d bytes)", len(s))
}
