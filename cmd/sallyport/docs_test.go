package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sallyport/sallyport/internal/document"
)

// The repository, and the document whose commands are run.
const (
	rootDir  = "../.."
	unknowns = rootDir + "/docs/unknown-outcomes.md"
)

// The charge that is worked through in the document happens as it is written there, command by command, against a broker and the
// service of examples/charge.
func TestTheWorkedChargeRunsAsWritten(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	service := filepath.Join(dir, "charge")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", service, "./examples/charge")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	charges := startService(t, service)
	broker := startProcess(t)

	commands := document.Commands(t, unknowns)
	if len(commands) < 10 {
		t.Fatalf("the document has %d commands", len(commands))
	}
	for _, c := range commands {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(c.Line, "127.0.0.1:8000", charges))
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "SALLYPORT_BROKER="+broker.address)
		out, _ := cmd.CombinedOutput() // the exit code tells the outcome, which is printed too
		if got := strings.ReplaceAll(string(out), charges, "127.0.0.1:8000"); !c.Matches(got) {
			t.Errorf("$ %s\nprints\n%s\nand not\n%s", c.Line, got, c.Prints)
		}
	}
	broker.signal(t, syscall.SIGINT)
	if code := broker.end(t); code != 0 {
		t.Errorf("the broker ends with %d", code)
	}
}

// startService runs the service until the test ends, and gives its host and port.
func startService(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "-addr", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it is killed when the test's context ends
	said, err := bufio.NewReader(out).ReadString('\n')
	_, address, ok := strings.Cut(said, "http://")
	address, _, _ = strings.Cut(address, "/")
	if err != nil || !ok {
		t.Fatalf("the service says %q, %v", said, err)
	}
	return address
}

// The policy that the document shows is the file that its commands apply.
func TestTheWorkedChargeShowsItsPolicy(t *testing.T) {
	text, err := os.ReadFile(unknowns)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(rootDir, "examples", "charge", "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, policies, ok := strings.Cut(string(file), "\npolicies:\n")
	if !ok || !strings.Contains(string(text), "\n```yaml\npolicies:\n"+policies+"```\n") {
		t.Errorf("the document does not have\n%s", policies)
	}
}
