package broker

import (
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// pour writes the answer's begin and then the same again and again, every few milliseconds when slow, until the peer has had enough.
func pour(begin, again string, slow bool) step {
	return func(c net.Conn) bool {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		_, err := io.WriteString(c, begin)
		for err == nil {
			if slow {
				<-tick.C
			}
			_, err = io.WriteString(c, again)
		}
		return false
	}
}

// TestHostileUpstreamCostsItsCallersNothingElse: fifty calls at once that an upstream would keep for ever. Each ends in time with the
// truth, a call beside them is answered, the memory they take is bounded, and their room comes back.
func TestHostileUpstreamCostsItsCallersNothingElse(t *testing.T) {
	const (
		atOnce    = 50
		bodyLimit = 64 << 10
		// bound is for a call: request, reply, goroutines of both ends, buffers, and a body with the piece it outgrew.
		bound = 4*bodyLimit + 1<<20
		long  = "HTTP/1.1 200 OK\r\n"
	)
	rule := policy.Rule{Name: "policies/hostile", Revision: 1, File: true}
	rule.Retry.MaxAttempts = new(uint32(1))
	rule.Body.MaxResponseBytes = new(uint64(bodyLimit))
	for _, row := range []struct {
		name    string
		answer  step
		outcome pb.Outcome
		failure pb.Failure
	}{
		{"headers that drip", pour(long, "A: x\r\n", true), pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, pb.Failure_FAILURE_ATTEMPT_TIMEOUT},
		{"a body that drips", pour(long+"Content-Length: 50000\r\n\r\n", "x", true), pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, pb.Failure_FAILURE_ATTEMPT_TIMEOUT},
		{"interim answers without end", pour("", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100), false), pb.Outcome_OUTCOME_RESPONSE_REJECTED, pb.Failure_FAILURE_RESPONSE_TOO_LARGE},
		{"90 KB of headers", pour(long+"A: "+strings.Repeat("x", 90_000), "\r\n", false), pb.Outcome_OUTCOME_RESPONSE_REJECTED, pb.Failure_FAILURE_RESPONSE_TOO_LARGE},
		{"a body without end", pour(long+"\r\n", strings.Repeat("x", 4096), false), pb.Outcome_OUTCOME_RESPONSE_REJECTED, pb.Failure_FAILURE_RESPONSE_TOO_LARGE},
		{"a declared terabyte", pour(long+"Content-Length: 1000000000000\r\n\r\n", strings.Repeat("x", 4096), false), pb.Outcome_OUTCOME_RESPONSE_REJECTED, pb.Failure_FAILURE_RESPONSE_TOO_LARGE},
	} {
		t.Run(row.name, func(t *testing.T) {
			// What does not end by the clock ends by a limit, long before its ten seconds.
			rule.Attempt.Timeout = new(10 * time.Second)
			if row.failure == pb.Failure_FAILURE_ATTEMPT_TIMEOUT {
				rule.Attempt.Timeout = new(500 * time.Millisecond)
			}
			hostile, sound := scripted(t, row.answer), scripted(t, say(okAnswer))
			r := start(t, setup{rules: []policy.Rule{rule}, limits: Limits{MaxBytes: (atOnce + 1) * bodyLimit}})
			replies := make([]*pb.CallResponse, atOnce)
			peak := heapPeak(func() {
				var callers sync.WaitGroup
				for i := range replies {
					callers.Go(func() {
						resp, err := r.calls.Call(within(t), get(hostile.url("/")))
						if err != nil {
							t.Error(err)
						}
						replies[i] = resp
					})
				}
				if resp, err := r.calls.Call(within(t), get(sound.url("/"))); err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
					t.Errorf("the call beside them: %v, %v", resp, err)
				}
				callers.Wait()
			})
			for _, resp := range replies {
				if resp.GetOutcome() != row.outcome || len(resp.GetAttempts()) != 1 || resp.GetAttempts()[0].GetFailure() != row.failure || resp.GetEffect() != pb.Effect_EFFECT_UNKNOWN {
					t.Fatalf("got %v", resp)
				}
			}
			if peak > atOnce*bound {
				t.Errorf("%d KiB at once, more than %d", peak>>10, atOnce*bound>>10)
			}
			if calls, bytes := r.service.capacity.taken(); calls != 0 || bytes != 0 {
				t.Errorf("%d calls and %d bytes are left behind", calls, bytes)
			}
		})
	}
}

// heapPeak runs f and gives the highest heap seen beside it, over the heap before it.
func heapPeak(f func()) int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, peak := m.HeapAlloc, m.HeapAlloc
	done := make(chan struct{}) // closed when f has returned
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
	})
	f()
	close(done)
	watching.Wait()
	return int(peak - before)
}
