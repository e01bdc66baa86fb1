package polyglot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/document"
	"github.com/sallyport/sallyport/internal/process"
)

// The commands of the README run as they are written there, the starts included, on ports of the test.
func runsAsWritten(t *testing.T, k kit) {
	t.Helper()
	const free = "127.0.0.1:0"
	if _, err := exec.LookPath("curl"); err != nil {
		lackingf(t, "curl is not installed")
	}
	readme := filepath.Join(root, "examples", "reading-list", "README.md")
	starts := document.Starts(t, readme)
	if len(starts) != 4 {
		t.Fatalf("%d blocks start something", len(starts))
	}
	installsLikeTheClients(t, starts[0])

	dir := tree(t)
	run := func(block string, replace ...string) *process.Process {
		return startBlock(t, dir, k.environment, strings.NewReplacer(replace...).Replace(block))
	}
	up := run(starts[1], "go run ./examples/reading-list/upstreams", k.upstreams+" -identity "+free+" -links "+free+" -pages "+free)
	identity, links := up.Await(t, `identity at http://(\S+)`)[1], up.Await(t, `links at http://(\S+)`)[1]
	pages := up.Await(t, `pages at http://(\S+)`)[1]

	policies := filepath.Join(dir, "policies.yaml")
	text, err := os.ReadFile(filepath.Join(root, "examples", "reading-list", "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ports := strings.NewReplacer("9001", port(identity), "9002", port(links), "9003", port(pages))
	if err := os.WriteFile(policies, []byte(ports.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	broker := run(starts[2], "bin/sallyport serve", k.broker+" serve --http "+free, "examples/reading-list/policies.yaml", policies)
	broker.Await(t, `msg=serving`)
	t.Cleanup(func() { broker.Terminate(t) })
	app := run(starts[3], "bin/clients/venv/bin/python", k.python, "app.py", "app.py --listen "+free+" --identity http://"+identity+" --links http://"+links)
	t.Cleanup(func() { app.Terminate(t) })
	list, _, _ := strings.Cut(app.Await(t, `the reading list is at http://(\S+)`)[1], "/")

	sh := document.StartShell(t, dir, k.environment)
	here := strings.NewReplacer(
		"127.0.0.1:9000", list, "127.0.0.1:9001", identity, "127.0.0.1:9002", links, "127.0.0.1:9003", pages, "bin/clients/venv/bin/python", k.python,
	)
	there := strings.NewReplacer(list, "127.0.0.1:9000", identity, "127.0.0.1:9001", links, "127.0.0.1:9002", pages, "127.0.0.1:9003")
	commands := document.Commands(t, readme)
	if len(commands) < 12 {
		t.Errorf("the document has %d commands", len(commands))
	}
	for _, c := range commands {
		if got := there.Replace(sh(here.Replace(c.Line))); !c.Matches(got) {
			t.Errorf("$ %s\nprints\n%s\nand not\n%s", c.Line, got, c.Prints)
		}
	}
}

// tree is an empty directory in which the examples are where they are in the tree. Its path is short enough for a socket.
func tree(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "list") //nolint:usetesting // as above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	return dir
}
