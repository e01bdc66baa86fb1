package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// trunkBubble is an HTTP/2 server over TLS and a network in memory, where time is exact.
type trunkBubble struct {
	*streams

	tr     *Transport
	p      *policy.Effective
	dialed atomic.Int64
	dial   func(context.Context) error // what happens before a connection is there; nil: nothing
	open   atomic.Int64                // connections that have not ended yet
	wrap   func(net.Conn) net.Conn     // around the client's side; nil: nothing
}

func inTrunkBubble(t *testing.T, serve func(*stream), change func(*trunkBubble), f func(t *testing.T, b *trunkBubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &trunkBubble{streams: &streams{authority: newAuthority(t), serve: serve}}
		protocols := []string{alpnHTTP2, alpnHTTP1}
		b.p = b.authority.trusting(t)
		b.p.Attempt.Protocols = []policy.Protocol{policy.ProtocolHTTP2, policy.ProtocolHTTP11}
		if change != nil {
			change(b)
		}
		if serve == nil {
			protocols = []string{alpnHTTP1}
		}
		cfg := &tls.Config{Certificates: []tls.Certificate{b.authority.server(t, nil)}, NextProtos: protocols}
		b.tr = New(Config{Guard: guard.New(guard.Config{}), UserAgent: "sallyport/test", Dial: func(ctx context.Context, _ string, _ netip.AddrPort, _ func(netip.AddrPort) error) (net.Conn, error) {
			n := b.dialed.Add(1)
			if b.dial != nil {
				if err := b.dial(ctx); err != nil {
					return nil, err
				}
			}
			client, server := net.Pipe()
			b.open.Add(1)
			go func() {
				defer b.open.Add(-1)
				defer server.Close()
				if serve == nil {
					always(okAnswer)(int(n), tls.Server(server, cfg))
					return
				}
				b.connection(int(n), tls.Server(server, cfg))
			}()
			if b.wrap != nil {
				client = b.wrap(client)
			}
			return client, nil
		}})
		defer b.tr.Close()
		f(t, b)
	})
}

func (b *trunkBubble) send(t *testing.T, method string) call.Result {
	t.Helper()
	return b.tr.Send(t.Context(), newCall(t, method, "https://127.0.0.1:8443/", ""), b.p, attempt())
}

// ok makes an attempt that is answered.
func (b *trunkBubble) ok(t *testing.T, method string) call.Result {
	t.Helper()
	r := b.send(t, method)
	want(t, r, call.EvidenceAnswered, call.FailureNone)
	return r
}

// burst makes n attempts at once.
func (b *trunkBubble) burst(t *testing.T, n int, method string) []call.Result {
	t.Helper()
	results := make([]call.Result, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { results[i] = b.send(t, method) })
	}
	all.Wait()
	return results
}

func settings(streams uint32) func(*trunkBubble) {
	return func(b *trunkBubble) {
		b.settings = []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: streams}}
	}
}

// slowly answers after a second.
func slowly(st *stream) {
	time.Sleep(time.Second)
	st.ok()
}

