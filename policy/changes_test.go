package policy

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestChangesAreToldFieldByField(t *testing.T) {
	for _, row := range []struct {
		name          string
		before, after *Rule
		want          []Change
	}{
		{"nothing", &Rule{}, &Rule{Name: "policies/a", Revision: 7}, nil},
		{"from nothing", nil, &Rule{Settings: Settings{Retry: RetryRule{MaxAttempts: new(uint32(2))}}}, []Change{{"retry.max_attempts", "", "2"}}},
		{"to nothing", &Rule{Match: Match{PathPrefix: "/a", Ports: []uint32{80, 81, 82}}}, nil, []Change{
			{"match.ports", "80-82", ""}, {"match.path_prefix", "/a", ""},
		}},
		{
			"beside the leaves", &Rule{Description: "old", Priority: 3, Off: true}, &Rule{Description: "new"},
			[]Change{{"description", "old", "new"}, {"priority", "3", ""}, {"mode", "POLICY_MODE_OFF", ""}},
		},
		{"a zero is a value", &Rule{}, &Rule{Settings: Settings{Breaker: BreakerRule{ConsecutiveFailures: new(uint32(0)), Ramp: new(time.Duration(0))}}}, []Change{
			{"breaker.consecutive_failures", "", "0"}, {"breaker.ramp", "", "0s"},
		}},
		{
			"another member of a oneof",
			&Rule{Settings: Settings{Budget: BudgetRule{Limit: &BudgetLimitRule{Window: &BudgetWindowRule{Ratio: new(0.1), Period: new(time.Second)}}}}},
			&Rule{Settings: Settings{Budget: BudgetRule{Limit: &BudgetLimitRule{TokenBucket: &TokenBucketRule{}}}}},
			[]Change{{"budget.window → budget.token_bucket", "ratio 0.1, period 1s", "defaults"}},
		},
		{
			"a member that is one value", nil,
			&Rule{Settings: Settings{Hedge: HedgeRule{Trigger: &HedgeTriggerRule{Delay: new(20 * time.Millisecond)}}}},
			[]Change{{"hedge.delay", "", "20ms"}},
		},
		{
			"secrets",
			&Rule{Settings: Settings{Headers: HeadersRule{Set: map[string]string{"X-Api-Key": "abc"}}, Egress: EgressRule{TLS: TLSRule{CAPEM: new("PEM1")}}}},
			&Rule{Settings: Settings{Headers: HeadersRule{Set: map[string]string{"X-Api-Key": "xyz"}}, Egress: EgressRule{TLS: TLSRule{CAPEM: new("PEM2")}}}},
			[]Change{{"egress.tls.ca_pem", "(4 bytes)", "(4 bytes)"}, {"headers.set", "X-Api-Key: (3 bytes)", "X-Api-Key: (3 bytes)"}},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := Changes(row.before, row.after); !slices.Equal(got, row.want) {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}

// No field is forgotten: each one in turn makes a change, under its own path.
func TestEveryFieldMakesAChange(t *testing.T) {
	for _, l := range settingsLeaves() {
		r := &Rule{}
		fillLeaf(t, l.in(&r.Settings))
		got := Changes(nil, r)
		if len(got) != 1 || got[0].Path != l.nameOf(l.in(&r.Settings)) || got[0].Before != "" || got[0].After == "" {
			t.Errorf("%s: %q", l.path, got)
		}
		if back := Changes(r, nil); len(back) != 1 || back[0].After != "" || back[0].Before != got[0].After {
			t.Errorf("%s back: %q", l.path, back)
		}
	}
}

// fillLeaf gives a leaf some value.
func fillLeaf(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if v.Elem().Kind() == reflect.Struct {
			fillLeaf(t, v.Elem().Field(0))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
	default:
		t.Fatal(fmt.Sprint("a leaf of kind ", v.Kind()))
	}
}
