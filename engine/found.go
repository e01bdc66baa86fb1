package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unique"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
	"github.com/sallyport/sallyport/policy"
)

// found is what the registries have of one origin.
type found struct {
	breakers  []seen[breakerKey, *breaker.Breaker]
	budgets   []seen[budgetKey, *budget.Budget]
	bulkheads []seen[bulkheadKey, *bulkhead.Bulkhead]
	hedgings  []seen[hedgingKey, *hedging]
	holds     []Hold
	past      *past
}

// known: there is more of it than what it went through.
func (f *found) known() bool {
	return len(f.breakers)+len(f.budgets)+len(f.bulkheads)+len(f.hedgings) > 0
}

// find collects what there is of the origins that are wanted.
func (o *Origins) find(now time.Time, want func(origin string) bool) map[string]*found {
	all := make(map[string]*found)
	of := func(name string) *found { // nil: not wanted
		f, asked := all[name]
		if !asked && want(name) {
			f = &found{}
			all[name] = f
		}
		return f
	}
	for s := range o.breakers.each() {
		if f := of(s.key.origin); f != nil {
			f.breakers = append(f.breakers, s)
		}
	}
	for s := range o.budgets.each() {
		if f := of(s.key.origin); f != nil {
			f.budgets = append(f.budgets, s)
		}
	}
	for s := range o.bulkheads.each() {
		if f := of(s.key.origin); f != nil {
			f.bulkheads = append(f.bulkheads, s)
		}
	}
	for s := range o.hedgings.each() {
		if f := of(s.key.origin); f != nil {
			f.hedgings = append(f.hedgings, s)
		}
	}
	for name, p := range o.pasts.all() {
		if f := all[name]; f != nil {
			f.past = p
		}
	}
	for _, h := range o.holds.standing(now) {
		if f := all[h.origin]; f != nil {
			f.holds = append(f.holds, Hold{Credential: h.credential != "", Until: h.until})
		}
	}
	for _, f := range all {
		slices.SortFunc(f.holds, func(a, b Hold) int {
			if a.Credential != b.Credential {
				if b.Credential {
					return -1
				}
				return 1
			}
			return b.Until.Compare(a.Until)
		})
		f.holds = f.holds[:min(len(f.holds), holdsTold)]
	}
	return all
}

func valueOf[S comparable, V any](all []seen[keyOf[S], V], settings unique.Handle[S]) (v V, ok bool) {
	for _, s := range all {
		if s.key.settings == settings {
			return s.value, true
		}
	}
	return v, false
}

// scopes are the settings of the latest users, each once. So each piece is in one, that of its own latest user at least.
func (f *found) scopes() []*policy.Shared {
	var all []*policy.Shared
	add := func(by *policy.Shared) {
		same := func(other *policy.Shared) bool { return other.SharedSettings == by.SharedSettings }
		switch i := slices.IndexFunc(all, same); {
		case i < 0:
			all = append(all, by)
		case by.Generation > all[i].Generation:
			all[i] = by // a call that came in between, under a newer policy
		}
	}
	for _, s := range f.breakers {
		add(s.by)
	}
	for _, s := range f.budgets {
		add(s.by)
	}
	for _, s := range f.bulkheads {
		add(s.by)
	}
	for _, s := range f.hedgings {
		add(s.by)
	}
	slices.SortFunc(all, func(a, b *policy.Shared) int {
		if c := cmp.Or(cmp.Compare(b.Generation, a.Generation), cmp.Compare(a.Policy, b.Policy)); c != 0 {
			return c
		}
		// Two sets of policies of which the first is the same. Any order will do that is the same every time.
		return cmp.Compare(written(a), written(b))
	})
	return all[:min(len(all), scopesTold)]
}

func written(s *policy.Shared) string {
	text := fmt.Sprint(s.Breaker.Value(), s.Budget.Value(), s.Concurrency.Value(), s.Hedged)
	if s.Hedged {
		text += fmt.Sprint(s.Hedge.Value())
	}
	return text
}
