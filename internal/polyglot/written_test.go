package polyglot

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/process"
)

// lastCommand is the last command of a block of a document, and the variables that are set for it alone.
var lastCommand = regexp.MustCompile(`(?s)((?:^|\n)(?:[A-Z_]+=\S+ (?:\\\n +)?)*)((?:[^\n]*\\\n)*[^\n]*)$`)

// startBlock runs a block that a reader types into a terminal. Its last command is the one that stays; it takes the place of the shell, so
// that it ends with the test.
func startBlock(t *testing.T, dir string, environment []string, block string) *process.Process {
	t.Helper()
	return process.Start(t, environment, "sh", "-c", "cd '"+dir+"'\n"+lastCommand.ReplaceAllString(block, "${1}exec $2"))
}

// installsLikeTheClients: what the other tests install is what clients/README.md says, so the same lines in another document need no test of
// their own.
func installsLikeTheClients(t *testing.T, block string) {
	t.Helper()
	clients, err := os.ReadFile(filepath.Join(root, "clients", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(block) {
		for command := range strings.SplitSeq(strings.Trim(line, "()\n"), " && ") {
			if command != "make build" && !strings.Contains(string(clients), "\n"+command) {
				t.Errorf("clients/README.md has no %q", command)
			}
		}
	}
}
