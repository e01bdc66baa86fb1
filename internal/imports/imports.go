// Package imports says which package may import which, as the table in docs/architecture.md has it.
//
// The table is the source of truth: a new edge is a change of the table, and so is read in review. The sources are read as
// text, not through the go command, so that a cached test result is dropped when any import changes and a package that does not
// compile is still judged. Tests of a package are not judged: they may build what they like.
package imports

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of this module; what begins with it is ours.
const Module = "github.com/sallyport/sallyport"

// Beside is the ring of packages that stand beside the rings (helpers of tests, generated code, measuring programs): nobody
// imports them but those whose row says so.
const Beside = -1

// Rule is one row of the table.
type Rule struct {
	// Ring from 0, or [Beside].
	Ring int
	// Package is a path below the module; "x/…" stands for x and all below it.
	Package string
	// May are the packages it may import, written as Package is.
	May []string
	// Below: every package of a lower ring as well.
	Below bool
	// Libraries: packages of other modules as well; without it the standard library alone.
	Libraries bool
	// Everything: no limit at all.
	Everything bool
}

var (
	row  = regexp.MustCompile("^\\| (\\d+|–) \\| `([^`]+)` \\|.*\\| ([^|]+) \\|$")
	name = regexp.MustCompile("`([^`]+)`")
)

// ParseTable reads the rows of the form
//
//	| ring | `package` | one sentence | may import |
//
// The last cell names packages in backquotes, and may say "libraries", "lower rings" or "everything".
func ParseTable(r io.Reader) ([]Rule, error) {
	var rules []Rule
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		m := row.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		rule := Rule{Ring: Beside, Package: m[2]}
		if m[1] != "–" {
			ring, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, fmt.Errorf("ring of %s: %w", m[2], err)
			}
			rule.Ring = ring
		}
		for _, may := range name.FindAllStringSubmatch(m[3], -1) {
			rule.May = append(rule.May, may[1])
		}
		words := name.ReplaceAllString(m[3], "")
		rule.Libraries = strings.Contains(words, "libraries")
		rule.Below = strings.Contains(words, "lower rings")
		rule.Everything = strings.Contains(words, "everything")
		if slices.ContainsFunc(rules, func(other Rule) bool { return other.Package == rule.Package }) {
			return nil, fmt.Errorf("%s stands in the table twice", rule.Package)
		}
		rules = append(rules, rule)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the table: %w", err)
	}
	return rules, nil
}

// Violations lists, in order, what the packages import against the rules. The keys of packages are paths below the module, the
// values whole import paths.
func Violations(rules []Rule, packages map[string][]string) []string {
	var out []string
	for importer, paths := range packages {
		rule, ok := find(rules, importer)
		if !ok {
			out = append(out, importer+" stands in no row of the table: give it a ring")
			continue
		}
		for _, path := range paths {
			if problem := judge(rules, rule, importer, path); problem != "" {
				out = append(out, importer+" imports "+path+": "+problem)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func judge(rules []Rule, rule Rule, importer, path string) string {
	imported, ours := strings.CutPrefix(path, Module+"/")
	switch {
	case rule.Everything:
		return ""
	case !ours:
		if host, _, _ := strings.Cut(path, "/"); strings.Contains(host, ".") && !rule.Libraries {
			return "its row allows no libraries"
		}
		return ""
	}
	target, ok := find(rules, imported)
	switch {
	case !ok:
		return "stands in no row of the table: give it a ring"
	case target.Package == rule.Package && target.Package != importer:
		return "" // within one "x/…"
	case rule.Ring != Beside && target.Ring >= rule.Ring:
		return fmt.Sprintf("ring %d imports lower rings only, this is ring %d", rule.Ring, target.Ring)
	case slices.ContainsFunc(rule.May, func(may string) bool { return covers(may, imported) }):
		return ""
	case rule.Below && target.Ring != Beside:
		return ""
	}
	return "its row does not list it"
}

// find gives the row for a package: its own, else that of the longest "x/…" around it.
func find(rules []Rule, pkg string) (Rule, bool) {
	var best Rule
	found := false
	for _, rule := range rules {
		switch {
		case rule.Package == pkg:
			return rule, true
		case covers(rule.Package, pkg) && len(rule.Package) > len(best.Package):
			best, found = rule, true
		}
	}
	return best, found
}

func covers(pattern, pkg string) bool {
	prefix, wild := strings.CutSuffix(pattern, "/…")
	return pattern == pkg || wild && (pkg == prefix || strings.HasPrefix(pkg, prefix+"/"))
}
