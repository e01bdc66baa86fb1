package egress

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/egress/h2"
)

// trunk is an HTTP/2 connection, which carries many attempts at once.
type trunk struct {
	group *group
	raw   *rawConn
	wire  *wire
	http  *h2.Conn

	// The lock of trunks protects the fields below.
	entry

	inUse     int       // attempts on it
	sent      uint64    // attempts that were on it and may have sent their request
	served    bool      // it has been given to an attempt before
	kept      bool      // it stands in its group
	idleSince time.Time // while nothing is on it
}

func newTrunk(g *group, l link, c *census) *trunk {
	w := &wire{Conn: l.top(), made: time.Now()}
	_ = w.SetDeadline(time.Time{}) // attempts end by their own clocks; fails on a closed connection only
	return &trunk{group: g, raw: l.raw, wire: w, http: h2.New(w, g.wake), entry: c.opened(g.key.origin)}
}

// dead: it takes no attempt ever again.
func (tk *trunk) dead() bool {
	limit, _ := tk.http.Limit()
	return limit < 0
}

// quiet is how long nothing was on it and nothing came.
func (tk *trunk) quiet(now time.Time) time.Duration {
	return min(now.Sub(tk.idleSince), now.Sub(tk.wire.made)-time.Duration(tk.wire.heard.Load()))
}

// wire notes when a connection last gave a sign of life, and when it ended.
type wire struct {
	net.Conn

	made         time.Time
	heard, ended atomic.Int64 // in nanoseconds since it was made; ended 0: not yet
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	at := int64(time.Since(w.made))
	if n > 0 {
		w.heard.Store(at)
	}
	if err != nil {
		w.ended.Store(max(at, 1))
	}
	return n, err
}
