package egress

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// lookedAt is a connection in memory that tells what a look shall find.
type lookedAt struct {
	net.Conn
	look func(b []byte) (int, error)
}

func (l *lookedAt) ReadNow(b []byte) (int, error) { return l.look(b) }

// counted runs f in a bubble with a transport whose looks find what *look says.
func counted(t *testing.T, serve func(net.Conn), f func(tr *Transport, look *atomic.Value, send func(p *policy.Effective) call.Result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &pipes{serve: serve}
		var look atomic.Value // of a func([]byte) (int, error)
		look.Store(func([]byte) (int, error) { return 0, errNothingYet })
		tr := New(Config{
			Guard: guard.New(guard.Config{}), UserAgent: "sallyport/test",
			Dial: func(ctx context.Context, network string, to netip.AddrPort, permit func(netip.AddrPort) error) (net.Conn, error) {
				c, err := n.dial(ctx, network, to, permit)
				return &lookedAt{c, func(b []byte) (int, error) { return look.Load().(func([]byte) (int, error))(b) }}, err
			},
		})
		defer tr.Close()
		f(tr, &look, func(p *policy.Effective) call.Result {
			return tr.Send(t.Context(), newCall(t, "GET", "http://127.0.0.1:8080/", ""), p, attempt())
		})
	})
}

// open is what the census says of the one origin: connections in use and idle.
func open(t *testing.T, tr *Transport) (active, idle int64) {
	t.Helper()
	tr.EachOrigin(func(origin string, a, i int64) {
		if origin != "http://127.0.0.1:8080" {
			t.Errorf("origin %q", origin)
		}
		active, idle = active+a, idle+i
	})
	return active, idle
}

func answering(answer string) func(net.Conn) {
	return func(c net.Conn) { always(answer)(0, c) }
}

func closed([]byte) (int, error) { return 0, io.EOF }

func talking(b []byte) (int, error) { return copy(b, "H"), nil }

// Whatever becomes of a connection is counted once, and in the end none is left in the census.
func TestCensusCountsWhatBecomesOfConnections(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer string                    // of the upstream
		then   func([]byte) (int, error) // what looks find after the first answer
		wait   time.Duration             // before the second attempt
		second bool                      // there is one
		want   Connections
	}{
		{"one attempt", okAnswer, nil, 0, false, Connections{Fresh: 1}},
		{"reused", okAnswer, nil, 0, true, Connections{Fresh: 1, Reused: 1}},
		{"found closed before the write", okAnswer, closed, 0, true, Connections{Fresh: 2, FoundClosed: 1}},
		{"died idle", okAnswer, closed, 3 * sweepEvery, false, Connections{Fresh: 1, DiedIdle: 1}},
		{"unasked bytes before the write", okAnswer, talking, 0, true, Connections{Fresh: 2, Unasked: 1}},
		{"unasked bytes while idle", okAnswer, talking, 3 * sweepEvery, false, Connections{Fresh: 1, Unasked: 1}},
		{"unasked bytes after the answer", okAnswer + "HTTP/1.1 200 OK\r\n", nil, 0, false, Connections{Fresh: 1, Unasked: 1}},
		{"the server's wish", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", nil, 0, true, Connections{Fresh: 2}},
	} {
		t.Run(row.name, func(t *testing.T) {
			counted(t, answering(row.answer), func(tr *Transport, look *atomic.Value, send func(*policy.Effective) call.Result) {
				want(t, send(loopback(t)), call.EvidenceAnswered, call.FailureNone)
				if row.then != nil {
					look.Store(row.then)
				}
				time.Sleep(row.wait)
				if row.second {
					want(t, send(loopback(t)), call.EvidenceAnswered, call.FailureNone)
				}
				if got := tr.Connections(); got != row.want {
					t.Errorf("%+v, want %+v", got, row.want)
				}
				if active, rest := open(t, tr); active != 0 || rest != int64(idle(tr.pool)) {
					t.Errorf("%d active and %d idle, of %d", active, rest, idle(tr.pool))
				}
				tr.Retire(1)
				tr.Close()
				if active, idle := open(t, tr); active != 0 || idle != 0 || len(tr.pool.census.origins) != 0 {
					t.Errorf("%d active and %d idle in the end", active, idle)
				}
			})
		})
	}
}

// A connection that is closed while idle leaves the count of its origin, which has another.
func TestCensusTakesOutWhatIsClosed(t *testing.T) {
	counted(t, answering(okAnswer), func(tr *Transport, _ *atomic.Value, send func(*policy.Effective) call.Result) {
		for generation := range uint64(2) {
			p := loopback(t)
			p.Generation = generation
			send(p)
		}
		if active, rest := open(t, tr); active != 0 || rest != 2 {
			t.Errorf("%d active, %d idle", active, rest)
		}
		tr.Retire(1)
		if active, rest := open(t, tr); active != 0 || rest != 1 {
			t.Errorf("%d active, %d idle after one was closed", active, rest)
		}
	})
}

