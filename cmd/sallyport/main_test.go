package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the golden files and the expected output in the scripts")

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){
		"sallyport": func() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// leakChecked fails the run when a goroutine outlives it.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestCommandLine(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = busy.Close() })
	upstream := startUpstream(t, map[string][]reply{
		"/ok":      {{status: 200, body: "hello"}},
		"/flaky":   {{status: 503}, {status: 200, body: "at last"}},
		"/flaky2":  {{status: 503}, {status: 200, body: "at last"}}, // of another script: each counts its own requests
		"/missing": {{status: 404, body: "no such thing"}},
		"/lost":    {{}},
		"/heals":   {{status: 503}, {status: 503}, {status: 200, body: "at last"}},
		"/down":    {{status: 404}, {status: 200, body: "mended"}},
		"/escapes": {{status: 200, body: "\x1b[31mred"}},
	})
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("BUSY", busy.Addr().String())
			e.Setenv("UP", upstream.url)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await, "exits": exits, "appears": appears, "settles": settles, "expand": expand},
	})
}

// exits runs a command and compares its exit code: exits CODE COMMAND ARGUMENT…
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGUMENT...")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = fmt.Sprint(exit.ExitCode())
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// settles runs a command until its output has that text: settles TEXT COMMAND ARGUMENT…
func settles(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: settles TEXT COMMAND ARGUMENT...")
	}
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if err := ts.Exec(args[1], args[2:]...); err != nil {
			ts.Fatalf("%v", err)
		}
		if strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
	}
	ts.Fatalf("it never says %q:\n%s", args[0], ts.ReadFile("stdout"))
}

// await waits until a unix socket answers.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await SOCKET")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		conn, err := net.Dial("unix", ts.MkAbs(args[0]))
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("%s does not answer: %v", args[0], err)
		}
	}
}

// expand replaces $NAME in a file by what the environment says.
func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expand FILE")
	}
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// appears waits until a line of a file matches.
func appears(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: appears FILE PATTERN")
	}
	pattern := regexp.MustCompile("(?m)" + args[1])
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		content, _ := os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
		if pattern.Match(content) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("no line of %s matches %s:\n%s", args[0], args[1], content)
		}
	}
}

func startUpstream(t *testing.T, scripts map[string][]reply) *flaky {
	t.Helper()
	f, err := startFlaky(t.Context(), "127.0.0.1:0", scripts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}
