// Package document runs the commands of a document as they are written there, and holds what they print to what it says.
package document

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Command is one of a document, and what the document says it prints; … stands for anything.
type Command struct{ Line, Prints string }

// Commands are those of the console blocks, in order. A command goes on after a line that ends in a backslash.
func Commands(t *testing.T, file string) (all []Command) {
	t.Helper()
	for _, block := range blocks(t, file, "console") {
		for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
			line, prints, _ := strings.Cut(part, "\n")
			for strings.HasSuffix(line, `\`) {
				next, rest, _ := strings.Cut(prints, "\n")
				line, prints = strings.TrimSuffix(line, `\`)+next, rest
			}
			all = append(all, Command{line, prints})
		}
	}
	return all
}

// Starts are the sh blocks, each what a reader types into a terminal of its own.
func Starts(t *testing.T, file string) []string {
	t.Helper()
	return blocks(t, file, "sh")
}

func blocks(t *testing.T, file, language string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		all = append(all, block[1])
	}
	return all
}

// Matches tells whether the command printed what the document says. … may stand for several lines.
func (c Command) Matches(output string) bool {
	parts := strings.Split(settled(c.Prints), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(parts, `.*`) + `$`).MatchString(settled(output))
}

// What differs from run to run: instants, durations, and how columns are filled for them.
var (
	anyInstant  = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
	anyDuration = regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(µs|ms|s|h|m)\b`)
	anyBlank    = regexp.MustCompile(`[ \t]+`)
)

func settled(text string) string {
	text = anyInstant.ReplaceAllString(text, "INSTANT")
	text = anyDuration.ReplaceAllString(text, "DURATION")
	lines := strings.Split(anyBlank.ReplaceAllString(text, " "), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}