// A request and the close of the connection cross on the way.
func TestCensusCountsTheKeepAliveRace(t *testing.T) {
	served := 0
	once := func(c net.Conn) {
		served++
		text := make([]byte, 4096)
		_, _ = c.Read(text)
		_, _ = io.WriteString(c, okAnswer)
		_, _ = c.Read(text) // the second request
		_ = c.Close()
	}
	counted(t, once, func(tr *Transport, _ *atomic.Value, send func(*policy.Effective) call.Result) {
		want(t, send(loopback(t)), call.EvidenceAnswered, call.FailureNone)
		want(t, send(loopback(t)), call.EvidenceSentNoResponse, call.FailureConnectionLost)
		if got := tr.Connections(); got != (Connections{Fresh: 1, Reused: 1, DiedInUse: 1}) {
			t.Errorf("%+v", got)
		}
		if active, idle := open(t, tr); active != 0 || idle != 0 {
			t.Errorf("%d active, %d idle", active, idle)
		}
	})
}

func TestCensusKnowsWhoIsAtWork(t *testing.T) {
	proceed := make(chan struct{})
	slow := func(c net.Conn) {
		text := make([]byte, 4096)
		_, _ = c.Read(text)
		<-proceed
		_, _ = io.WriteString(c, okAnswer)
		_, _ = c.Read(text)
	}
	counted(t, slow, func(tr *Transport, _ *atomic.Value, send func(*policy.Effective) call.Result) {
		proceed = make(chan struct{}) // of the bubble
		p := loopback(t)
		ended := make(chan call.Result)
		go func() { ended <- send(p) }()
		synctest.Wait()
		if active, idle := open(t, tr); active != 1 || idle != 0 {
			t.Errorf("%d active, %d idle, want one at work", active, idle)
		}
		close(proceed)
		<-ended
		if active, idle := open(t, tr); active != 0 || idle != 1 {
			t.Errorf("%d active, %d idle, want one idle", active, idle)
		}
	})
}

// The alarm that must stay silent: a second request on the connection of one exchange.
func TestCensusSeesASecondSendOfOneExchange(t *testing.T) {
	counted(t, answering(okAnswer), func(tr *Transport, _ *atomic.Value, send func(*policy.Effective) call.Result) {
		send(loopback(t))
		cn := tr.pool.pop(poolKeyOf(t, tr), time.Hour, time.Now())
		before := cn.http.Requests()
		for range 2 { // what nothing in this package does
			cn.http.Start("GET", "/", "127.0.0.1:8080")
			if err := cn.http.Send(nil, true); err != nil {
				t.Fatal(err)
			}
			if err := cn.http.ReadResponse(&cn.answer, limits(&call.Call{}, loopback(t), &call.Attempt{Deadline: time.Now().Add(time.Second)})); err != nil {
				t.Fatal(err)
			}
		}
		tr.pool.census.exchanged(cn, before)
		if got := tr.Connections().HiddenSends; got != 1 {
			t.Errorf("%d hidden sends, want 1", got)
		}
		cn.close()
	})
}

func poolKeyOf(t *testing.T, tr *Transport) poolKey {
	t.Helper()
	keys := tr.pool.keys()
	if len(keys) != 1 {
		t.Fatalf("%d keys", len(keys))
	}
	return keys[0]
}

// A look-up takes 30 ms, a connection 20 ms, also where they end badly.
func TestOpeningIsTimedStepByStep(t *testing.T) {
	const dns, connect = 30 * time.Millisecond, 20 * time.Millisecond
	for _, row := range []struct {
		name, url      string
		noName, noPort bool
		want           call.Opening
	}{
		{"a name", "http://api.example.com/", false, false, call.Opening{DNS: dns, Connect: connect}},
		{"an address", "http://127.0.0.1:8080/", false, false, call.Opening{Connect: connect}},
		{"no such name", "http://api.example.com/", true, false, call.Opening{DNS: dns}},
		{"nobody listens", "http://api.example.com/", false, true, call.Opening{DNS: dns, Connect: connect}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &pipes{serve: answering(okAnswer)}
				tr := New(Config{
					Guard: guard.New(guard.Config{}), UserAgent: "sallyport/test",
					Resolver: resolverFunc(func(context.Context, string) ([]netip.Addr, error) {
						time.Sleep(dns)
						if row.noName {
							return nil, &net.DNSError{IsNotFound: true}
						}
						return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
					}),
					Dial: func(ctx context.Context, network string, to netip.AddrPort, permit func(netip.AddrPort) error) (net.Conn, error) {
						time.Sleep(connect)
						if row.noPort {
							return nil, errFake
						}
						return n.dial(ctx, network, to, permit)
					},
				})
				defer tr.Close()
				send := func() *call.Opening {
					return tr.Send(t.Context(), newCall(t, "GET", row.url, ""), loopback(t), attempt()).Opening
				}
				if got := send(); got == nil || *got != row.want {
					t.Errorf("%+v, want %+v", got, row.want)
				}
				if !row.noName && !row.noPort {
					if got := send(); got != nil {
						t.Errorf("a connection that was there took %+v", got)
					}
				}
			})
		})
	}
}

func TestHandshakeIsTimed(t *testing.T) {
	a := newAuthority(t)
	u := newUpstream(t, overTLS(&tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}}, always(okAnswer)))
	r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", secure(u, "/"), ""), a.trusting(t), attempt())
	want(t, r, call.EvidenceAnswered, call.FailureNone)
	if r.Opening == nil || r.Opening.TLS <= 0 || r.Opening.Connect <= 0 || r.Opening.DNS != 0 {
		t.Errorf("%+v", r.Opening)
	}
}

// resolverFunc is a resolver in one function.
type resolverFunc func(ctx context.Context, host string) ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return f(ctx, host)
}
