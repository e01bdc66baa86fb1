package policy

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Warnings tells what is legal and looks like an error in the rule of that name, among all that are in force with it.
func Warnings(rules []Rule, name string) []string {
	at := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == name })
	if at < 0 {
		return nil
	}
	r := &rules[at]
	var out []string
	if text := marginWarning(rules, r); text != "" {
		out = append(out, text)
	}
	for i := range rules {
		if i != at && !r.Off && !rules[i].Off && duplicates(&rules[i], r) {
			out = append(out, rules[i].Name+" sets the same for the same calls: one of the two is enough")
		}
	}
	return out
}

// marginWarning compares the margin with the timeout of callers that send none. What the rule leaves out it has from
// policies/default: a rule between the two may say otherwise, but then it is that rule's call.
func marginWarning(rules []Rule, r *Rule) string {
	value := func(of func(*DeadlineRule) *time.Duration) time.Duration {
		if d := of(&r.Deadline); d != nil {
			return *d
		}
		for i := range rules {
			if d := of(&rules[i].Deadline); rules[i].Name == DefaultName && d != nil {
				return *d
			}
		}
		if d := of(&builtin().Deadline); d != nil {
			return *d
		}
		return 0
	}
	if r.Deadline.CallerMargin == nil && r.Deadline.DefaultTimeout == nil {
		return ""
	}
	margin := value(func(d *DeadlineRule) *time.Duration { return d.CallerMargin })
	timeout := value(func(d *DeadlineRule) *time.Duration { return d.DefaultTimeout })
	if margin < timeout {
		return ""
	}
	return fmt.Sprintf("deadline.caller_margin of %s is no less than deadline.default_timeout of %s: calls without a deadline send nothing", showDuration(margin), showDuration(timeout))
}

// duplicates tells whether two rules differ in nothing but their names, descriptions and priorities.
func duplicates(a, b *Rule) bool {
	return reflect.DeepEqual(a.Match, b.Match) && reflect.DeepEqual(a.Settings, b.Settings)
}
