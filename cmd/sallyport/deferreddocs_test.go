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
)

// The deferred calls of the documents happen as they are written there, command by command in one shell, against a broker and the upstream of
// examples/hooks.
func TestTheWorkedDeferredCallsRunAsWritten(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl here")
	}
	root, err := filepath.Abs(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	service := filepath.Join(t.TempDir(), "hooks")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", service, "./examples/hooks")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct {
		document string
		least    int
		holds    string // of the commands that are meant
	}{
		{"deferred.md", 15, ""},
		{"../README.md", 6, "127.0.0.1:7480/request|deferred list"},
	} {
		t.Run(filepath.Base(tt.document), func(t *testing.T) {
			hooks := startService(t, service)
			grpc, http := startTCP(t)
			sh := startShell(t, root, grpc)
			here := strings.NewReplacer("127.0.0.1:9000", hooks, "127.0.0.1:7480", http, "bin/sallyport", "sallyport")
			there := strings.NewReplacer(hooks, "127.0.0.1:9000", http, "127.0.0.1:7480")
			ran := 0
			for _, c := range commandsOf(t, tt.document) {
				// A command goes on after a line that ends in a backslash.
				for strings.HasSuffix(c.command, `\`) {
					next, rest, _ := strings.Cut(c.prints, "\n")
					c.command, c.prints = strings.TrimSuffix(c.command, `\`)+next, rest
				}
				if tt.holds != "" && !regexp.MustCompile(tt.holds).MatchString(c.command) {
					continue
				}
				ran++
				if got := there.Replace(sh(here.Replace(c.command))); !c.matches(got) {
					t.Errorf("$ %s\nprints\n%s\nand not\n%s", c.command, got, c.prints)
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

// startShell runs a shell until the test ends; what it gives runs a command there and returns what it printed.
func startShell(t *testing.T, dir, broker string) func(command string) string {
	t.Helper()
	const mark = "-- that was all --"
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "SALLYPORT_BROKER="+broker)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	return func(command string) string {
		if _, err := io.WriteString(in, command+"\necho; echo '"+mark+"'\n"); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("$ %s\n%s\n%v", command, text.String(), err)
			}
			if strings.TrimSpace(line) == mark {
				return text.String()
			}
			text.WriteString(line)
		}
	}
}
