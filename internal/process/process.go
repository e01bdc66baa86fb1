// Package process runs programs beside a test, the built broker first of all.
package process

import (
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a test waits for what must come: ample, since it is spent on a failure only.
const Patience = 30 * time.Second

// Process is a program beside the test, which it never outlives.
type Process struct {
	cmd   *exec.Cmd
	log   *logText
	ended chan struct{} // closed when the process has ended and its log is whole
}

// Start runs a program that is killed at the end of the test, if it has not ended by then, and on Linux also when the test dies.
func Start(t *testing.T, environment []string, name string, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: exec.Command(name, args...), log: &logText{more: make(chan struct{})}, ended: make(chan struct{})} //nolint:gosec,noctx // what a test runs, and ends
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environment, p.log, p.log
	dieWithUs(p.cmd)
	started := make(chan error, 1) // receives one value
	go func() {
		defer close(p.ended)
		// The kernel takes the end of the thread that starts a process for the end of its parent: this one stays until the process ends.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // ProcessState tells
		}
	}()
	if err := <-started; err != nil {
		<-p.ended
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// Kill ends the process at once, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Terminate has the process end by itself, and wants it to end well.
func (p *Process) Terminate(t *testing.T) {
	t.Helper()
	p.Ask()
	p.End(t)
}

// Ask asks the process to end.
func (p *Process) Ask() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// End waits for the end of the process, and wants it to be a good one.
func (p *Process) End(t *testing.T) {
	t.Helper()
	timer := time.AfterFunc(Patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("%s: exit %d\n%s", p.cmd.Path, code, p.log)
	}
}

// Await waits until the log has what the pattern wants, and gives its groups.
func (p *Process) Await(t *testing.T, pattern string) []string {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	for {
		text, more := p.log.read()
		if found := wanted.FindStringSubmatch(text); found != nil {
			return found
		}
		select {
		case <-more:
		case <-p.ended:
			if text, _ := p.log.read(); !wanted.MatchString(text) {
				t.Fatalf("%s ended without %q in its log:\n%s", p.cmd.Path, pattern, text)
			}
		case <-timer.C:
			t.Fatalf("no %q in the log of %s:\n%s", pattern, p.cmd.Path, text)
		}
	}
}

// Ended is closed when the process has ended and its log is whole.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Log is all that the process wrote so far.
func (p *Process) Log() string { return p.log.String() }

// logText keeps what a process writes.
type logText struct {
	mu   sync.Mutex // protects the fields below
	text strings.Builder
	more chan struct{} // closed by the next Write
}

// Write keeps some more (io.Writer).
func (l *logText) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.more)
	l.more = make(chan struct{})
	l.text.Write(text)
	return len(text), nil
}

// read gives all there is, and what is closed when there is more.
func (l *logText) read() (text string, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String(), l.more
}

// String is all there is.
func (l *logText) String() string {
	text, _ := l.read()
	return text
}
