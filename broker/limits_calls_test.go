package broker

import (
	"context"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// taken is what stands in the books.
func (c *capacity) taken() (calls, bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls, c.bytes
}

func TestCapacityAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCapacity(Limits{MaxCalls: rapid.Uint64Range(1, 5).Draw(t, "calls"), MaxBytes: rapid.Uint64Range(1, 100).Draw(t, "bytes")})
		var inside []room
		sum := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.OneOf(rapid.Uint64Range(0, 60), rapid.Just(uint64(math.MaxUint64))).Draw(t, "n")
				fits := uint64(len(inside)) < c.limits.MaxCalls && n <= 100 && sum+n <= c.limits.MaxBytes
				r, err := c.take(n)
				if (err == nil) != fits {
					t.Fatalf("%d bytes beside %d in %d calls, limits %+v: %v", n, sum, len(inside), c.limits, err)
				}
				if fits {
					inside, sum = append(inside, r), sum+n
				}
			},
			"give back": func(t *rapid.T) {
				if len(inside) == 0 {
					t.Skip("nothing is taken")
				}
				i := rapid.IntRange(0, len(inside)-1).Draw(t, "which")
				inside[i].giveBack()
				sum -= inside[i].bytes
				inside = append(inside[:i], inside[i+1:]...)
			},
			"": func(t *rapid.T) {
				if calls, bytes := c.taken(); calls != uint64(len(inside)) || bytes != sum {
					t.Fatalf("%d calls, %d bytes; the model says %d, %d", calls, bytes, len(inside), sum)
				}
			},
		})
	})
}

func TestCapacityIsNeverExceededInARace(t *testing.T) {
	limits := Limits{MaxCalls: 7, MaxBytes: 100}
	c := newCapacity(limits)
	var mu sync.Mutex // protects the counts, which are kept beside the capacity's own
	var calls, bytes, most, mostBytes uint64
	var callers sync.WaitGroup
	for g := range uint64(32) {
		callers.Go(func() {
			for i := range uint64(200) {
				n := (g*31 + i*17) % 40
				r, err := c.take(n)
				if err != nil {
					continue
				}
				mu.Lock()
				calls, bytes = calls+1, bytes+n
				most, mostBytes = max(most, calls), max(mostBytes, bytes)
				mu.Unlock()
				runtime.Gosched() // others come in meanwhile, up to the limits
				mu.Lock()
				calls, bytes = calls-1, bytes-n
				mu.Unlock()
				r.giveBack()
			}
		})
	}
	callers.Wait()
	if most > limits.MaxCalls || mostBytes > limits.MaxBytes || most <= 1 {
		t.Errorf("%d calls and %d bytes at once", most, mostBytes)
	}
	if calls, bytes := c.taken(); calls != 0 || bytes != 0 {
		t.Errorf("%d calls and %d bytes are left behind", calls, bytes)
	}
}

// refusedAsFull fails unless the error is that of a full broker, with all that a caller needs.
func refusedAsFull(t *testing.T, err error, word string) {
	t.Helper()
	retry := detail[errdetails.RetryInfo](err)
	if status.Code(err) != codes.ResourceExhausted || unsent(err) != "BROKER_FULL" || retry.GetRetryDelay().AsDuration() != time.Second {
		t.Errorf("%v, unsent reason %q, retry in %s", err, unsent(err), retry.GetRetryDelay().AsDuration())
	}
	if !strings.Contains(status.Convert(err).Message(), word) {
		t.Errorf("%v does not name %s", err, word)
	}
}

// refusedForEver fails unless the error says that the call does not fit, and gives no time to ask again.
func refusedForEver(t *testing.T, err error) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || unsent(err) != "BROKER_FULL" || !strings.Contains(status.Convert(err).Message(), "smaller body") {
		t.Errorf("%v, unsent reason %q", err, unsent(err))
	}
	if retry := detail[errdetails.RetryInfo](err); retry != nil {
		t.Errorf("told to ask again in %s", retry.GetRetryDelay().AsDuration())
	}
}

// gated is a sender whose calls to /hold wait for the test.
func gated(entered chan<- struct{}, proceed <-chan struct{}) senderFunc {
	return func(ctx context.Context, c *call.Call) call.Result {
		switch c.Target.Path {
		case "/panic":
			panic("made for a test")
		case "/hold":
			entered <- struct{}{}
			select {
			case <-proceed:
			case <-ctx.Done():
				return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureCancelled, Detail: "cancelled"}
			}
		}
		return answered(200)
	}
}

