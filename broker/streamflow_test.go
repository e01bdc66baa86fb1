package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// stalls waits until a count that grows has stood still for a while, and gives it.
func stalls(t testing.TB, count *atomic.Int64) int64 {
	t.Helper()
	const quiet = 300 * time.Millisecond
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for last := int64(-1); ; timer.Reset(quiet) {
		select {
		case <-timer.C:
		case <-t.Context().Done():
		}
		now := count.Load()
		if now == last && now > 0 {
			return now
		}
		last = now
	}
}

// endless writes until that fails, and counts the bytes.
func endless(count *atomic.Int64, write func(p []byte) error) {
	p := make([]byte, 16<<10)
	for write(p) == nil {
		count.Add(int64(len(p)))
	}
}

// mostOnTheWay is what sockets, windows and buffers may hold of a body that nobody takes.
const mostOnTheWay = 24 << 20

func (r *running) emptied(t testing.TB) {
	t.Helper()
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for load := r.server.Load(); load.Calls != 0 || load.Bytes != 0; load = r.server.Load() {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Errorf("still taken: %+v", load)
			return
		}
	}
}

func TestStreamCallHasASlowCallerHoldUpTheUpstream(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			var sent atomic.Int64
			gone := make(chan struct{})
			up := newWeb(t, protocol, func(w http.ResponseWriter, _ *http.Request) {
				defer close(gone)
				endless(&sent, func(p []byte) error { _, err := w.Write(p); return err })
			})
			up.rule.Attempt.IdleBodyTimeout = new(100 * time.Millisecond) // it is the upstream's, and does not run for a slow caller
			r := start(t, setup{rules: []policy.Rule{up.rule}})
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			s := r.open(ctx, t, headOf("GET", up.URL))
			_ = s.CloseSend()
			if n := stalls(t, &sent); n > mostOnTheWay {
				t.Errorf("%d bytes for a caller that takes none", n)
			}
			got := int64(0)
			for got < 3*mostOnTheWay { // once he does, it goes on
				m, err := s.Recv()
				if err != nil {
					t.Fatal(err)
				}
				got += int64(len(m.GetChunk()))
			}
			if n := stalls(t, &sent) - got; n > mostOnTheWay {
				t.Errorf("%d bytes ahead of a caller that has stopped", n)
			}
			cancel()
			<-gone
			r.emptied(t)
		})
	}
}

func TestStreamCallHasASlowUpstreamHoldUpTheCaller(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			proceed, total := make(chan struct{}), make(chan int64, 1)
			up := newWeb(t, protocol, func(_ http.ResponseWriter, r *http.Request) {
				<-proceed
				n, _ := io.Copy(io.Discard, r.Body)
				total <- n
			})
			r := start(t, setup{rules: []policy.Rule{up.rule}})
			s := r.open(within(t), t, headOf("POST", up.URL))
			var sent atomic.Int64
			stop := make(chan struct{})
			go func() {
				endless(&sent, func(p []byte) error {
					select {
					case <-stop:
						return io.EOF
					default:
						return s.Send(chunk(p))
					}
				})
				_ = s.CloseSend()
			}()
			if n := stalls(t, &sent); n > mostOnTheWay {
				t.Errorf("%d bytes for an upstream that takes none", n)
			}
			close(stop)
			close(proceed)
			h := listenTo(t, s)
			h.wants(t, "SUCCESS/SUCCESS/ANSWERED: ANSWERED", 200, "")
			if got, want := <-total, sent.Load(); got != want {
				t.Errorf("%d bytes arrived of %d", got, want)
			}
		})
	}
}

func TestStreamCallEndsWithAnEarlyAnswer(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			up := newWeb(t, protocol, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadFull(r.Body, make([]byte, 100<<10))
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				_, _ = w.Write([]byte("enough"))
			})
			r := start(t, setup{rules: []policy.Rule{up.rule}})
			s := r.open(within(t), t, headOf("POST", up.URL))
			ended := make(chan error, 1)
			go func() {
				var sent atomic.Int64
				endless(&sent, func(p []byte) error {
					err := s.Send(chunk(p))
					if err != nil {
						ended <- err
					}
					return err
				})
			}()
			h := listenTo(t, s)
			h.wants(t, "HTTP_ERROR/STATUS_NOT_RETRYABLE/ANSWERED: ANSWERED", 413, "enough")
			if err := <-ended; !errors.Is(err, io.EOF) {
				t.Errorf("the upload ended with %v", err)
			}
			r.emptied(t)
		})
	}
}