func TestBurstSharesAConnection(t *testing.T) {
	for name, row := range map[string]struct {
		calls, limit, connections int
	}{
		"as many as it takes":               {100, 100, 1},
		"more than it takes":                {100, 40, 3},
		"more than we would put on one":     {300, 1000, 3},
		"a server that takes one at a time": {20, 1, 20},
	} {
		t.Run(name, func(t *testing.T) {
			var live, most atomic.Int64
			serve := func(st *stream) {
				if n := live.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer live.Add(-1)
				slowly(st)
			}
			inTrunkBubble(t, serve, settings(uint32(row.limit)), func(t *testing.T, b *trunkBubble) {
				t.Helper()
				begin := time.Now()
				reused := 0
				for _, r := range b.burst(t, row.calls, "POST") {
					want(t, r, call.EvidenceAnswered, call.FailureNone)
					if r.Reused {
						reused++
					}
				}
				if got := int(b.dialed.Load()); got != row.connections || reused != row.calls-row.connections {
					t.Errorf("%d connections, %d reused; want %d connections", got, reused, row.connections)
				}
				if took := time.Since(begin); took != time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestDialIsSharedAndSoIsItsFailure.
func TestDialIsSharedAndSoIsItsFailure(t *testing.T) {
	for name, row := range map[string]struct {
		dial    func(context.Context) error
		took    time.Duration
		failure call.Failure
		detail  string
	}{
		"refused":      {func(context.Context) error { time.Sleep(time.Second); return errFake }, time.Second, call.FailureConnect, "no connection"},
		"a black hole": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 3 * time.Second, call.FailureConnect, "no connection in time"},
	} {
		t.Run(name, func(t *testing.T) {
			inTrunkBubble(t, (*stream).ok, func(b *trunkBubble) { b.dial = row.dial }, func(t *testing.T, b *trunkBubble) {
				t.Helper()
				begin := time.Now()
				for _, r := range b.burst(t, 50, "POST") {
					want(t, r, call.EvidenceNotSent, row.failure)
					if r.Detail != row.detail || r.TimedOut || r.Terminal {
						t.Errorf("%+v", r)
					}
				}
				if took := time.Since(begin); took != row.took || b.dialed.Load() != 1 {
					t.Errorf("%d dials, %v", b.dialed.Load(), took)
				}
			})
		})
	}
}

// TestOneImpatientCallerSpoilsNobodysDial: the others dial again when the first one's time is up, or its caller gone.
func TestOneImpatientCallerSpoilsNobodysDial(t *testing.T) {
	dial := func(ctx context.Context) error {
		timer := time.NewTimer(2 * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for name, impatient := range map[string]func(t *testing.T, b *trunkBubble) call.Result{
		"its time is up": func(t *testing.T, b *trunkBubble) call.Result {
			t.Helper()
			return b.tr.Send(t.Context(), newCall(t, "GET", "https://127.0.0.1:8443/", ""), b.p, attemptOf(time.Second))
		},
		"it goes away": func(t *testing.T, b *trunkBubble) call.Result {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return b.tr.Send(ctx, newCall(t, "GET", "https://127.0.0.1:8443/", ""), b.p, attempt())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTrunkBubble(t, (*stream).ok, func(b *trunkBubble) { b.dial = dial }, func(t *testing.T, b *trunkBubble) {
				t.Helper()
				first := make(chan call.Result)
				go func() { first <- impatient(t, b) }()
				synctest.Wait()
				begin := time.Now()
				rest := make(chan []call.Result)
				go func() { rest <- b.burst(t, 20, "GET") }()
				if r := <-first; r.Evidence != call.EvidenceNotSent {
					t.Errorf("%+v", r)
				}
				for _, r := range <-rest {
					want(t, r, call.EvidenceAnswered, call.FailureNone)
				}
				if took := time.Since(begin); took != 3*time.Second || b.dialed.Load() != 2 {
					t.Errorf("%d dials, %v", b.dialed.Load(), took)
				}
			})
		})
	}
}

// TestServersThatChooseHTTP1AreAskedSideBySide once that is known.
func TestServersThatChooseHTTP1AreAskedSideBySide(t *testing.T) {
	inTrunkBubble(t, nil, func(b *trunkBubble) {
		b.dial = func(context.Context) error { time.Sleep(time.Second); return nil }
	}, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		begin := time.Now()
		for _, n := range []int{20, 10} {
			for _, r := range b.burst(t, n, "GET") {
				want(t, r, call.EvidenceAnswered, call.FailureNone)
				if r.Protocol != "HTTP/1.1" {
					t.Errorf("%s", r.Protocol)
				}
			}
		}
		if took := time.Since(begin); took != 2*time.Second { // one dial, then the others at once
			t.Errorf("it took %v", took)
		}
	})
}

// TestRoomIsWaitedFor where a server takes few streams and enough connections are there.
func TestRoomIsWaitedFor(t *testing.T) {
	inTrunkBubble(t, slowly, settings(1), func(t *testing.T, b *trunkBubble) {
		t.Helper()
		begin := time.Now()
		for _, r := range b.burst(t, trunksMost*3, "GET") {
			want(t, r, call.EvidenceAnswered, call.FailureNone)
		}
		if took := time.Since(begin); took != 3*time.Second || b.dialed.Load() != trunksMost {
			t.Errorf("over %d connections in %v", b.dialed.Load(), took)
		}
	})
}

// TestWaitForRoomInVainIsProofOfNothingSent.
func TestWaitForRoomInVainIsProofOfNothingSent(t *testing.T) {
	never := make(map[bool]chan struct{})
	inTrunkBubble(t, func(*stream) { <-never[true] }, func(b *trunkBubble) {
		never[true] = make(chan struct{})
		settings(1)(b)
	}, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		full := make(chan []call.Result)
		go func() { full <- b.burst(t, trunksMost, "GET") }()
		synctest.Wait()
		r := b.tr.Send(t.Context(), newCall(t, "POST", "https://127.0.0.1:8443/", ""), b.p, attemptOf(time.Second))
		want(t, r, call.EvidenceNotSent, call.FailureAttemptTimeout)
		if !r.TimedOut || r.Reused || r.Detail != "no stream became free in time on the connections to the server" || b.dialed.Load() != trunksMost {
			t.Errorf("%+v, %d connections", r, b.dialed.Load())
		}
		close(never[true])
		<-full
	})
}

// TestServerThatTakesNoStreams gets no connection after the other.
func TestServerThatTakesNoStreams(t *testing.T) {
	inTrunkBubble(t, (*stream).ok, settings(0), func(t *testing.T, b *trunkBubble) {
		t.Helper()
		b.ok(t, "GET") // before it said so
		want(t, b.send(t, "GET"), call.EvidenceNotSent, call.FailureAttemptTimeout)
		if n := b.dialed.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestServerThatNeverSaysItsSettings: nothing but the first attempt is risked on it.
func TestServerThatNeverSaysItsSettings(t *testing.T) {
	inTrunkBubble(t, func(*stream) {}, func(b *trunkBubble) { b.deaf = true }, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		sent := 0
		for _, r := range b.burst(t, 10, "POST") {
			if r.Evidence == call.EvidenceSentNoResponse {
				sent++
			} else {
				want(t, r, call.EvidenceNotSent, call.FailureAttemptTimeout)
			}
		}
		if sent != 1 || b.dialed.Load() != 1 {
			t.Errorf("%d sent over %d connections", sent, b.dialed.Load())
		}
	})
}
