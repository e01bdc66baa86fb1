package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// pipes is a network in memory: every connection is served by serve. It works within a synctest bubble, where time is exact.
type pipes struct {
	serve func(net.Conn)
	made  int
}

func (n *pipes) dial(context.Context, string, netip.AddrPort, func(netip.AddrPort) error) (net.Conn, error) {
	n.made++
	client, server := net.Pipe()
	go n.serve(server)
	return client, nil
}

// idle is how many connections are kept.
func idle(p *pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// bubble runs f with a transport over a network in memory whose server answers every request alike.
func bubble(t *testing.T, answer string, f func(t *testing.T, tr *Transport, n *pipes, send func(method string) call.Result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &pipes{serve: func(c net.Conn) { always(answer)(0, c) }}
		tr := New(Config{Guard: guard.New(guard.Config{}), UserAgent: "sallyport/test", Dial: n.dial})
		defer tr.Close()
		p := loopback(t)
		f(t, tr, n, func(method string) call.Result {
			r := tr.Send(t.Context(), newCall(t, method, "http://127.0.0.1:8080/", ""), p, attempt())
			want(t, r, call.EvidenceAnswered, call.FailureNone)
			return r
		})
	})
}

func TestUnsafeOperationTakesNoOldConnection(t *testing.T) {
	bubble(t, okAnswer, func(t *testing.T, _ *Transport, _ *pipes, send func(string) call.Result) {
		t.Helper()
		send("GET")
		time.Sleep(2*time.Second - 1)
		if !send("POST").Reused {
			t.Error("a connection idle for less than max_idle_unsafe was not used")
		}
		time.Sleep(2 * time.Second)
		if send("POST").Reused {
			t.Error("a connection idle for max_idle_unsafe was used for a POST")
		}
		time.Sleep(5 * time.Second)
		if !send("GET").Reused {
			t.Error("a GET may take an older one")
		}
	})
}

func TestServersWordOnIdleTimeIsBelieved(t *testing.T) {
	bubble(t, "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n", func(t *testing.T, _ *Transport, _ *pipes, send func(string) call.Result) {
		t.Helper()
		send("GET")
		time.Sleep(900*time.Millisecond - 1)
		if !send("GET").Reused {
			t.Error("a connection within its time was not used")
		}
		time.Sleep(900 * time.Millisecond)
		if send("GET").Reused {
			t.Error("a connection was used in the last tenth of its time")
		}
	})
}

func TestNoConnectionIsKeptForEver(t *testing.T) {
	bubble(t, okAnswer, func(t *testing.T, tr *Transport, _ *pipes, send func(string) call.Result) {
		t.Helper()
		send("GET")
		time.Sleep(idleLife + 2*sweepEvery)
		if n := idle(tr.pool); n != 0 {
			t.Errorf("%d connections are kept after %s", n, idleLife)
		}
		if n := len(tr.pool.keys()); n != 0 {
			t.Errorf("%d empty places are kept", n)
		}
	})
}

func TestConnectionsAreSharedOnlyWithinOriginSettingsAndGeneration(t *testing.T) {
	bubble(t, okAnswer, func(t *testing.T, tr *Transport, n *pipes, _ func(string) call.Result) {
		t.Helper()
		send := func(url string, change func(*policy.Effective)) {
			p := loopback(t)
			change(p)
			want(t, tr.Send(t.Context(), newCall(t, "GET", url, ""), p, attempt()), call.EvidenceAnswered, call.FailureNone)
		}
		const url = "http://127.0.0.1:8080/"
		send(url, func(*policy.Effective) {})
		send(url, func(*policy.Effective) {})
		if n.made != 1 {
			t.Fatalf("%d connections for two equal attempts", n.made)
		}
		send("http://127.0.0.1:8081/", func(*policy.Effective) {})
		send(url, func(p *policy.Effective) { p.Egress.ID = "other" })
		send(url, func(p *policy.Effective) { p.Generation++ })
		if n.made != 4 {
			t.Errorf("%d connections, want 4", n.made)
		}
	})
}

