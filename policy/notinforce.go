package policy

import (
	"slices"
	"strings"
)

// NotInForce lists what the rules set and this version accepts, validates and does not act on: whole blocks by their name, single
// fields by their path, each once, in the order of the contract's table. It is said once when rules are loaded, so that nobody
// trusts a protection that is not there.
func NotInForce(rules []Rule) []string {
	unbuilt := []string{}
	var out []string
	leaves := settingsLeaves()
	for i := range leaves {
		l := &leaves[i]
		for r := range rules {
			v := l.in(&rules[r].Settings)
			if rules[r].Off || !isSet(v) {
				continue
			}
			for _, name := range unbuilt {
				if l.path == name || strings.HasPrefix(l.path, name+".") {
					out = append(out, name)
				}
			}
		}
	}
	return slices.Compact(out)
}
