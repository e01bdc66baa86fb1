package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sallyport/sallyport/internal/document"
)

// The calls of these documents happen as they are written there, command by command in one shell, against a broker and an upstream of
// examples.
func TestTheWorkedCallsRunAsWritten(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl here")
	}
	root, err := filepath.Abs(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", programs, "./examples/hooks", "./examples/files")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("TMPDIR", t.TempDir()) // of programs that are killed
	for _, tt := range []struct {
		document, upstream string
		least              int
		holds              string // of the commands that are meant
	}{
		{"deferred.md", "hooks", 15, ""},
		{"../README.md", "hooks", 6, "127.0.0.1:7480/request|deferred list"},
		{"streaming.md", "files", 5, ""},
	} {
		t.Run(filepath.Base(tt.document), func(t *testing.T) {
			upstream := startService(t, filepath.Join(programs, tt.upstream))
			grpc, http := startTCP(t)
			sh := document.StartShell(t, root, append(os.Environ(), "SALLYPORT_BROKER="+grpc))
			here := strings.NewReplacer("127.0.0.1:9000", upstream, "127.0.0.1:7480", http, "bin/sallyport", "sallyport")
			there := strings.NewReplacer(upstream, "127.0.0.1:9000", http, "127.0.0.1:7480")
			ran := 0
			for _, c := range document.Commands(t, filepath.Join(rootDir, "docs", tt.document)) {
				if tt.holds != "" && !regexp.MustCompile(tt.holds).MatchString(c.Line) {
					continue
				}
				ran++
				if got := there.Replace(sh(here.Replace(c.Line))); !c.Matches(got) {
					t.Errorf("$ %s\nprints\n%s\nand not\n%s", c.Line, got, c.Prints)
				}
			}
			if ran < tt.least {
				t.Errorf("%d commands of %s were run", ran, tt.document)
			}
		})
	}
}

// startTCP runs a broker on ports of loopback until the test ends.
func startTCP(t *testing.T) (grpc, http string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sallyport", "serve", "--dev", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", t.TempDir())
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if m := regexp.MustCompile(`msg=serving grpc=(\S+) http=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			grpc, http = m[1], m[2]
			break
		}
	}
	drained := make(chan struct{}) // closed when the log has ended
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, log)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-drained
		_ = cmd.Wait()
	})
	if grpc == "" {
		t.Fatal("the broker does not serve")
	}
	return grpc, http
}
