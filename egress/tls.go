package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// settleSlack and settleMax bound the wait for a server that asked for a certificate; see [tlsConn.settle].
const (
	settleSlack = 50 * time.Millisecond
	settleMax   = 500 * time.Millisecond
)

// handshake speaks TLS as the policy says. The name checked is the URL's host, or server_name where the policy has one.
func handshake(ctx context.Context, raw *rawConn, c *call.Call, p *policy.Effective, deadline time.Time) (*tlsConn, error) {
	cfg := p.Egress.TLS.Clone()
	cfg.NextProtos = offered(p)
	cfg.ServerName = c.Target.Host
	if c.Foreign {
		cfg.GetClientCertificate = nil // the policy's certificate and name are for its own origin
	} else if p.Egress.ServerName != "" {
		cfg.ServerName = p.Egress.ServerName
	}
	asked, show := false, cfg.GetClientCertificate
	cfg.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked = true
		if show == nil {
			return new(tls.Certificate), nil // none; the server decides what that means
		}
		return show(info)
	}
	cfg.ClientSessionCache = noSessions{}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	raw.underTLS = true
	session := &tlsConn{Conn: tls.Client(raw, cfg), raw: raw}
	begin := time.Now()
	if err := session.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if asked && session.ConnectionState().Version >= tls.VersionTLS13 {
		end := time.Now()
		wait := min(2*end.Sub(begin)+settleSlack, settleMax)
		if err := session.settle(ctx, earlier(end.Add(wait), deadline)); err != nil {
			return nil, err
		}
	}
	return session, nil
}

// noSessions offers session tickets a place and forgets them: no session is resumed, so that every connection shows the certificate
// of its own policy. Servers send tickets to those who can use them only, and a ticket is their word that the handshake is over.
type noSessions struct{}

func (noSessions) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

func (noSessions) Put(string, *tls.ClientSessionState) {}

// tlsConn is a TLS session whose look reads the socket without waiting. Session tickets that come late are taken in passing.
type tlsConn struct {
	*tls.Conn
	raw   *rawConn
	early []byte // came before the request was written
}

// settle waits for the server's first word after the handshake, until that instant at most.
//
// In TLS 1.3 the client is done before the server has seen its certificate (RFC 8446 §2): a refusal would arrive as the answer to a
// request whose bytes are written, and leave its effect unknown. Most servers send tickets once the certificate is accepted, so
// that one round trip tells, and a refusal is found before a byte of the request has left. A server that stays silent is
// believed in the end; a refusal that comes later still is EVIDENCE_SENT_NO_RESPONSE.
func (c *tlsConn) settle(ctx context.Context, until time.Time) error {
	if err := c.raw.SetReadDeadline(until); err != nil {
		return err
	}
	uncancel := context.AfterFunc(ctx, func() { _ = c.raw.SetReadDeadline(time.Unix(1, 0)) }) // the wait is over, whatever it says
	c.raw.settling = true
	var first [1]byte
	n, err := c.Conn.Read(first[:])
	c.raw.settling = false
	c.raw.now.Store(false)
	if !uncancel() {
		return ctx.Err()
	}
	if n == 1 {
		c.early = first[:] // on a fresh connection that is read as the answer
		return nil
	}
	if isTimeout(err) {
		return nil
	}
	return err
}

// Read gives what came early first.
func (c *tlsConn) Read(b []byte) (int, error) {
	if len(c.early) > 0 && len(b) > 0 {
		n := copy(b, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// ReadNow reads application data that is there and never waits.
func (c *tlsConn) ReadNow(b []byte) (int, error) {
	c.raw.now.Store(true)
	n, err := c.Conn.Read(b)
	c.raw.now.Store(false)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, errNothingYet
	}
	return n, err
}

// Close closes the socket at once. A close_notify would be another write on a connection that may hang.
func (c *tlsConn) Close() error { return c.raw.Close() }

// alert is the peer's own word for why it ends the session (RFC 8446 §6.2); false when err is none. crypto/tls marks it by the
// operation and has no exported type for it.
func alert(err error) (string, bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return "", false
	}
	return strings.TrimPrefix(op.Err.Error(), "tls: "), true
}
