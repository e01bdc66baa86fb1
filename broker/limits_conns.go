package broker

import (
	"net"
	"net/netip"
	"sync"
)

// The limits of a listener.
const (
	maxConns        = 10_000
	maxConnsPerPeer = 256
)

// connLimiter bounds the connections of a listener, in all and of one peer address. One too many is closed at once.
//
// golang.org/x/net/netutil.LimitListener was considered: it bounds the total only, and stops accepting when it is reached. Idle
// connections of one peer would then keep everybody waiting without a word, while a client whose connection is closed goes to
// another broker.
//
// A peer on loopback or on a unix socket counts toward the total alone: there one address stands for all programs of the machine,
// or for a proxy in front of them, and who can reach it could as well start a thousand processes.
type connLimiter struct {
	net.Listener
	total, perPeer int

	mu    sync.Mutex // protects the fields below
	conns int
	peers map[netip.Addr]int // none of them 0, so never more than conns
}

// LimitConns bounds the connections of a listener, in all; one peer may have them all. One too many is closed at once.
func LimitConns(l net.Listener, total int) net.Listener { return limitConns(l, total, total) }

func limitConns(l net.Listener, total, perPeer int) *connLimiter {
	return &connLimiter{Listener: l, total: total, perPeer: perPeer, peers: make(map[netip.Addr]int)}
}

// Accept gives the next connection that is within the limits.
func (l *connLimiter) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // the server tells the listener's errors apart by their types
		}
		peer := peerOf(c.RemoteAddr())
		if l.admit(peer) {
			return &limitedConn{Conn: c, release: sync.OnceFunc(func() { l.leave(peer) })}, nil
		}
		_ = c.Close() // nothing was said on it
	}
}

func (l *connLimiter) admit(peer netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns >= l.total || peer.IsValid() && l.peers[peer] >= l.perPeer {
		return false
	}
	l.conns++
	if peer.IsValid() {
		l.peers[peer]++
	}
	return true
}

func (l *connLimiter) leave(peer netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns--
	if !peer.IsValid() {
		return
	}
	if l.peers[peer]--; l.peers[peer] == 0 {
		delete(l.peers, peer)
	}
}

// peerOf is the address that is counted; the zero value for one of this machine.
func peerOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	// Without its zone: the same peer through another interface is the same peer.
	peer := tcp.AddrPort().Addr().Unmap().WithZone("")
	if peer.IsLoopback() {
		return netip.Addr{}
	}
	return peer
}

// limitedConn leaves the count when it is closed; gRPC closes every connection it was given.
type limitedConn struct {
	net.Conn
	release func()
}

// Close closes the connection. Closing it again changes no count.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err //nolint:wrapcheck // it is the connection's own
}
