package admin_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/policy"
	stored "github.com/sallyport/sallyport/store/memory"
)

// Whatever is written in whatever order, what is in force is what a plain list of the writes comes to, now and after opening again.
func TestPoliciesAgainstAPlainOracle(t *testing.T) {
	type model struct {
		history []wrote
		deleted bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		d := opened(t, stored.New())
		models := map[string]*model{}
		names := []string{"policies/a", "policies/b", policy.DefaultName}
		value := rapid.Custom(func(rt *rapid.T) wrote {
			return wrote{"", rapid.Uint32Range(1, 3).Draw(rt, "attempts")}
		})
		fits := func(err error, want bool) {
			if (err == nil) != want {
				rt.Fatalf("%v, want success %t", err, want)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": func(rt *rapid.T) {
				name, s := rapid.SampledFrom(names).Draw(rt, "name"), value.Draw(rt, "value")
				m := models[name]
				_, err := d.Create(t.Context(), as("CreatePolicy", name), s.draft())
				fits(err, m == nil || m.deleted)
				if m == nil {
					m = &model{deleted: true}
					models[name] = m
				}
				if m.deleted {
					m.history, m.deleted = append(m.history, s), false
				}
			},
			"update": func(rt *rapid.T) {
				name, s := rapid.SampledFrom(names).Draw(rt, "name"), value.Draw(rt, "value")
				m := models[name]
				_, err := d.set(t.Context(), as("UpdatePolicy", name), s)
				fits(err, m != nil && !m.deleted)
				if err == nil && m.history[len(m.history)-1] != s {
					m.history = append(m.history, s)
				}
			},
			"delete": func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "name")
				m := models[name]
				_, err := d.Delete(t.Context(), as("DeletePolicy", name))
				fits(err, m != nil && !m.deleted)
				if err == nil {
					m.deleted = true
				}
			},
			"rollback": func(rt *rapid.T) {
				name, to := rapid.SampledFrom(names).Draw(rt, "name"), rapid.IntRange(1, 5).Draw(rt, "revision")
				m := models[name]
				_, err := d.Rollback(t.Context(), as("RollbackPolicy", name), uint64(to))
				fits(err, m != nil && to <= len(m.history))
				if err == nil && (m.deleted || m.history[len(m.history)-1] != m.history[to-1]) {
					m.history, m.deleted = append(m.history, m.history[to-1]), false
				}
			},
			"": func(rt *rapid.T) {
				var want []string
				for _, name := range names {
					m := models[name]
					switch {
					case m != nil && !m.deleted:
						want = append(want, fmt.Sprintf("%s@%d", name, len(m.history)))
						if p, err := d.Get(name); err != nil || *p.Rule.Retry.MaxAttempts != m.history[len(m.history)-1].Attempts {
							rt.Fatalf("%s: %+v, %v", name, p, err)
						}
					case name == policy.DefaultName:
						want = append(want, name+"@0")
					}
				}
				if got := d.ids(); !slices.Equal(got, want) {
					rt.Fatalf("in force is %v, want %v", got, want)
				}
			},
		})
		if got := opened(t, d.store).ids(); !slices.Equal(got, d.ids()) {
			rt.Fatalf("opened again it has %v, want %v", got, d.ids())
		}
	})
}
