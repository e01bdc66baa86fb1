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

	// What say sends, and how that went. The look comes with it where one is due.
	lookDue  bool
	say      func() bool // made once
	body     []byte
	bodyless bool
	sendErr  error
}

// errNotQuiet: the look that was due found the connection useless. Nothing was sent.
var errNotQuiet = errors.New("closed or used by the peer while idle")

func newConn(key poolKey, raw *rawConn, session *tlsConn) *conn {
	cn := &conn{key: key, raw: raw, top: raw}
	if session != nil {
		cn.top = session
	}
	cn.http = h1.New(cn.top)
	cn.interrupt, cn.say = cn.http.Interrupt, cn.sayIt
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

// lookLater leaves the look to the exchange, where it costs less; false where it cannot be left, under TLS for one.
func (cn *conn) lookLater(deadline time.Time) bool {
	cn.lookDue = cn.raw.sys != nil && cn.top == cn.raw && cn.top.SetDeadline(deadline) == nil
	return cn.lookDue
}

// send writes the request, after the look if one is due.
func (cn *conn) send(body []byte, bodyless bool) error {
	if !cn.lookDue {
		return cn.http.Send(body, bodyless)
	}
	cn.lookDue, cn.body, cn.bodyless = false, body, bodyless
	quiet, unasked := cn.raw.ask(cn.say)
	cn.body, cn.unasked = nil, unasked
	if !quiet {
		return errNotQuiet
	}
	return cn.sendErr
}

func (cn *conn) sayIt() bool {
	cn.sendErr = cn.http.Send(cn.body, cn.bodyless)
	return cn.sendErr == nil
}

// seen is how long it was seen alive while idle.
func (cn *conn) seen() time.Duration { return cn.aliveAt.Sub(cn.idleSince) }

func (cn *conn) close() {
	_ = cn.top.Close() // the peer may be gone; there is nobody to tell
	cn.gone()
}
