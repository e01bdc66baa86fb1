package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// The repository, and the document whose commands are run.
const (
	rootDir  = "../.."
	document = "unknown-outcomes.md"
)

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

// shown is a command of a document and what the document says it prints; … stands for anything.
type shown struct{ command, prints string }

func commandsOf(t *testing.T, name string) (all []shown) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rootDir, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)\n```console\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, prints, _ := strings.Cut(part, "\n")
			all = append(all, shown{command, prints})
		}
	}
	return all
}

// matches: … may stand for several lines.
func (s shown) matches(output string) bool {
	parts := strings.Split(settled(s.prints), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(parts, `.*`) + `$`).MatchString(settled(output))
}

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

	commands := commandsOf(t, document)
	if len(commands) < 10 {
		t.Fatalf("the document has %d commands", len(commands))
	}
	for _, c := range commands {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(c.command, "127.0.0.1:8000", charges))
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "SALLYPORT_BROKER="+broker.address)
		out, _ := cmd.CombinedOutput() // the exit code tells the outcome, which is printed too
		if got := strings.ReplaceAll(string(out), charges, "127.0.0.1:8000"); !c.matches(got) {
			t.Errorf("$ %s\nprints\n%s\nand not\n%s", c.command, got, c.prints)
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
	text, err := os.ReadFile(filepath.Join(rootDir, "docs", document))
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
