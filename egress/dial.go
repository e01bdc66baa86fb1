package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// link is a connection on which nothing was said yet.
type link struct {
	raw     *rawConn
	session *tlsConn // nil without TLS
}

func (l link) top() net.Conn {
	if l.session != nil {
		return l.session
	}
	return l.raw
}

// overHTTP1 speaks HTTP/1.1 on it, until the attempt's deadline at first.
func (t *Transport) overHTTP1(l link, key poolKey, a *call.Attempt) *conn {
	cn := newConn(key, l.raw, l.session)
	cn.entry = t.pool.census.opened(key.origin)
	_ = cn.top.SetDeadline(a.Deadline) // fails on a closed connection only, which the write finds out
	return cn
}

// open resolves, judges every address, connects and does the TLS handshake. Nothing of the request is sent here, so that every
// failure is EVIDENCE_NOT_SENT; notSent makes the result of it.
func (t *Transport) open(ctx context.Context, c *call.Call, p *policy.Effective, a *call.Attempt, took *call.Opening) (link, call.Result, bool) {
	addresses, err := t.addresses(ctx, c.Target.Host, c.Target.Address, p, a, &took.DNS)
	if err != nil {
		return link{}, nameFailure(err), false
	}
	for _, addr := range addresses {
		if err := t.guard.Address(&p.Egress.Rules, netip.AddrPortFrom(addr, c.Target.Port)); err != nil {
			// One forbidden answer denies the call: a mix of public and private is how rebinding looks.
			return link{}, denied(err), false
		}
	}
	via, err := t.proxy(ctx, p, a)
	if err != nil {
		return link{}, connectFailure(err), false
	}
	begin := time.Now()
	deadline := earlier(a.Deadline, begin.Add(p.Attempt.ConnectTimeout))
	raw, err := t.reach(ctx, p, via, addresses[:min(len(addresses), addressesMax)], c.Target.Port, deadline)
	connected := time.Now()
	took.Connect = connected.Sub(begin)
	if err != nil {
		return link{}, connectFailure(err), false
	}
	l := link{raw: raw}
	if c.Target.Scheme == "https" {
		l.session, err = handshake(ctx, raw, c, p, deadline)
		took.TLS = time.Since(connected)
		if err != nil {
			_ = raw.Close() // nothing was sent; the handshake's error is the one to tell
			return link{}, tlsFailure(err, p), false
		}
	}
	return l, call.Result{}, true
}

// connect tries the addresses in turn, each with its share of the time, as long as nothing was sent.
func (t *Transport) connect(ctx context.Context, rules *guard.Rules, addresses []netip.Addr, port uint16, deadline time.Time) (*rawConn, error) {
	permit := func(ap netip.AddrPort) error { return t.guard.Address(rules, ap) }
	var failed error
	for i, addr := range addresses {
		share := time.Until(deadline) / time.Duration(len(addresses)-i)
		if share <= 0 && failed != nil {
			break
		}
		dialCtx, cancel := context.WithTimeout(ctx, share)
		nc, err := t.dial(dialCtx, "tcp", netip.AddrPortFrom(addr, port), permit)
		cancel()
		if err == nil {
			return t.adopt(nc, permit)
		}
		failed = err
		if ctx.Err() != nil || errors.As(err, new(*deniedError)) {
			break
		}
	}
	return nil, failed
}

// adopt judges the peer of a connection once more: belt and braces beside the check at connect.
func (t *Transport) adopt(nc net.Conn, permit func(netip.AddrPort) error) (*rawConn, error) {
	if tcp, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		if err := permit(tcp.AddrPort()); err != nil {
			_ = nc.Close() // nothing was sent
			return nil, &deniedError{err}
		}
	}
	return newRawConn(nc), nil
}

// deniedError marks a refusal of the guard on its way through the dialer.
type deniedError struct{ error }

func (e *deniedError) Unwrap() error { return e.error }

// dialTCP connects to a literal address and judges the address that the socket is really connected to.
func dialTCP(ctx context.Context, network string, to netip.AddrPort, permit func(netip.AddrPort) error) (net.Conn, error) {
	d := net.Dialer{
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return &deniedError{err}
			}
			if network != "tcp4" && network != "tcp6" {
				return &deniedError{fmt.Errorf("network %q", network)}
			}
			if err := permit(ap); err != nil {
				return &deniedError{err}
			}
			return nil
		},
	}
	return d.DialContext(ctx, network, to.String())
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
