package polyglot

import (
	"bufio"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root is the top of the tree.
const root = "../.."

// policies open this machine to the calls of the test, as an operator would.
const policies = `
policies:
  - name: policies/beside
    match: { hosts: ["127.0.0.1"] }
    egress: { allow_cidrs: [127.0.0.0/8], any_port: true }
`

// startBroker builds the program, runs it as a process of its own, and gives the address of its gRPC listener. A broker that does not
// end cleanly fails the test.
func startBroker(t *testing.T) string {
	t.Helper()
	dependOnSources(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "sallyport")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./cmd/sallyport")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does, and from the same cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	file := filepath.Join(dir, "policies.yaml")
	if err := os.WriteFile(file, []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	broker := exec.Command(program, "serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--data", filepath.Join(dir, "data"), "--policies", file)
	broker.Env = withoutSettings(os.Environ())
	log, err := broker.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(log)
	t.Cleanup(func() {
		defer time.AfterFunc(time.Minute, func() { _ = broker.Process.Kill() }).Stop()
		_ = broker.Process.Signal(syscall.SIGTERM)
		rest, _ := io.ReadAll(lines)
		if err := broker.Wait(); err != nil {
			t.Errorf("the broker: %v\n%s", err, rest)
		}
	})
	return servingAt(t, lines)
}

// servingAt reads the log up to the line that names the address.
func servingAt(t *testing.T, log *bufio.Reader) string {
	t.Helper()
	serving := regexp.MustCompile(`msg=serving grpc=(\S+)`)
	var seen strings.Builder
	for {
		line, err := log.ReadString('\n')
		seen.WriteString(line)
		if m := serving.FindStringSubmatch(line); m != nil {
			return m[1]
		}
		if err != nil {
			t.Fatalf("the broker does not serve: %v\n%s", err, seen.String())
		}
	}
}

// withoutSettings keeps what a developer has set for other brokers away from this one.
func withoutSettings(environ []string) []string {
	var kept []string
	for _, e := range environ {
		if !strings.HasPrefix(e, "SALLYPORT_") && !strings.HasPrefix(e, "OTEL_") {
			kept = append(kept, e)
		}
	}
	return kept
}

// dependOnSources looks at every source: the go command, which cannot know what another process builds and reads, then drops a
// cached result of this test when one of them changes.
func dependOnSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "bin" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
