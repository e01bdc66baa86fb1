package h2

import (
	"bufio"
	"bytes"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// streamsMost is how many streams one connection carries, whatever the peer would take: beyond it a second connection does
	// better, since one lost packet stops all that share one.
	streamsMost = 128
	// streamWindow and connWindow are what the peer may send ahead of us. They bound no memory: bytes are taken as they come, up to the
	// limits of their stream.
	streamWindow = 1 << 20
	connWindow   = 4 << 20
	// firstWindow is what both sides begin with (RFC 9113 §6.9.2), largestWindow the most there can be.
	firstWindow   = 64<<10 - 1
	largestWindow = 1<<31 - 1
	// inBytes is the read buffer.
	inBytes = 8 << 10
	// tableBytes is the memory of the header compression, each way; it is the protocol's default.
	tableBytes = 4 << 10
	// streamsEver: a connection takes no more streams after that many, long before their numbers end.
	streamsEver = 1 << 29
)

// Conn is one HTTP/2 connection of a client. It is safe for concurrent use.
type Conn struct {
	c       net.Conn
	roomier chan<- struct{}
	wake    chan struct{}  // tells the writer that there is something to do; holds one, is never closed
	running sync.WaitGroup // reader and writer

	requests atomic.Uint64 // see Requests

	limit atomic.Int32 // see Limit: twice the number, and 1 once the peer's SETTINGS are here; less than 0: none ever again

	reading // the reader's own

	mu sync.Mutex // protects the fields below

	streams map[uint32]*stream // open ones by their number
	queue   []*stream          // those with something to write, in turn; the ones without a number are not open yet
	nextID  uint32
	peerMax uint32 // how many streams the peer takes
	greeted bool   // its SETTINGS are here
	// why is the end of the connection, nil while it lives; leaving: the writer has a last word to write and closes then.
	why     *Error
	leaving bool
	away    *farewell // the peer's GOAWAY
	stale   bool      // it gave no sign of life when it should have, or its numbers are used up
	mute    bool      // a write failed: what was sent may still be answered
	crash   any       // a panic of reader or writer, which belongs to the calls on it

	// Signs of life: frames counts what came, silent the attempts in a row that went by without any, chatter the frames in a row that
	// carried nothing for anybody.
	frames          uint64
	silent, chatter int

	writingState
	recvWindow, recvOwed int64 // what the peer may still send; what it will be given back
	told                 []*stream
}

// New begins a connection on c, whose TLS handshake is over: no deadline may be set on it. Into roomier one value is put, without
// waiting, when the peer says how many streams it takes, and when the connection takes none any more; nil when nobody asks.
func New(c net.Conn, roomier chan<- struct{}) *Conn {
	cn := &Conn{
		c: c, roomier: roomier, wake: make(chan struct{}, 1),
		streams: make(map[uint32]*stream), nextID: 1, peerMax: streamsMost,
		recvWindow: connWindow,
	}
	cn.limit.Store(1 << 1)
	cn.source = source{Conn: c}
	cn.in = http2.NewFramer(nil, bufio.NewReaderSize(&cn.source, inBytes))
	cn.in.SetMaxReadFrameSize(frameBytes) // what we announce by saying nothing
	cn.in.SetReuseFrames()
	cn.head.names = make(map[string]string)
	cn.dec = hpack.NewDecoder(tableBytes, cn.head.add)
	cn.dec.SetMaxStringLength(blockMost)
	cn.head.dec = cn.dec
	cn.window, cn.peerWindow = firstWindow, firstWindow
	cn.names = make(map[string]string)
	cn.enc = hpack.NewEncoder(&cn.block)
	cn.out = append(cn.out, http2.ClientPreface...)
	cn.frame = http2.NewFramer(&cn.out, nil)
	must(cn.frame.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}))
	must(cn.frame.WriteWindowUpdate(0, connWindow-firstWindow))
	cn.running.Go(func() { cn.guarded(cn.read) })
	cn.running.Go(func() { cn.guarded(cn.write) })
	return cn
}

// Limit is how many streams may be open at once, and whether that is the peer's own word; -1 when it takes no new one ever again. Before
// its SETTINGS are here it is 1, so that a burst on a fresh connection is not refused by a peer that takes few.
func (c *Conn) Limit() (streams int, said bool) {
	limit := c.limit.Load()
	if limit < 0 {
		return -1, true
	}
	return int(limit >> 1), limit&1 != 0
}