func TestStreamCallEndsWithItsCaller(t *testing.T) {
	for _, protocol := range protocols {
		for name, begin := range map[string]func(w http.ResponseWriter){
			"before the head": func(http.ResponseWriter) {},
			"in the midst of the answer": func(w http.ResponseWriter) {
				_, _ = w.Write([]byte("half"))
				_ = http.NewResponseController(w).Flush()
			},
		} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				began, gone := make(chan struct{}), make(chan time.Time, 1)
				up := newWeb(t, protocol, func(w http.ResponseWriter, r *http.Request) {
					begin(w)
					close(began)
					<-r.Context().Done()
					gone <- time.Now()
				})
				r := start(t, setup{rules: []policy.Rule{up.rule}})
				ctx, cancel := context.WithCancel(within(t))
				defer cancel()
				s := r.open(ctx, t, headOf("GET", up.URL))
				_ = s.CloseSend()
				<-began
				at := time.Now()
				cancel()
				if h := listenTo(t, s); status.Code(h.err) != codes.Canceled {
					t.Errorf("%v", h.err)
				}
				if took := (<-gone).Sub(at); took > 2*time.Second {
					t.Errorf("the upstream saw the end after %v", took)
				}
				r.emptied(t)
			})
		}
	}
}

func TestStreamCallKeepsItsCallersDeadline(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			up := newWeb(t, protocol, func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte("half"))
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			r := start(t, setup{rules: []policy.Rule{up.rule}})
			ctx, cancel := context.WithTimeout(within(t), 500*time.Millisecond)
			defer cancel()
			h := r.stream(ctx, t, headOf("GET", up.URL), nil)
			h.wants(t, "DEADLINE_EXCEEDED/DEADLINE/UNKNOWN: PARTIAL_RESPONSE", 200, "half")
		})
	}
}

func TestStreamCallEndsWithTheBroker(t *testing.T) {
	began := make(chan struct{})
	up := newWeb(t, "HTTP/1.1", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 10))
		close(began)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	r := start(t, setup{rules: []policy.Rule{up.rule}})
	s := r.open(within(t), t, headOf("POST", up.URL))
	if err := s.Send(chunk(make([]byte, 10))); err != nil {
		t.Fatal(err)
	}
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.server.Drain(ctx)
	}()
	for !r.server.Draining() {
		if err := s.Send(chunk([]byte("more"))); err != nil { // one in flight goes on
			t.Fatal(err)
		}
	}
	cancel()
	if h := listenTo(t, s); h.says() != "CANCELLED/CANCELLED/UNKNOWN: SENT_NO_RESPONSE" {
		t.Errorf("%s", h.says())
	}
	<-drained
}

func TestStreamCallCountsAgainstTheLimits(t *testing.T) {
	up := newWeb(t, "HTTP/1.1", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	r := start(t, setup{rules: []policy.Rule{up.rule}, limits: Limits{MaxCalls: 1}})
	s := r.open(within(t), t, headOf("POST", up.URL))
	for r.server.Load().Calls == 0 {
		if err := s.Send(chunk([]byte("x"))); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := r.server.Load().Bytes, uint64(1<<20+1<<20+64<<10+64<<10); got != want {
		t.Errorf("counts %d bytes, want %d", got, want)
	}
	if h := r.stream(within(t), t, headOf("POST", up.URL), bytes.NewReader([]byte("x"))); status.Code(h.err) != codes.ResourceExhausted || unsent(h.err) != "BROKER_FULL" {
		t.Errorf("%v", h.err)
	}
	_ = s.CloseSend()
	if h := listenTo(t, s); h.result.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("%s", h.says())
	}
	r.emptied(t)
}

// An error in answer to an upload may have come before that was read: what is left of it must never be read as the next request.
func TestStreamCallTrustsNoConnectionThatRefusedAnUpload(t *testing.T) {
	var mu sync.Mutex
	refused, again := map[string]bool{}, 0
	up := newWeb(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		if refused[r.RemoteAddr] {
			again++
		}
		if r.URL.Path == "/refused" {
			refused[r.RemoteAddr] = true
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	r := start(t, setup{rules: []policy.Rule{up.rule}})
	for i := range 20 {
		path := "/refused"
		if i%2 == 0 {
			path = "/taken"
		}
		if h := r.stream(within(t), t, headOf("PUT", up.URL+path), bytes.NewReader([]byte("body"))); h.err != nil {
			t.Fatal(h.err)
		}
	}
	if again > 0 || len(refused) != 10 {
		t.Errorf("%d requests on the connections of %d refused ones", again, len(refused))
	}
}
