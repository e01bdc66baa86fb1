package egress

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

func TestIdleTrunks(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*trunkBubble)
		idle   time.Duration
		method string
		reused bool
	}{
		{"a POST takes a young one", nil, 2*time.Second - 1, "POST", true},
		{"and no old one", nil, 2 * time.Second, "POST", false},
		{"a GET takes an old one", nil, 2 * time.Second, "GET", true},
		{"a GET takes one of a minute", nil, 80 * time.Second, "GET", true},
		{"but none for ever", nil, idleLife + sweepEvery, "GET", false},
		{"max_idle_unsafe 0: a fresh one every time", func(b *trunkBubble) { b.p.Attempt.MaxIdleUnsafe = 0 }, 0, "POST", false},
		{"which is nothing to a GET", func(b *trunkBubble) { b.p.Attempt.MaxIdleUnsafe = 0 }, 0, "GET", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			inTrunkBubble(t, (*stream).ok, row.change, func(t *testing.T, b *trunkBubble) {
				t.Helper()
				b.ok(t, "POST")
				time.Sleep(row.idle)
				if r := b.ok(t, row.method); r.Reused != row.reused {
					t.Errorf("reused %t", r.Reused)
				}
				synctest.Wait()
				if n := b.open.Load(); n != 1 {
					t.Errorf("%d connections are open: a fresh one takes the place of the old one", n)
				}
				time.Sleep(idleLife + 2*sweepEvery)
				if n := b.open.Load(); n != 0 || len(b.tr.pool.trunks.groups) != 0 {
					t.Errorf("%d connections and %d groups are kept", n, len(b.tr.pool.trunks.groups))
				}
			})
		})
	}
}

// TestSignOfLifeKeepsATrunkYoung: a server that pings is there.
func TestSignOfLifeKeepsATrunkYoung(t *testing.T) {
	pings := func(st *stream) {
		st.ok()
		for range 5 {
			time.Sleep(1500 * time.Millisecond)
			st.write(func() error { return st.fr.WritePing(false, [8]byte{}) })
		}
	}
	inTrunkBubble(t, pings, nil, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		b.ok(t, "POST")
		time.Sleep(5 * time.Second)
		if !b.ok(t, "POST").Reused {
			t.Error("a connection that pinged half a second ago was not used")
		}
		time.Sleep(10 * time.Second)
	})
}

func TestTrunksAreSharedOnlyWithinCallerSettingsAndGeneration(t *testing.T) {
	inTrunkBubble(t, (*stream).ok, nil, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		send := func(url, caller string, change func(*policy.Effective)) {
			t.Helper()
			p, c := *b.p, newCall(t, "GET", url, "")
			change(&p)
			c.Caller = caller
			want(t, b.tr.Send(t.Context(), c, &p, attempt()), call.EvidenceAnswered, call.FailureNone)
		}
		const url = "https://127.0.0.1:8443/"
		same := func(*policy.Effective) {}
		send(url, "one", same)
		send(url, "one", same)
		if n := b.dialed.Load(); n != 1 {
			t.Fatalf("%d connections for two equal attempts", n)
		}
		send("https://127.0.0.1:8444/", "one", same)
		send(url, "two", same)
		send(url, "one", func(p *policy.Effective) { p.Egress.ID = "other" })
		send(url, "one", func(p *policy.Effective) { p.Generation++ })
		send(url, "one", func(p *policy.Effective) { p.Attempt.Protocols = p.Attempt.Protocols[:1] })
		if n := b.dialed.Load(); n != 6 {
			t.Errorf("%d connections, want 6", n)
		}
	})
}

