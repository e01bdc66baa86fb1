// Package victim runs a built broker that is killed, asked to end and started again, always on the same ports and the same data.
package victim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// patience is how long a broker may take to start or to end: ample, since it is spent on a failure only.
const patience = 30 * time.Second

// Config says what is run, and where.
type Config struct {
	// Program is the built broker, Policies its policy file, Dir a directory for its data and its logs.
	Program, Policies, Dir string
}

// Victim is the broker. Its methods are for one goroutine, Address and Wrong aside.
type Victim struct {
	cfg     Config
	address string
	life    *life
	lives   int
}

// life is one process.
type life struct {
	cmd   *exec.Cmd
	log   string        // its file
	ended chan struct{} // closed when the process has ended
	err   error         // of Wait, once ended
}

// Build builds the broker into that file.
func Build(ctx context.Context, program string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, "github.com/sallyport/sallyport/cmd/sallyport") //nolint:gosec // where the audit wants it
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Start starts it for the first time, on a port that rnd draws.
func Start(ctx context.Context, cfg Config, rnd *rand.Rand) (*Victim, error) {
	v := &Victim{cfg: cfg}
	var err error
	if v.address, err = freePort(ctx, rnd); err != nil {
		return nil, err
	}
	if err := v.start(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

// Address of its gRPC listener, in all its lives.
func (v *Victim) Address() string { return v.address }

// Kill ends it at once, as a power failure would, and returns when it is dead.
func (v *Victim) Kill() error { return v.end(syscall.SIGKILL) }

// Terminate asks it to end and waits for that. An end that is not clean is an error.
func (v *Victim) Terminate() error { return v.end(syscall.SIGTERM) }

// Restart starts it again after its end, and returns when it serves.
func (v *Victim) Restart(ctx context.Context) error { return v.start(ctx) }

// Wrong looks through the log of the last life, which has ended, for what must not be there.
func (v *Victim) Wrong() string {
	text, err := os.ReadFile(v.life.log)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "panic") || strings.Contains(line, "fatal error") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func (v *Victim) end(s syscall.Signal) error {
	select {
	case <-v.life.ended:
		return fmt.Errorf("the broker had ended by itself: %w\n%s", v.life.err, tail(v.life.log))
	default:
	}
	_ = v.life.cmd.Process.Signal(s) // it may be ending this moment
	timer := time.AfterFunc(patience, func() { _ = v.life.cmd.Process.Kill() })
	<-v.life.ended
	if !timer.Stop() {
		return fmt.Errorf("the broker did not end within %s\n%s", patience, tail(v.life.log))
	}
	if s == syscall.SIGTERM && v.life.err != nil {
		return fmt.Errorf("the broker ended badly: %w\n%s", v.life.err, tail(v.life.log))
	}
	return nil
}

func (v *Victim) start(ctx context.Context) error {
	v.lives++
	l := &life{log: filepath.Join(v.cfg.Dir, fmt.Sprintf("broker-%03d.log", v.lives)), ended: make(chan struct{})}
	log, err := os.Create(l.log)
	if err != nil {
		return fmt.Errorf("log of the broker: %w", err)
	}
	l.cmd = exec.Command(v.cfg.Program, "serve", "--grpc", v.address, "--http", "127.0.0.1:0", "--dev", //nolint:gosec,noctx // what is audited; it is ended by its signals
		"--data", filepath.Join(v.cfg.Dir, "data"), "--policies", v.cfg.Policies)
	l.cmd.Env, l.cmd.Stdout, l.cmd.Stderr = environment(), log, log
	dieWithUs(l.cmd)
	started := make(chan error, 1) // receives one value
	go func() {
		defer close(l.ended)
		defer func() { _ = log.Close() }() // the process has its own
		// The kernel takes the end of the thread that starts a process for the end of its parent: this one stays until the process ends.
		runtime.LockOSThread()
		err := l.cmd.Start()
		started <- err
		if err == nil {
			l.err = l.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start of the broker: %w", err)
	}
	v.life = l
	return v.serves(ctx)
}

// serves waits until it says so.
func (v *Victim) serves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		if text, err := os.ReadFile(v.life.log); err == nil && strings.Contains(string(text), "msg=serving") {
			return nil
		}
		select {
		case <-ticker.C:
		case <-v.life.ended:
			return fmt.Errorf("the broker ended before it served: %w\n%s", v.life.err, tail(v.life.log))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the broker does not serve: %w\n%s", ctx.Err(), tail(v.life.log)), v.Kill())
		}
	}
}

// environment is ours, without what is set for other brokers.
func environment() []string {
	var kept []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SALLYPORT_") && !strings.HasPrefix(e, "OTEL_") {
			kept = append(kept, e)
		}
	}
	return kept
}

// freePort draws a port below those that connections get by themselves: while the broker is dead, nobody takes it by accident.
func freePort(ctx context.Context, rnd *rand.Rand) (string, error) {
	const first, many, tries = 20_000, 12_000, 100
	var last error
	for range tries {
		address := fmt.Sprintf("127.0.0.1:%d", first+rnd.IntN(many))
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			return address, l.Close() //nolint:wrapcheck // says all there is to say
		}
		last = err
	}
	return "", fmt.Errorf("no free port: %w", last)
}

// tail is the end of a log.
func tail(file string) string {
	const most = 2000
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
