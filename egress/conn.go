package egress

import (
	"errors"
	"net"
	"time"

	"github.com/sallyport/sallyport/egress/h1"
)

// conn is a connection that serves one attempt at a time.
type conn struct {
	key       poolKey
	raw       *rawConn
	http      *h1.Conn
	interrupt func()      // http.Interrupt, made once
	answer    h1.Response // its slices are used again
	top       net.Conn    // the TLS session, or raw itself

	served    bool          // it has served an attempt before
	keepAlive time.Duration // the server's own word on idle life; 0: none
	idleSince time.Time
	aliveAt   time.Time // when it was last seen alive while idle

	entry

	unasked bool // the look found bytes that no request asked for
}

func newConn(key poolKey, raw *rawConn, session *tlsConn) *conn {
	cn := &conn{key: key, raw: raw, top: raw}
	if session != nil {
		cn.top = session
	}
	cn.http = h1.New(cn.top)
	cn.interrupt = cn.http.Interrupt
	return cn
}

// quiet looks before a write: false when the peer has closed the connection or said something unasked, which would otherwise
// be read as the next answer.
func (cn *conn) quiet(deadline time.Time) bool {
	if cn.top.SetDeadline(deadline) != nil {
		return false
	}
	err := cn.http.Idle()
	cn.unasked = errors.Is(err, h1.ErrUnsolicited)
	return err == nil
}

// seen is how long it was seen alive while idle.
func (cn *conn) seen() time.Duration { return cn.aliveAt.Sub(cn.idleSince) }

func (cn *conn) close() {
	_ = cn.top.Close() // the peer may be gone; there is nobody to tell
	cn.gone()
}