func TestRetiredGenerationIsClosedAtOnceAndNotKeptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed, closed := make(chan struct{}), make(chan struct{}, 3)
		n := &pipes{serve: func(c net.Conn) {
			r := bufio.NewReader(c)
			for {
				req, _, err := request(r)
				if err != nil {
					closed <- struct{}{}
					return
				}
				if req.URL.Path == "/slow" {
					<-proceed
				}
				_, _ = io.WriteString(c, okAnswer)
			}
		}}
		tr := New(Config{Guard: guard.New(guard.Config{}), UserAgent: "sallyport/test", Dial: n.dial})
		defer tr.Close()
		send := func(generation uint64, path string) call.Result {
			p := loopback(t)
			p.Generation = generation
			return tr.Send(t.Context(), newCall(t, "GET", "http://127.0.0.1:8080"+path, ""), p, attempt())
		}
		slow := make(chan call.Result)
		go func() { slow <- send(1, "/slow") }()
		synctest.Wait()
		send(1, "/")
		send(2, "/")
		if got := idle(tr.pool); got != 2 {
			t.Fatalf("%d idle connections, want 2", got)
		}
		begin := time.Now() // in the end the sweeper would close them too
		tr.Retire(2)
		<-closed
		if got := idle(tr.pool); got != 1 {
			t.Errorf("%d idle connections after the old generation was retired, want 1", got)
		}
		close(proceed)
		want(t, <-slow, call.EvidenceAnswered, call.FailureNone)
		<-closed // the connection that was in use
		if !send(2, "/").Reused {
			t.Error("a connection of the generation in force was closed")
		}
		tr.Retire(1) // an older word changes nothing
		want(t, send(1, "/"), call.EvidenceAnswered, call.FailureNone)
		<-closed // a call of the old generation goes on, on connections of its own
		if took := time.Since(begin); took != 0 {
			t.Errorf("the connections were closed in the course of %v, want at once", took)
		}
	})
}

func TestLifeIsLearnedFromTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLifetimes()
		dead := func(aliveFor, idle time.Duration) {
			l.died("o", aliveFor, idle)
		}
		expect := func(life, unsafe time.Duration) {
			t.Helper()
			if got := l.of("o", false, time.Now()); got != life {
				t.Errorf("life %s, want %s", got, life)
			}
			if got := l.of("o", true, time.Now()); got != unsafe {
				t.Errorf("life for an unsafe operation %s, want %s", got, unsafe)
			}
		}
		expect(idleLife, idleLife)
		dead(10*time.Second, 11*time.Second) // seen alive at 10s, dead at 11s: a tenth less than 10s
		expect(9*time.Second, 9*time.Second)
		dead(0, 4*time.Second) // never looked at before: a quarter
		expect(time.Second, time.Second)
		dead(20*time.Second, 21*time.Second) // a longer life does not undo it
		expect(time.Second, time.Second)
		time.Sleep(learnedFor) // but time does
		expect(idleLife, idleLife)
		if got := l.of("another", true, time.Now()); got != idleLife {
			t.Errorf("another origin: %s", got)
		}

		dead(0, early-1) // not of being idle: no lesson about life, but no unsafe operation for a while
		expect(idleLife, 0)
		time.Sleep(distrustFirst)
		expect(idleLife, idleLife)
		dead(0, 0) // twice as long the second time
		time.Sleep(2*distrustFirst - 1)
		expect(idleLife, 0)
		time.Sleep(time.Nanosecond)
		expect(idleLife, idleLife)
		for range 20 {
			dead(0, 0)
		}
		time.Sleep(distrustMost)
		expect(idleLife, idleLife)
	})
}

func TestPoolIsBounded(t *testing.T) {
	p := newPool()
	defer p.close()
	fresh := func(origin string) *conn {
		client, _ := net.Pipe()
		return newConn(poolKey{origin: origin}, newRawConn(client), nil)
	}
	for range idlePerKey + 3 {
		p.put(fresh("one"), time.Now())
	}
	if n := idle(p); n != idlePerKey {
		t.Errorf("%d idle connections of one origin, want %d", n, idlePerKey)
	}
	cns := p.takeOlder(poolKey{origin: "one"}, time.Now().Add(time.Hour))
	p.put(fresh("one"), time.Now())
	if over := p.putBack(poolKey{origin: "one"}, cns); len(over) != 1 || idle(p) != idlePerKey {
		t.Errorf("%d put back too many, %d kept", len(over), idle(p))
	}
}
