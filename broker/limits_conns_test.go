package broker

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// from is a connection that comes from an address and knows whether it was closed.
type from struct {
	net.Conn
	remote net.Addr
	closed int
}

func (c *from) RemoteAddr() net.Addr { return c.remote }

func (c *from) Close() error {
	c.closed++
	return nil
}

// queue is a listener of connections that are there already.
type queue struct {
	net.Listener
	conns []*from
}

var errNoMore = errors.New("no more connections")

func (q *queue) Accept() (net.Conn, error) {
	if len(q.conns) == 0 {
		return nil, errNoMore
	}
	c := q.conns[0]
	q.conns = q.conns[1:]
	return c, nil
}

func tcp(addr string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)) }

// accepted says which of connections from these addresses is taken while all that were stay open.
func accepted(t *testing.T, total, perPeer int, addrs ...net.Addr) (l *connLimiter, taken []bool, open []net.Conn) {
	t.Helper()
	q := &queue{}
	for _, a := range addrs {
		q.conns = append(q.conns, &from{remote: a})
	}
	all := q.conns
	l = limitConns(q, total, perPeer)
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		open = append(open, c)
	}
	for _, c := range all {
		taken = append(taken, c.closed == 0)
	}
	return l, taken, open
}

func TestConnectionBeyondALimitIsClosedAtOnce(t *testing.T) {
	unix := &net.UnixAddr{Name: "@", Net: "unix"}
	for _, row := range []struct {
		name    string
		total   int
		perPeer int
		addrs   []net.Addr
		want    []bool
	}{
		{"per peer", 10, 2, []net.Addr{tcp("192.0.2.1:1"), tcp("192.0.2.1:2"), tcp("192.0.2.1:3"), tcp("192.0.2.2:1")}, []bool{true, true, false, true}},
		{"in all", 2, 2, []net.Addr{tcp("192.0.2.1:1"), tcp("192.0.2.2:1"), tcp("192.0.2.3:1")}, []bool{true, true, false}},
		{"one peer in two spellings", 10, 1, []net.Addr{tcp("192.0.2.1:1"), tcp("[::ffff:192.0.2.1]:2"), tcp("[fe80::1%a]:1"), tcp("[fe80::1%b]:1")}, []bool{true, false, true, false}},
		{"loopback and sockets count in all only", 4, 1, []net.Addr{tcp("127.0.0.1:1"), tcp("127.0.0.1:2"), tcp("[::1]:1"), unix, unix}, []bool{true, true, true, true, false}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, taken, _ := accepted(t, row.total, row.perPeer, row.addrs...)
			for i := range row.want {
				if taken[i] != row.want[i] {
					t.Errorf("taken %v, want %v", taken, row.want)
					break
				}
			}
		})
	}
}

func TestConnectionCountsOnceHoweverOftenItIsClosed(t *testing.T) {
	l, _, open := accepted(t, 10, 2, tcp("192.0.2.1:1"), tcp("192.0.2.1:2"))
	for range 3 {
		_ = open[0].Close()
	}
	if peer := netip.MustParseAddr("192.0.2.1"); l.conns != 1 || l.peers[peer] != 1 {
		t.Errorf("%d connections, peers %v", l.conns, l.peers)
	}
}

func TestConnectionsAreNeverAboveTheirLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total, perPeer = 5, 2
		l := limitConns(nil, total, perPeer)
		var inside []netip.Addr // the zero value for those of this machine
		peers := rapid.SampledFrom([]netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")})
		t.Repeat(map[string]func(*rapid.T){
			"accept": func(t *rapid.T) {
				peer := peers.Draw(t, "peer")
				mine := 0
				for _, p := range inside {
					if p == peer && peer.IsValid() {
						mine++
					}
				}
				fits := len(inside) < total && mine < perPeer
				if l.admit(peer) != fits {
					t.Fatalf("%v beside %v: fits %v", peer, inside, fits)
				}
				if fits {
					inside = append(inside, peer)
				}
			},
			"close": func(t *rapid.T) {
				if len(inside) == 0 {
					t.Skip("nothing is open")
				}
				i := rapid.IntRange(0, len(inside)-1).Draw(t, "which")
				l.leave(inside[i])
				inside = append(inside[:i], inside[i+1:]...)
			},
			"": func(t *rapid.T) {
				sum := 0
				for peer, n := range l.peers {
					if sum += n; n < 1 || n > perPeer {
						t.Fatalf("%d connections of %v", n, peer)
					}
				}
				if l.conns != len(inside) || sum > l.conns {
					t.Fatalf("%d connections, peers %v; the model says %v", l.conns, l.peers, inside)
				}
			},
		})
	})
}
