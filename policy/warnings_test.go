package policy

import (
	"slices"
	"testing"
	"time"
)

func TestWarnings(t *testing.T) {
	deadline := func(margin, timeout time.Duration) Settings {
		s := Settings{}
		if margin > 0 {
			s.Deadline.CallerMargin = new(margin)
		}
		if timeout > 0 {
			s.Deadline.DefaultTimeout = new(timeout)
		}
		return s
	}
	match := Match{Hosts: []string{"api.example.com"}}
	retry := Settings{Retry: RetryRule{MaxAttempts: new(uint32(2))}}
	for _, row := range []struct {
		name  string
		rules []Rule // of the first one
		want  []string
	}{
		{"nothing odd", []Rule{{Name: "policies/a", Settings: retry}}, nil},
		{"a margin just below the timeout", []Rule{{Name: "policies/a", Settings: deadline(time.Second-1, time.Second)}}, nil},
		{
			"a margin at the timeout",
			[]Rule{{Name: "policies/a", Settings: deadline(time.Second, time.Second)}},
			[]string{"deadline.caller_margin of 1s is no less than deadline.default_timeout of 1s: calls without a deadline send nothing"},
		},
		{
			"a margin at the built-in timeout",
			[]Rule{{Name: "policies/a", Settings: deadline(15*time.Second, 0)}},
			[]string{"deadline.caller_margin of 15s is no less than deadline.default_timeout of 15s: calls without a deadline send nothing"},
		},
		{
			"a timeout at the margin of policies/default",
			[]Rule{{Name: "policies/a", Settings: deadline(0, time.Second)}, {Name: DefaultName, Settings: deadline(2*time.Second, 0)}},
			[]string{"deadline.caller_margin of 2s is no less than deadline.default_timeout of 1s: calls without a deadline send nothing"},
		},
		{
			"somebody else's margin", []Rule{{Name: "policies/a", Settings: retry}, {Name: DefaultName, Settings: deadline(20*time.Second, 0)}}, nil,
		},
		{
			"a duplicate",
			[]Rule{{Name: "policies/a", Match: match, Settings: retry}, {Name: "policies/b", Match: match, Settings: retry, Priority: 1}},
			[]string{"policies/b sets the same for the same calls: one of the two is enough"},
		},
		{"one that is off", []Rule{{Name: "policies/a", Match: match, Settings: retry}, {Name: "policies/b", Match: match, Settings: retry, Off: true}}, nil},
		{"other calls", []Rule{{Name: "policies/a", Match: match, Settings: retry}, {Name: "policies/b", Settings: retry}}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := Warnings(row.rules, row.rules[0].Name); !slices.Equal(got, row.want) {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
	if got := Warnings([]Rule{{Name: "policies/a"}}, "policies/gone"); got != nil {
		t.Errorf("of a policy that is not there: %q", got)
	}
}
