package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/call"
)

// ending is how a call can end, as a caller sees it.
type ending struct{ outcome, effect, next string }

// endings reads the table of outcomes; an empty cell repeats the one above. later are the outcomes that no call has yet.
func endings(t *testing.T) (told map[ending]bool, later []string) {
	t.Helper()
	text, err := os.ReadFile("outcomes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Outcome by effect\n")
	told = map[ending]bool{}
	var outcome, effect string
	for line := range strings.Lines(table) {
		switch {
		case strings.HasPrefix(line, "`OUTCOME_"):
			later = regexp.MustCompile("OUTCOME_[A-Z_]+").FindAllString(line, -1)
			continue
		case !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| outcome "):
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|\n"), "|")
		if len(cells) != 5 {
			t.Fatalf("a row of %d cells: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
			if i >= 2 && cells[i] == "" {
				t.Errorf("an empty cell: %s", line)
			}
		}
		if cells[0] != "" {
			outcome = strings.TrimPrefix(cells[0], "OUTCOME_")
		}
		if cells[1] != "" {
			effect = cells[1]
		}
		for next := range strings.SplitSeq(cells[2], ", ") {
			e := ending{outcome, effect, next}
			if told[e] {
				t.Errorf("%v stands there twice", e)
			}
			told[e] = true
		}
	}
	return told, later
}

// The transcripts of the engine are all that is known to happen; a caller must find each of their ends in the table.
func TestEveryEndingOfTheTranscriptsIsExplained(t *testing.T) {
	told, _ := endings(t)
	files, err := filepath.Glob("../engine/testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	final := regexp.MustCompile(`(?m)^ +-> ([A-Z_]+) effect=([A-Z]+) reason=[A-Z_]+ next=([A-Z_]+) `)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range final.FindAllStringSubmatch(string(text), -1) {
			found++
			if e := (ending{m[1], m[2], m[3]}); !told[e] {
				t.Errorf("%s: %v is not in outcomes.md", filepath.Base(file), e)
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d ends in %d transcripts", found, len(files))
	}
}

func TestEveryOutcomeIsExplainedOrLater(t *testing.T) {
	told, later := endings(t)
	explained := map[string]bool{}
	for e := range told {
		explained[e.outcome] = true
	}
	count := 0
	for o := call.OutcomeSuccess; o <= call.OutcomeDeferred; o++ {
		count++
		if isLater := slices.Contains(later, "OUTCOME_"+o.String()); explained[o.String()] == isLater {
			t.Errorf("%s: explained %t, of a later version %t", o, explained[o.String()], isLater)
		}
	}
	if len(explained)+len(later) != count {
		t.Errorf("%d outcomes are explained and %d are later, of %d", len(explained), len(later), count)
	}
}

// The rule of next, as far as it follows from outcome and effect alone (the section above the table).
func TestNextStepsFollowTheRule(t *testing.T) {
	told, _ := endings(t)
	for e := range told {
		fix := e.outcome == "OPERATION_CONFLICT" || e.outcome == "DENIED" || e.outcome == "UNREACHABLE"
		var allowed []string
		switch {
		case e.outcome == "SUCCESS":
			allowed = []string{"DONE"}
		case e.effect == "UNKNOWN":
			allowed = []string{"RETRY", "RETRY_SAME_ID", "RECONCILE"}
		case fix:
			allowed = []string{"FIX_REQUEST"}
		case e.effect == "NONE":
			allowed = []string{"RETRY"}
		case e.effect == "ANSWERED":
			allowed = []string{"RETRY", "FIX_REQUEST"}
		}
		if !slices.Contains(allowed, e.next) {
			t.Errorf("%v: next can only be one of %v", e, allowed)
		}
	}
}
