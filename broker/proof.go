package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// proof is what a connection proves of its peer, whatever is said on it.
type proof struct {
	credentials.AuthInfo

	user  string              // "uid:1000"; "" where the system does not tell
	chain []*x509.Certificate // what the client showed in the handshake, whose key it has; nil: nothing, or nobody asked
	last  atomic.Pointer[verdict]
}

// verdict is whom a certificate names, in the eyes of these authorities.
type verdict struct {
	pool *x509.CertPool
	name string // "" is nobody
}

// handshake opens connections and keeps what they prove.
type handshake struct {
	credentials.TransportCredentials

	authorities *Authorities // nil: no certificates are asked for
	log         *slog.Logger
}

// newHandshake asks for certificates and does not demand them: health and reflection are for everybody, and a token is as good. It
// judges them itself and not in the handshake, so that a wrong one is told UNAUTHENTICATED, on a standing connection as on a new one.
func newHandshake(cfg ServerConfig) *handshake {
	h := &handshake{TransportCredentials: insecure.NewCredentials(), authorities: cfg.Authorities, log: cfg.Log}
	if cfg.TLS != nil {
		own := cfg.TLS.Clone()
		if cfg.Authorities != nil {
			own.ClientAuth = tls.RequestClientCert
		}
		h.TransportCredentials = credentials.NewTLS(own)
	}
	return h
}

// ServerHandshake gives the connection with what it proves.
func (h *handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if isInside(raw) {
		conn, info, err := insecure.NewCredentials().ServerHandshake(raw)
		return conn, &proof{AuthInfo: info}, err //nolint:wrapcheck // it has none
	}
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // grpc-go tells some of them apart
	}
	p := &proof{AuthInfo: info, user: userOf(raw)}
	if over, ok := info.(credentials.TLSInfo); ok && h.authorities != nil && len(over.State.PeerCertificates) > 0 {
		p.chain = over.State.PeerCertificates
		p.judge(h.authorities.pool.Load(), nil, time.Now(), raw.RemoteAddr(), h.log)
	}
	return conn, p, nil
}

// holder is whom the certificate of the connection names now; "" is nobody. It is judged again once the authorities are others, and by
// them alone: whether it has expired was judged when it was shown. A client renews its certificate in time and not its connections, so
// it would be locked out by a right one; no connection lives long after that ([maxConnAge]).
func (p *proof) holder(pool *x509.CertPool, peer net.Addr, log *slog.Logger) string {
	last := p.last.Load()
	if last != nil && last.pool == pool {
		return last.name
	}
	at := time.Now()
	for _, c := range p.chain {
		if c.NotAfter.Before(at) {
			at = c.NotAfter
		}
	}
	return p.judge(pool, last, at, peer, log)
}

// judge notes whom the certificate names, in place of last, and tells the log once why it is nobody.
func (p *proof) judge(pool *x509.CertPool, last *verdict, at time.Time, peer net.Addr, log *slog.Logger) string {
	err := vouchFor(pool, p.chain, at)
	name := ""
	if err == nil {
		name, err = nameIn(p.chain[0])
	}
	if err != nil {
		name = ""
	}
	if p.last.CompareAndSwap(last, &verdict{pool: pool, name: name}) && err != nil {
		log.Warn("client certificate refused", "peer", peer.String(), "reason", err)
	}
	return name
}

// connectionOf gives what the connection of an RPC proves; nil is nothing.
func connectionOf(ctx context.Context) (p *proof, from net.Addr) {
	connection, ok := peer.FromContext(ctx)
	if !ok {
		return nil, nil
	}
	p, _ = connection.AuthInfo.(*proof)
	return p, connection.Addr
}
