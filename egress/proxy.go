package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/egress/h1"
	"github.com/sallyport/sallyport/policy"
)

// A proxy's answer to CONNECT is a few lines; these bound it.
const (
	tunnelHeadBytes = 16 << 10
	tunnelFields    = 100
)

// proxy is the policy's proxy, resolved and judged.
type proxy struct {
	rules     *guard.Rules
	addresses []netip.Addr
	port      uint16
}

// proxyError is what kept a call from getting through the proxy, as the result of the attempt. Nothing of the request was sent.
type proxyError struct{ result call.Result }

func (e *proxyError) Error() string { return e.result.Detail }

// ofProxy says of a failure that it is the proxy's and not the target's.
func ofProxy(r call.Result) *proxyError {
	r.Detail = "the egress proxy: " + r.Detail
	if r.Note != "" {
		r.Note = "egress.proxy: " + r.Note
	}
	return &proxyError{r}
}

// proxy resolves the proxy of the policy and judges every address of it by the proxy's own rules; nil without one. The error is a
// [*proxyError]. Nothing but the policy names a proxy: variables of the environment would go round the guard.
func (t *Transport) proxy(ctx context.Context, p *policy.Effective, a *call.Attempt) (*proxy, error) {
	named := p.Egress.Proxy
	if named == nil {
		return nil, nil //nolint:nilnil // no proxy is the usual case and no error
	}
	if err := t.guard.Target(&named.Rules, "http", named.Host, named.Address, named.Port); err != nil {
		return nil, ofProxy(denied(err))
	}
	var took time.Duration // the proxy's name is not the target's
	found, err := t.addresses(ctx, named.Host, named.Address, p, a, &took)
	if err != nil {
		return nil, ofProxy(nameFailure(err))
	}
	for _, addr := range found {
		if err := t.guard.Address(&named.Rules, netip.AddrPortFrom(addr, named.Port)); err != nil {
			return nil, ofProxy(denied(err))
		}
	}
	return &proxy{rules: &named.Rules, addresses: found[:min(len(found), addressesMax)], port: named.Port}, nil
}

// reach connects to one of the target's addresses, straight or through the proxy. All of them were judged.
func (t *Transport) reach(ctx context.Context, p *policy.Effective, via *proxy, addresses []netip.Addr, port uint16, deadline time.Time) (*rawConn, error) {
	if via == nil {
		return t.connect(ctx, &p.Egress.Rules, addresses, port, deadline)
	}
	raw, failed := t.tunnel(ctx, via, addresses, port, deadline)
	if failed != nil {
		return nil, failed
	}
	return raw, nil
}

// tunnel asks the proxy for the addresses in turn, each on a connection of its own and with its share of the time that is left once the
// proxy is reached: to reach it is not the target's affair.
func (t *Transport) tunnel(ctx context.Context, via *proxy, addresses []netip.Addr, port uint16, deadline time.Time) (*rawConn, *proxyError) {
	var failed *proxyError
	for i, addr := range addresses {
		raw, err := t.connect(ctx, via.rules, via.addresses, via.port, deadline)
		if err != nil {
			return nil, milder(failed, ofProxy(connectFailure(err))) // nor would it be there for another address
		}
		if at, err := netip.ParseAddrPort(raw.remote); err == nil {
			via.addresses = []netip.Addr{at.Addr()} // the next time without those that are dead
		}
		share := time.Until(deadline) / time.Duration(len(addresses)-i)
		through, refused := t.ask(ctx, raw, netip.AddrPortFrom(addr.Unmap(), port), time.Now().Add(share))
		if refused == nil {
			return through, nil
		}
		_ = raw.Close() // nothing of the request was sent
		failed = milder(failed, refused)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// milder keeps the failure that trying again may mend.
func milder(before, now *proxyError) *proxyError {
	if before != nil && !before.result.Terminal && now.result.Terminal {
		return before
	}
	return now
}

// ask makes a connection to the proxy one to that address (RFC 9110 §9.3.6). The proxy gets the address and not the name, so that what
// was judged is what it connects to, and no field of the caller and no credential.
func (t *Transport) ask(ctx context.Context, raw *rawConn, to netip.AddrPort, until time.Time) (*rawConn, *proxyError) {
	_ = raw.SetDeadline(until) // fails on a closed connection only, which the write finds out
	h := h1.New(raw)
	uncancel := context.AfterFunc(ctx, h.Interrupt)
	h.Start("CONNECT", to.String(), to.String())
	h.Field("User-Agent", t.userAgent)
	sendErr := h.Send(nil, true)
	var answer h1.Response
	rest, err := h.ReadTunnel(&answer, h1.Limits{HeaderBytes: tunnelHeadBytes, Headers: tunnelFields})
	uncancel() // where it comes too late the request is not written either: whoever goes on looks at ctx
	switch {
	case err != nil:
		return nil, noTunnel(err)
	case answer.Status > 299:
		return nil, refusal(answer.Status)
	case sendErr != nil:
		return nil, noTunnel(sendErr)
	}
	_ = raw.SetDeadline(time.Time{}) // as that of a fresh connection
	if len(rest) > 0 {
		raw = newRawConn(&openedTunnel{rawConn: raw, early: rest})
	}
	// The target's address is what was judged and asked for; whether the proxy keeps to it cannot be seen from here.
	raw.remote = to.String()
	return raw, nil
}

// refusal is the proxy's answer that is no tunnel. Terminal is what it would say again: 403, 407 and the like, and a redirect, which is
// never followed. A 5xx speaks of the target or of the proxy's own trouble, which may pass.
func refusal(status int) *proxyError {
	r := call.Result{Failure: call.FailureConnect, Detail: fmt.Sprintf("the egress proxy answered %d", status)}
	switch {
	case status == 408, status == 425, status == 429:
	case status < 500, status == 501, status == 505:
		r.Terminal = true
	}
	return &proxyError{r}
}

// noTunnel is a CONNECT without an answer that can be taken.
func noTunnel(err error) *proxyError {
	r := call.Result{Failure: call.FailureConnect, Detail: "the egress proxy ended the connection without an answer"}
	e, _ := errors.AsType[*h1.Error](err)
	switch {
	case e != nil && e.Kind == h1.Malformed:
		r.Detail = "the egress proxy's answer is malformed: " + e.Problem
	case e != nil && e.Kind == h1.TooLarge:
		r.Detail = "the egress proxy's answer is too large: " + e.Problem
	case isTimeout(err):
		r.Detail = "the egress proxy did not answer in time"
	}
	return &proxyError{r}
}

// openedTunnel is a connection through the proxy of which the first bytes came with the proxy's answer.
type openedTunnel struct {
	*rawConn

	early []byte
}

func (t *openedTunnel) Read(b []byte) (int, error) {
	if n := t.readEarly(b); n > 0 {
		return n, nil
	}
	return t.rawConn.Read(b)
}

// ReadNow reads what is there and never waits.
func (t *openedTunnel) ReadNow(b []byte) (int, error) {
	if n := t.readEarly(b); n > 0 {
		return n, nil
	}
	return t.rawConn.ReadNow(b)
}

func (t *openedTunnel) readEarly(b []byte) int {
	n := copy(b, t.early)
	t.early = t.early[n:]
	return n
}
