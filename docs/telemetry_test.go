package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// words gives what the pattern's group finds in the files, once each.
func words(t *testing.T, pattern string, files ...string) []string {
	t.Helper()
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestTracingNamesTheAttributesThereAre(t *testing.T) {
	sources, err := filepath.Glob("../tracing/*.go")
	if err != nil {
		t.Fatal(err)
	}
	// Metrics have a document of their own, which cmd/sallyport holds to a real scrape.
	metrics := []string{"../tracing/count.go", "../tracing/events.go", "../tracing/meter.go", "../tracing/watch.go"}
	sources = slices.DeleteFunc(sources, func(file string) bool {
		return strings.HasSuffix(file, "_test.go") || slices.Contains(metrics, file)
	})
	set := words(t, `"(sallyport\.(?:[a-z_]+\.?)+)"`, sources...)
	set = slices.DeleteFunc(set, func(name string) bool { return name == "sallyport.label." }) // the document says sallyport.label.NAME
	told := words(t, "`(sallyport\\.(?:[a-z_]+\\.?)+)`", "tracing.md")
	if !slices.Equal(set, told) || len(set) < 10 {
		t.Errorf("the code sets  %v\nthe document has %v", set, told)
	}
}

func TestOperationsNamesTheFieldsOfTheAccessLog(t *testing.T) {
	logged := words(t, `slog\.(?:String|Int|Uint64|Duration)\("([a-z_]+)"`, "../broker/callservice.go")
	text, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Log\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, name := range logged {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("operations.md does not name %s", name)
		}
	}
	if len(logged) < 12 {
		t.Errorf("found %v", logged)
	}
}
