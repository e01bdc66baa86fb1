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
	"github.com/sallyport/sallyport/policy"
)

// open resolves, judges every address, connects and does the TLS handshake. Nothing of the request is sent here, so that every
// failure is EVIDENCE_NOT_SENT.
func (t *Transport) open(ctx context.Context, key poolKey, c *call.Call, p *policy.Effective, a *call.Attempt, took *call.Opening) (*conn, call.Result, bool) {
	addresses, err := t.addresses(ctx, c, p, a, took)
	if err != nil {
		return nil, notSent(ctx, a, nameFailure(err)), false
	}
	for _, addr := range addresses {
		if err := t.guard.Address(&p.Egress.Rules, netip.AddrPortFrom(addr, c.Target.Port)); err != nil {
			// One forbidden answer denies the call: a mix of public and private is how rebinding looks.
			return nil, notSent(ctx, a, denied(err)), false
		}
	}
	begin := time.Now()
	deadline := earlier(a.Deadline, begin.Add(p.Attempt.ConnectTimeout))
	raw, err := t.connect(ctx, p, addresses[:min(len(addresses), addressesMax)], c.Target.Port, deadline)
	connected := time.Now()
	took.Connect = connected.Sub(begin)
	if err != nil {
		return nil, notSent(ctx, a, connectFailure(err)), false
	}
	var session *tlsConn
	if c.Target.Scheme == "https" {
		session, err = handshake(ctx, raw, c, p, deadline)
		took.TLS = time.Since(connected)
		if err != nil {
			_ = raw.Close() // nothing was sent; the handshake's error is the one to tell
			return nil, notSent(ctx, a, tlsFailure(err)), false
		}
	}
	cn := newConn(key, raw, session)
	t.pool.census.opened(cn)
	_ = cn.top.SetDeadline(a.Deadline) // fails on a closed connection only, which the write finds out
	return cn, call.Result{}, true
}

// connect tries the addresses in turn, each with its share of the time, as long as nothing was sent.
func (t *Transport) connect(ctx context.Context, p *policy.Effective, addresses []netip.Addr, port uint16, deadline time.Time) (*rawConn, error) {
	permit := func(ap netip.AddrPort) error { return t.guard.Address(&p.Egress.Rules, ap) }
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
