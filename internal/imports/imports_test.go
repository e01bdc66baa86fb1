package imports_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/imports"
)

const top = "../.."

func TestPackagesImportLowerRingsOnly(t *testing.T) {
	table, err := os.Open(filepath.Join(top, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	rules, err := imports.ParseTable(table)
	if err != nil {
		t.Fatal(err)
	}
	packages := readPackages(t)
	if len(rules) < 20 || len(packages["internal/imports"]) == 0 {
		t.Fatalf("%d rows and %d packages read: the table or the tree was not found", len(rules), len(packages))
	}
	for _, v := range imports.Violations(rules, packages) {
		t.Error(v)
	}
}

// readPackages gives what the sources of every package import, tests and nested modules left out.
func readPackages(t *testing.T) map[string][]string {
	t.Helper()
	packages := map[string][]string{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path == top {
				return nil
			}
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if base := entry.Name(); base == "testdata" || base == "bin" || base == "node_modules" || strings.HasPrefix(base, ".") || nested == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		paths := packages[dir]
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			paths = append(paths, imported)
		}
		packages[dir] = paths
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

const table = `
| ring | package | one sentence | may import |
|---|---|---|---|
| 0 | ` + "`noun`" + ` | nouns | standard library |
| 1 | ` + "`leaf`" + ` | a leaf | standard library |
| 1 | ` + "`leaf/deep`" + ` | a leaf below a leaf | standard library |
| 2 | ` + "`mid`" + ` | the middle | ` + "`noun`, `leaf`" + ` |
| 3 | ` + "`store/…`" + ` | a family | ` + "`noun`" + `, libraries |
| 4 | ` + "`edge`" + ` | the edge | ` + "`gen/…`" + `, lower rings, libraries |
| 5 | ` + "`main`" + ` | the wiring | everything |
| – | ` + "`gen/…`" + ` | generated | libraries |
`

func TestForbiddenImportsAreNamed(t *testing.T) {
	rules, err := imports.ParseTable(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	ours := imports.Module + "/"
	const library = "google.golang.org/grpc"
	for _, c := range []struct {
		name     string
		importer string
		imported string
		problem  string // "" when it is allowed
	}{
		{"a listed lower ring", "mid", ours + "leaf", ""},
		{"the standard library", "noun", "net/netip", ""},
		{"every lower ring", "edge", ours + "store/sqlite", ""},
		{"everything", "main", ours + "gen/go", ""},
		{"generated code where it is listed", "edge", ours + "gen/go", ""},
		{"a library where it is allowed", "store/sqlite", library, ""},
		{"within a family", "store/sqlite", ours + "store/sql", ""},
		{"a library where none is", "leaf", library, "its row allows no libraries"},
		{"a peer", "leaf", ours + "leaf/deep", "ring 1 imports lower rings only, this is ring 1"},
		{"upward", "noun", ours + "mid", "ring 0 imports lower rings only, this is ring 2"},
		{"a lower ring that is not listed", "mid", ours + "leaf/deep", "its row does not list it"},
		{"generated code where it is not listed", "mid", ours + "gen/go", "its row does not list it"},
		{"the wiring, from beside", "gen/go", ours + "main", "its row does not list it"},
		{"a package in no row", "edge", ours + "helpers", "stands in no row of the table: give it a ring"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := imports.Violations(rules, map[string][]string{c.importer: {c.imported}})
			var want []string
			if c.problem != "" {
				want = []string{c.importer + " imports " + c.imported + ": " + c.problem}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	t.Run("an importer in no row", func(t *testing.T) {
		got := imports.Violations(rules, map[string][]string{"helpers": {"fmt"}})
		if want := []string{"helpers stands in no row of the table: give it a ring"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestARowGivenTwiceIsRefused(t *testing.T) {
	if _, err := imports.ParseTable(strings.NewReader(table + "| 2 | `noun` | again | everything |\n")); err == nil {
		t.Error("want an error that names the row")
	}
}
