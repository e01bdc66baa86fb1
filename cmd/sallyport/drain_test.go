package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// process is a broker in a process of its own, as an operator runs it.
type process struct {
	cmd     *exec.Cmd
	address string // of gRPC
	client  *client.Client
	lines   <-chan string // closed when the process has closed its log
}

// startProcess runs `sallyport serve` until it says that it serves.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	socket := "unix:" + filepath.Join(dir, "s")
	all := append([]string{"serve", "--grpc", socket, "--http", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--dev"}, args...)
	p := &process{cmd: exec.CommandContext(t.Context(), "sallyport", all...), address: socket} // see TestMain
	log, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(log); s.Scan(); {
			lines <- s.Text()
		}
	}()
	p.lines = lines
	p.await(t, "msg=serving")
	if p.client, err = client.Dial(socket, client.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.client.Close() })
	return p
}

// await reads the log up to a line with that text.
func (p *process) await(t *testing.T, text string) {
	t.Helper()
	var read []string
	for line := range p.lines {
		if strings.Contains(line, text) {
			return
		}
		read = append(read, line)
	}
	t.Fatalf("no %q in the log:\n%s", text, strings.Join(read, "\n"))
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// end waits for the end of the process and gives its exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	for range p.lines { // the pipe must be read before Wait
	}
	_ = p.cmd.Wait() // the code tells
	return p.cmd.ProcessState.ExitCode()
}

// callers make calls without a pause until one does not get through, which they tell.
func callers(t *testing.T, n int, c *client.Client, url string) (wait func() []called) {
	t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	var all []called
	for range n {
		running.Go(func() {
			for {
				resp, err := callFor(t, c, url)
				mu.Lock()
				all = append(all, called{resp, err})
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	return func() []called {
		running.Wait()
		return all
	}
}

// SIGTERM under load: whoever was let in gets an answer, whoever was not learns that nothing was sent, and the process ends well.
func TestSIGTERMUnderLoadLosesNoCall(t *testing.T) {
	const load = 8
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200, after: 20 * time.Millisecond}}})
	slow, arrived, release := slowUpstream(t)
	p := startProcess(t)
	wait := callers(t, load, p.client, upstream.url+"/")
	result := inFlight(t, p.client, slow, arrived)
	for range 3 * load { // the load has taken hold
		if _, err := callFor(t, p.client, upstream.url+"/"); err != nil {
			t.Fatal(err)
		}
	}
	p.signal(t, syscall.SIGTERM)
	p.await(t, `msg="draining;`)
	all := wait()
	refusedCalls := 0
	for _, got := range all {
		switch r := client.Explain(got.err); {
		case got.err == nil && got.resp.GetOutcome() == pb.Outcome_OUTCOME_SUCCESS:
		case r.Code == codes.Unavailable && r.Reason == "DRAINING" && r.NothingSent:
			refusedCalls++
		default:
			t.Errorf("%v, %v", got.resp.GetOutcome(), got.err)
		}
	}
	if refusedCalls != load {
		t.Errorf("%d callers were refused with a clear word, want %d", refusedCalls, load)
	}
	release <- struct{}{}
	if got := <-result; got.err != nil || got.resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("the call in flight: %v, %v", got.resp.GetOutcome(), got.err)
	}
	if code := p.end(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	t.Logf("%d calls", len(all))
}

// A second signal ends the process within two seconds, and every call in flight still gets the truth.
func TestSecondSIGTERMTellsEveryCallTheTruth(t *testing.T) {
	url, arrived, _ := slowUpstream(t)
	p := startProcess(t)
	results := make([]<-chan called, 4)
	for i := range results {
		results[i] = inFlight(t, p.client, url, arrived)
	}
	p.signal(t, syscall.SIGTERM)
	p.await(t, `msg="draining;`)
	p.signal(t, syscall.SIGHUP) // means nothing here
	begin := time.Now()
	p.signal(t, syscall.SIGTERM)
	for _, result := range results {
		got := <-result
		if got.err != nil || got.resp.GetOutcome() != pb.Outcome_OUTCOME_CANCELLED || got.resp.GetEffect() != pb.Effect_EFFECT_UNKNOWN ||
			got.resp.GetSends() != 1 || got.resp.GetDetail() != "the broker was ended before the call was over" {
			t.Errorf("%v, %v", got.resp, got.err)
		}
	}
	if code := p.end(t); code != 0 || time.Since(begin) > 2*time.Second {
		t.Errorf("exit %d after %v", code, time.Since(begin))
	}
}

func TestSIGHUPReadsTheFilesAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	replaceFile(t, file, marked("1"))
	p := startProcess(t, "--policies", file)
	replaceFile(t, file, marked("2"))
	p.signal(t, syscall.SIGHUP)
	p.await(t, "changed=policies/all@2")
	p.signal(t, syscall.SIGTERM)
	if code := p.end(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
