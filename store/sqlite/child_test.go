package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/sallyport/sallyport/store/sqlite"
)

// A test runs its own program again where it needs another process: the role says what that does.
const (
	roleVariable = "SALLYPORT_STORE_TEST_ROLE"
	pathVariable = "SALLYPORT_STORE_TEST_PATH"
)

// child plays a role, tells of it on standard output, and returns the status of the process.
func child(role, path string) int {
	ctx := context.Background()
	var err error
	switch role {
	case "write":
		err = writeForEver(ctx, path)
	case "ledger":
		err = ledgerForEver(ctx, path)
	case "deferred":
		err = deferForEver(ctx, path)
	case "open ledger":
		err = openLedgerOnce(ctx, path)
	case "lock":
		err = hold(ctx, path, "BEGIN EXCLUSIVE")
	case "lock all":
		err = hold(ctx, path, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
	case "open":
		var s *sqlite.Store
		if s, err = sqlite.Open(ctx, path); err == nil {
			err = s.Close()
		}
	default:
		err = linuxChild(ctx, role, path)
	}
	if err != nil {
		say(err)
		return 1
	}
	return 0
}

// say writes a line for the test that started this process.
func say(what any) { _, _ = fmt.Fprintln(os.Stdout, what) }

// writeForEver writes revision after revision and says each when it was acknowledged.
func writeForEver(ctx context.Context, path string) error {
	s, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	policies, err := s.Policies(ctx)
	if err != nil {
		return err
	}
	next := uint64(1)
	if len(policies) > 0 {
		next = policies[0].Revision + 1
	}
	for ; ; next++ {
		if err := put(ctx, s, "policies/a", next, 3000); err != nil {
			return err
		}
		say(next)
	}
}

// hold keeps a lock until its standard input ends.
func hold(ctx context.Context, path, lock string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, lock); err != nil {
		return err
	}
	say("locked")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// process is a child that runs.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// start runs the test's program in a role. It ends with the test.
func start(t *testing.T, role, path string, prepare func(*exec.Cmd)) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, pathVariable+"="+path)
	cmd.Stderr = os.Stderr
	if prepare != nil {
		prepare(cmd)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		if prepare != nil {
			t.Skipf("this system allows no namespaces: %v", err)
		}
		t.Fatal(err)
	}
	p := &process{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return p
}

// says wants a line.
func (p *process) says(t *testing.T, want string) {
	t.Helper()
	if !p.lines.Scan() || p.lines.Text() != want {
		t.Fatalf("the other process says %q, want %q", p.lines.Text(), want)
	}
}

// over waits for its end and returns all that it said.
func (p *process) over(t *testing.T) string {
	t.Helper()
	_ = p.stdin.Close()
	text := ""
	for p.lines.Scan() {
		text += p.lines.Text() + "\n"
	}
	_ = p.cmd.Wait()
	return text
}
