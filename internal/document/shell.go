package document

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// StartShell runs a shell in that directory until the test ends. What it gives runs a command there and returns what it printed.
func StartShell(t *testing.T, dir string, environment []string) func(command string) string {
	t.Helper()
	const mark = "-- that was all --"
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Dir, cmd.Env = dir, environment
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