func TestFullBrokerRefusesUnsentAndRecovers(t *testing.T) {
	entered, proceed := make(chan struct{}, 2), make(chan struct{})
	r := start(t, setup{limits: Limits{MaxCalls: 2}, sender: gated(entered, proceed)})
	ended := make(chan error, 2) // receives one value for each held call, never closed
	for range 2 {
		go func() {
			_, err := r.calls.Call(within(t), get("http://127.0.0.1/hold"))
			ended <- err
		}()
		over(t, "the way to the sender", entered)
	}
	_, err := r.calls.Call(within(t), get("http://127.0.0.1/"))
	refusedAsFull(t, err, "--max-calls")
	_, err = r.calls.Call(within(t), get("ftp://127.0.0.1/")) // what is to be mended is told all the same
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a malformed call at a full broker: %v", err)
	}
	close(proceed)
	for range 2 {
		if err := over(t, "a call in flight", ended); err != nil {
			t.Errorf("a call in flight: %v", err)
		}
	}
	if resp, err := r.calls.Call(within(t), get("http://127.0.0.1/")); err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("afterwards: %v, %v", resp, err)
	}
}

func TestBytesAreCountedBeforeTheCall(t *testing.T) {
	const limit = answerShare
	entered, proceed := make(chan struct{}, 1), make(chan struct{})
	r := start(t, setup{limits: Limits{MaxBytes: limit}, sender: gated(entered, proceed)})
	ask := func(method, path string, body int, answer uint64) error {
		_, err := r.calls.Call(within(t), &pb.CallRequest{
			Request: &pb.HttpRequest{Method: method, Url: "http://127.0.0.1" + path, Body: make([]byte, body)}, MaxResponseBytes: answer,
		})
		return err
	}
	refusedForEver(t, ask("PUT", "/", 1, 0)) // one byte beside the share of an answer
	refusedForEver(t, ask("PUT", "/", 1, limit))
	for _, err := range []error{ask("GET", "/", 0, 0), ask("GET", "/", 0, 10*limit), ask("GET", "/", 0, limit), ask("PUT", "/", limit-1, 1), ask("HEAD", "/", 0, 0)} {
		if err != nil {
			t.Error(err)
		}
	}
	ended := make(chan error, 1) // receives one value, never closed
	go func() { ended <- ask("PUT", "/hold", 1000, limit-2000) }()
	over(t, "the way to the sender", entered)
	if err := ask("GET", "/", 0, 1000); err != nil {
		t.Errorf("the last thousand bytes: %v", err)
	}
	refusedAsFull(t, ask("GET", "/", 0, 1001), "--max-bytes")
	close(proceed)
	if err := over(t, "the held call", ended); err != nil {
		t.Error(err)
	}
	if err := ask("GET", "/", 0, limit); err != nil {
		t.Errorf("given back, but: %v", err)
	}
}

// Success, panic, cancellation, refusal: whatever becomes of a call, its room comes back.
func TestRoomComesBackHoweverACallEnds(t *testing.T) {
	entered := make(chan struct{}, 1)
	r := start(t, setup{limits: Limits{MaxBytes: 100 << 20}, sender: gated(entered, nil)})
	for range 10 {
		ctx, cancel := context.WithCancel(within(t))
		var callers sync.WaitGroup
		ask := func(path string, answer uint64) {
			callers.Go(func() {
				req := get("http://127.0.0.1" + path)
				req.MaxResponseBytes = answer
				_, _ = r.calls.Call(ctx, req) // each way to end is one of those meant here
			})
		}
		ask("/hold", 0)
		over(t, "the way to the sender", entered)
		for i := range uint64(10) {
			ask("/", i)
			ask("/panic", i)
		}
		cancel()
		callers.Wait()
	}
	// A cancelled call ends at its caller before it ends here: the drain waits for the handlers.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.server.Drain(ctx)
	if calls, bytes := r.service.capacity.taken(); calls != 0 || bytes != 0 {
		t.Errorf("%d calls and %d bytes are left behind", calls, bytes)
	}
}
