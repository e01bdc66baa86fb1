package engine_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

// slowServer reads every request, notes its path, and answers after a while.
type slowServer struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex // protects the fields below
	received map[string]int
	conns    []net.Conn
}

func newSlowServer(t *testing.T) *slowServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slowServer{listener: l, received: make(map[string]int)}
	s.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.running.Go(func() { s.serve(c) })
		}
	})
	return s
}

func (s *slowServer) serve(c net.Conn) {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		if line != "" { // a part of a request is one, too
			var method, path string
			_, _ = fmt.Sscan(line, &method, &path)
			s.mu.Lock()
			s.received[path]++
			s.mu.Unlock()
		}
		if err != nil {
			return
		}
		for line != "\r\n" {
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
		}
		timer := time.NewTimer(rand.N(20 * time.Millisecond))
		<-timer.C
		if _, err := fmt.Fprintf(c, "HTTP/1.1 %d OK\r\nContent-Length: 0\r\n\r\n", http.StatusOK); err != nil {
			return
		}
	}
}

func (s *slowServer) stop() {
	_ = s.listener.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// TestWhatWasNeverSentWasNeverReceived, in the race between the request and the deadline, or the end of the caller: on real sockets, fresh
// and reused, for each of which the connection is there at about the moment at which the time is up.
func TestWhatWasNeverSentWasNeverReceived(t *testing.T) {
	calls := 4000
	if testing.Short() {
		calls = 1000
	}
	server := newSlowServer(t)
	g := guard.New(guard.Config{})
	tr := egress.New(egress.Config{
		Guard: g, UserAgent: "test",
		Dial: func(ctx context.Context, network string, to netip.AddrPort, _ func(netip.AddrPort) error) (net.Conn, error) {
			timer := time.NewTimer(rand.N(12 * time.Millisecond))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			var d net.Dialer
			return d.DialContext(ctx, network, to.String())
		},
	})
	p := *defaults(t)
	none := time.Duration(0)
	p.Deadline.CallerMargin, p.Retry.MaxAttempts, p.Attempt.Timeout = &none, 1, 10*time.Second
	p.Concurrency = policy.Concurrency{}
	p.Breaker.ConsecutiveFailures, p.Breaker.MinRequests = 0, 1_000_000
	p.Egress.Rules = guard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowLoopback: true, AnyPort: true, AllowHTTP: true}
	e := engine.New(tr, traced{}, g, engine.NewOrigins())

	var mu sync.Mutex
	unsent, unknown, late, settled := map[string]bool{}, 0, 0, 0
	one := func(i int) {
		path := fmt.Sprintf("/%d", i)
		target, err := call.ParseTarget("http://" + server.listener.Addr().String() + path)
		if err != nil {
			t.Error(err)
			return
		}
		budget := 6*time.Millisecond + rand.N(8*time.Millisecond)
		now := time.Now()
		c := &call.Call{Method: "POST", Target: target, Caller: "one", Arrived: now, Deadline: now.Add(budget), MayRunOn: true, OperationID: path}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if i%2 == 0 { // the caller goes away instead
			c.Deadline = now.Add(5 * time.Second)
			defer time.AfterFunc(budget, cancel).Stop()
		}
		f := e.Do(ctx, c, &p)
		final := f
		if f.Late != nil {
			final = <-f.Late
		}
		mu.Lock()
		defer mu.Unlock()
		if f.Sends == 0 || final.Sends == 0 {
			unsent[path] = true
		}
		if f.Sends == 0 && (f.Effect != call.EffectNone || f.Late != nil) {
			t.Errorf("%s: nothing was sent, %s, late %t", path, f.Effect, f.Late != nil)
		}
		if f.Late != nil {
			late++
			if final.Outcome == call.OutcomeSuccess {
				settled++
			}
		}
		if f.Effect == call.EffectUnknown {
			unknown++
		}
	}
	places := make(chan struct{}, 48)
	var all sync.WaitGroup
	for i := range calls {
		places <- struct{}{}
		all.Go(func() {
			one(i)
			<-places
		})
	}
	all.Wait()
	e.Wait(t.Context())
	tr.Close()
	server.stop()
	server.mu.Lock()
	defer server.mu.Unlock()
	for path, times := range server.received {
		if unsent[path] || times != 1 {
			t.Errorf("%s was received %d times; said to be unsent: %t", path, times, unsent[path])
		}
	}
	t.Logf("%d calls: %d received, %d never sent, %d unknown, of which %d ran on and %d were settled", calls, len(server.received), len(unsent), unknown, late, settled)
	if len(unsent) == 0 || late == 0 || settled == 0 {
		t.Error("the race was not met")
	}
}