// Requests is how many requests the connection took, or may have taken, at least one byte of, ever: those of which [Response.Sent] is, or
// will be, true.
func (c *Conn) Requests() uint64 { return c.requests.Load() }

// Close ends the connection at once, with whatever is on it, and waits for its goroutines.
func (c *Conn) Close() {
	c.end(&Error{Kind: Lost, Text: "the connection was closed by this side"})
	_ = c.c.Close() // also when a last word hangs
	c.running.Wait()
}

// guarded runs reader or writer. A panic there belongs to the calls on this connection, not to the process.
func (c *Conn) guarded(f func()) {
	defer func() {
		if v := recover(); v != nil {
			c.mu.Lock()
			c.crash = &crash{v, debug.Stack()}
			c.writing = false
			c.mu.Unlock()
			c.end(&Error{Kind: Lost, Text: "an internal error"})
		}
	}()
	f()
}

// crash carries a panic to the goroutine of a call, where it is recovered like any other.
type crash struct {
	value any
	stack []byte
}

// end makes the connection useless for that reason, the first one, and tells every stream. While a write is under way its outcome
// decides what is proved of the streams in it, so that the writer tells them, at once: closing ends the write.
func (c *Conn) end(why *Error) {
	c.mu.Lock()
	if c.why == nil {
		c.why = why
		c.judgeLocked()
		if why.code != http2.ErrCodeNo && !c.writing && !c.mute {
			must(c.frame.WriteGoAway(0, why.code, nil))
			c.leaving = true
		}
	}
	leaving := c.leaving
	c.mu.Unlock()
	if !leaving {
		_ = c.c.Close() // it may be closed already
	}
	c.mu.Lock()
	var told []*stream
	if !c.writing {
		told = c.finishAllLocked()
	}
	c.mu.Unlock()
	tell(told)
	c.hurry()
	c.announce()
}

// finishAllLocked ends every stream by the end of the connection.
func (c *Conn) finishAllLocked() []*stream {
	var told []*stream
	end := func(s *stream) {
		if s.over {
			return
		}
		why := c.why
		if c.away != nil && why.Kind == Lost {
			why = &Error{Kind: Lost, Text: why.Text + "; before that the server sent " + c.away.String(), Err: why.Err}
		}
		c.finishLocked(s, why)
		told = append(told, s)
	}
	for _, s := range c.streams {
		end(s)
	}
	for _, s := range c.queue {
		end(s)
	}
	c.queue = nil
	return told
}

// judgeLocked finds the limit anew; the caller announces it after unlock.
func (c *Conn) judgeLocked() {
	switch {
	case c.why != nil, c.away != nil, c.stale, c.mute:
		c.limit.Store(-1)
	case c.greeted:
		c.limit.Store(int32(min(c.peerMax, streamsMost))<<1 | 1)
	}
}

// speaksLocked: what is put into the batch will be written.
func (c *Conn) speaksLocked() bool { return c.why == nil && !c.mute }

// announce tells whoever waits for room; holding none of our locks.
func (c *Conn) announce() {
	select {
	case c.roomier <- struct{}{}:
	default: // nobody asks, or one is under way
	}
}

// hurry wakes the writer.
func (c *Conn) hurry() {
	select {
	case c.wake <- struct{}{}:
	default: // it has been woken
	}
}

// buffer takes frames.
type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// must holds where a frame goes into a buffer, which cannot fail, and its content is our own.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// writingState is what the writer works on, under the connection's lock.
type writingState struct {
	out, spare buffer        // what is written next, and what is being written
	frame      *http2.Framer // writes into out
	enc        *hpack.Encoder
	block      bytes.Buffer      // of enc
	names      map[string]string // field names in lower case
	marks      []mark            // of what is being written
	writing    bool              // a Write is under way

	window, peerWindow int64 // of the connection; that of a new stream
}

// Greeted reports whether the peer has said anything at all: its first frame are its SETTINGS.
func (c *Conn) Greeted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.greeted
}

// GoneAway reports whether the peer announced the end of the connection.
func (c *Conn) GoneAway() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away != nil
}