func TestRetiredGenerationKeepsNoTrunk(t *testing.T) {
	proceed := make(map[string]chan struct{})
	inTrunkBubble(t, func(st *stream) {
		if wait := proceed[st.path()]; wait != nil {
			<-wait
		}
		st.ok()
	}, func(*trunkBubble) { proceed["/slow"] = make(chan struct{}) }, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		send := func(generation uint64, path string) call.Result {
			p := *b.p
			p.Generation = generation
			return b.tr.Send(t.Context(), newCall(t, "GET", "https://127.0.0.1:8443"+path, ""), &p, attempt())
		}
		slow := make(chan call.Result)
		go func() { slow <- send(1, "/slow") }()
		synctest.Wait()
		send(0, "/")
		send(2, "/")
		if n := b.open.Load(); n != 3 {
			t.Fatalf("%d connections, want 3", n)
		}
		b.tr.Retire(2)
		synctest.Wait()
		if n := b.open.Load(); n != 2 {
			t.Errorf("%d connections, want that in use and that of the generation in force", n)
		}
		want(t, send(1, "/"), call.EvidenceAnswered, call.FailureNone) // a call of the old generation, on a connection of its own
		close(proceed["/slow"])
		want(t, <-slow, call.EvidenceAnswered, call.FailureNone)
		synctest.Wait()
		if n := b.open.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
		if !send(2, "/").Reused {
			t.Error("the connection of the generation in force was closed")
		}
	})
}

// TestCloseLeavesAttemptsInFlight, which end by themselves and their connections with them.
func TestCloseLeavesAttemptsInFlight(t *testing.T) {
	inTrunkBubble(t, slowly, nil, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		slow := make(chan []call.Result)
		go func() { slow <- b.burst(t, 5, "GET") }()
		time.Sleep(500 * time.Millisecond)
		b.tr.Close()
		for _, r := range <-slow {
			want(t, r, call.EvidenceAnswered, call.FailureNone)
		}
		b.ok(t, "GET")
		synctest.Wait()
		if n := b.open.Load(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
}

// TestServerThatSaysGoAwayIsLeftAtOnce, by the next attempt and by its connection.
func TestServerThatSaysGoAwayIsLeftAtOnce(t *testing.T) {
	inTrunkBubble(t, func(st *stream) {
		st.ok()
		if st.n == 1 {
			time.Sleep(1500 * time.Millisecond)
			st.goAway(st.id, http2.ErrCodeNo)
		}
	}, nil, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		b.ok(t, "POST")
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if n := b.open.Load(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
		time.Sleep(2 * time.Second)
		if b.ok(t, "POST").Reused || !b.ok(t, "POST").Reused {
			t.Error("the wrong connection was used")
		}
		if l := b.tr.pool.life.of("https://127.0.0.1:8443", true, time.Now()); l != idleLife {
			t.Errorf("life %v: a polite end is no lesson", l)
		}
	})
}

// TestSilentTrunkIsNotUsedAgain: an attempt that timed out without a frame is not repeated on the same connection.
func TestSilentTrunkIsNotUsedAgain(t *testing.T) {
	inTrunkBubble(t, func(st *stream) {
		if st.n != 2 {
			st.ok()
		}
	}, nil, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		b.ok(t, "GET")
		r := b.tr.Send(t.Context(), newCall(t, "GET", "https://127.0.0.1:8443/", ""), b.p, attemptOf(1500*time.Millisecond))
		want(t, r, call.EvidenceSentNoResponse, call.FailureAttemptTimeout)
		synctest.Wait()
		if n := b.open.Load(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
		if r = b.ok(t, "GET"); r.Reused || b.dialed.Load() != 2 {
			t.Errorf("reused %t, %d connections", r.Reused, b.dialed.Load())
		}
	})
}

// TestIdleCloseOfTrunksIsLearned: a server that closes idle connections without a word after ten seconds.
func TestIdleCloseOfTrunksIsLearned(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, b *trunkBubble){
		"by the sweep": func(*testing.T, *trunkBubble) { time.Sleep(2 * time.Second) },
		"by the next attempt": func(t *testing.T, b *trunkBubble) {
			t.Helper()
			if b.ok(t, "GET").Reused {
				t.Error("the dead connection was used")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTrunkBubble(t, func(st *stream) {
				st.ok()
				if st.n == 1 {
					time.Sleep(10500 * time.Millisecond)
					_ = st.c.Close()
				}
			}, nil, func(t *testing.T, b *trunkBubble) {
				t.Helper()
				b.ok(t, "GET")
				time.Sleep(10600 * time.Millisecond)
				if n := b.open.Load(); n != 0 {
					t.Errorf("%d connections are open", n)
				}
				next(t, b)
				if l := b.tr.pool.life.of("https://127.0.0.1:8443", false, time.Now()); l != 9450*time.Millisecond {
					t.Errorf("life %v, want a tenth less than it lived", l)
				}
			})
		})
	}
}

// TestDyingTrunkIsProofOfNothing: the server's close and a request cross on the way, and unsafe operations keep away from such
// connections for a while.
func TestDyingTrunkIsProofOfNothing(t *testing.T) {
	inTrunkBubble(t, func(st *stream) {
		if st.n == 2 {
			_ = st.c.Close()
			return
		}
		st.ok()
	}, nil, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		b.ok(t, "POST")
		time.Sleep(50 * time.Millisecond)
		r := b.send(t, "POST")
		want(t, r, call.EvidenceSentNoResponse, call.FailureConnectionLost)
		if !r.Reused {
			t.Error("not told that the connection was a reused one")
		}
		b.ok(t, "POST")
		if b.ok(t, "POST").Reused {
			t.Error("an operation that must not be repeated was put on an idle connection")
		}
		if !b.ok(t, "GET").Reused {
			t.Error("a GET may take it")
		}
	})
}

// TestHTTP2ServerThatHangsUpHoldsNobody: real sockets, many callers, a server that ends connections at random; every attempt ends, and
// nothing is left open.
func TestHTTP2ServerThatHangsUpHoldsNobody(t *testing.T) {
	u := newStreams(t, func(st *stream) {
		switch st.n % 40 {
		case 0:
			_ = st.c.Close()
		case 1:
			st.goAway(st.id, http2.ErrCodeNo)
			st.ok()
		case 2, 3, 4:
			st.rst(http2.ErrCodeRefusedStream)
		default:
			st.ok()
		}
	}, func(u *streams) { u.settings = []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 20}} })
	tr, p := newTransport(t, nil), u.policy(t)
	var all sync.WaitGroup
	var sends, answered atomic.Int64
	for range 40 {
		all.Go(func() {
			for range 20 {
				r := tr.Send(t.Context(), newCall(t, "POST", u.url("/"), "x"), p, attemptOf(30*time.Second))
				if r.Evidence != call.EvidenceNotSent {
					sends.Add(1)
				}
				if r.Evidence == call.EvidenceAnswered {
					answered.Add(1)
				}
				if r.Failure == call.FailureAttemptTimeout {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	all.Wait()
	if got := int64(len(u.seen())); got > sends.Load() {
		t.Errorf("%d requests arrived, %d may have been sent", got, sends.Load())
	}
	if n := tr.Connections().HiddenSends; n != 0 {
		t.Errorf("%d hidden sends", n)
	}
	t.Logf("%d sent, %d answered, %d connections", sends.Load(), answered.Load(), u.connections())
	tr.Close()
	if n := len(tr.pool.census.origins); n != 0 {
		t.Errorf("%d origins are left in the census", n)
	}
	for _, c := range u.upstream.accepted() {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err == nil {
			if _, err := io.Copy(io.Discard, bufio.NewReader(c)); isTimeout(err) {
				t.Error("a connection was left open")
			}
		}
	}
}

// dyingConn accepts nothing once it is told so: the fault of a connection that dies just before the write.
type dyingConn struct {
	net.Conn

	dead *atomic.Bool
}

func (c dyingConn) Write(b []byte) (int, error) {
	if c.dead.Load() {
		return 0, errFake
	}
	return c.Conn.Write(b)
}

func dying(dead *atomic.Bool) func(*trunkBubble) {
	return func(b *trunkBubble) { b.wrap = func(c net.Conn) net.Conn { return dyingConn{c, dead} } }
}

func TestDeadWriteOnATrunkIsProofOfNothingSent(t *testing.T) {
	var dead atomic.Bool
	inTrunkBubble(t, (*stream).ok, dying(&dead), func(t *testing.T, b *trunkBubble) {
		t.Helper()
		b.ok(t, "POST")
		dead.Store(true)
		r := b.send(t, "POST")
		want(t, r, call.EvidenceNotSent, call.FailureConnectionLost)
		if !r.Reused || r.Detail != "the connection was lost; nothing was sent" {
			t.Errorf("%+v", r)
		}
		dead.Store(false)
		if b.ok(t, "POST").Reused {
			t.Error("the dead connection was used again")
		}
	})
}
