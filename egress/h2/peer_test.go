package h2_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sallyport/sallyport/egress/h2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frame is one that the peer received.
type frame struct {
	kind   http2.FrameType
	id     uint32
	ends   bool
	ack    bool
	code   http2.ErrCode
	last   uint32
	data   string
	inc    uint32
	fields []hpack.HeaderField
}

// peer is the server's side of a connection in memory: it speaks real HTTP/2 and does what a test says, not what it should.
type peer struct {
	t     *testing.T
	c     net.Conn
	fr    *http2.Framer
	in    chan frame // what it received, in order; closed by the reader
	buf   bytes.Buffer
	enc   *hpack.Encoder
	choke *choked // around the connection's side; nil: nothing
	table uint32  // of its header compression
	deaf  bool    // it acknowledges no settings by itself

	generous bool // it gives back at once what a body took of the connection's window

	mu sync.Mutex // protects writing
}

// connect gives a connection whose peer has sent its settings, unless it is told to begin with nothing.
func connect(t *testing.T, settings ...http2.Setting) (*h2.Conn, *peer) {
	t.Helper()
	c, p := connectSilent(t, nil)
	for _, s := range settings {
		if s.ID == http2.SettingHeaderTableSize {
			p.table = s.Val
		}
	}
	p.write(func() error { return p.fr.WriteSettings(settings...) })
	p.listen()
	p.want(http2.FrameSettings) // ours
	p.want(http2.FrameWindowUpdate)
	for f := range p.in { // ours to theirs
		if f.ack {
			break
		}
	}
	return c, p
}

// connectSilent gives one whose peer has done nothing yet.
func connectSilent(t *testing.T, wrap func(net.Conn) net.Conn) (*h2.Conn, *peer) {
	t.Helper()
	client, server := net.Pipe()
	p := &peer{t: t, c: server, in: make(chan frame, 100_000), table: 4096}
	p.enc = hpack.NewEncoder(&p.buf)
	p.fr = http2.NewFramer(server, server)
	p.fr.AllowIllegalWrites = true
	if wrap != nil {
		client = wrap(client)
	}
	c := h2.New(client, nil)
	t.Cleanup(func() {
		c.Close()
		_ = server.Close()
	})
	return c, p
}

// listen begins to read what the connection writes.
func (p *peer) listen() { go p.read() }

func (p *peer) read() {
	defer close(p.in)
	if _, err := io.ReadFull(p.c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	dec := hpack.NewDecoder(p.table, nil)
	var head frame
	var block []byte
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			return
		}
		got := frame{kind: f.Header().Type, id: f.Header().StreamID}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if got.ack = f.IsAck(); !got.ack && !p.deaf {
				p.write(p.fr.WriteSettingsAck)
			}
		case *http2.PingFrame:
			got.ack = f.IsAck()
		case *http2.HeadersFrame:
			head, block = got, append(block[:0], f.HeaderBlockFragment()...)
			head.ends = f.StreamEnded()
			if !f.HeadersEnded() {
				continue
			}
			got = head
			got.fields, _ = dec.DecodeFull(block)
		case *http2.ContinuationFrame:
			block = append(block, f.HeaderBlockFragment()...)
			if !f.HeadersEnded() {
				continue
			}
			got = head
			got.fields, _ = dec.DecodeFull(block)
		case *http2.DataFrame:
			got.data, got.ends = string(f.Data()), f.StreamEnded()
			if p.generous && got.data != "" {
				p.write(func() error { return p.fr.WriteWindowUpdate(0, f.Length) })
			}
		case *http2.RSTStreamFrame:
			got.code = f.ErrCode
		case *http2.GoAwayFrame:
			got.code, got.last = f.ErrCode, f.LastStreamID
		case *http2.WindowUpdateFrame:
			got.inc = f.Increment
		}
		p.in <- got
	}
}

// write writes frames; a connection that is closed meanwhile is as good.
func (p *peer) write(f func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := f(); err != nil && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, net.ErrClosed) {
		p.t.Errorf("the peer's write: %v", err)
	}
}

// want waits for a frame of that kind and passes over acknowledgements and window updates.
func (p *peer) want(kind http2.FrameType) frame {
	p.t.Helper()
	for f := range p.in {
		if f.kind == kind {
			return f
		}
		if f.kind != http2.FrameWindowUpdate && !f.ack {
			p.t.Fatalf("%v came, want %v", f, kind)
		}
	}
	p.t.Fatalf("the connection ended, want %v", kind)
	return frame{}
}

// head writes a header block in frames of 16 KiB.
func (p *peer) head(id uint32, ends bool, namesAndValues ...string) {
	p.write(func() error {
		p.buf.Reset()
		for i := 0; i < len(namesAndValues); i += 2 {
			if err := p.enc.WriteField(hpack.HeaderField{Name: namesAndValues[i], Value: namesAndValues[i+1]}); err != nil {
				return err
			}
		}
		return p.block(id, ends, slices.Clone(p.buf.Bytes()))
	})
}

func (p *peer) block(id uint32, ends bool, block []byte) error {
	n := min(len(block), 16<<10)
	if err := p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n], EndStream: ends, EndHeaders: n == len(block)}); err != nil {
		return err
	}
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), 16<<10)
		if err := p.fr.WriteContinuation(id, n == len(block), block[:n]); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) data(id uint32, ends bool, data string) {
	p.write(func() error { return p.fr.WriteData(id, ends, []byte(data)) })
}

func (p *peer) rst(id uint32, code http2.ErrCode) {
	p.write(func() error { return p.fr.WriteRSTStream(id, code) })
}

func (p *peer) goAway(last uint32, code http2.ErrCode) {
	p.write(func() error { return p.fr.WriteGoAway(last, code, []byte("s3cr3t")) })
}

func (p *peer) ok(id uint32) {
	p.head(id, false, ":status", "200", "content-length", "2")
	p.data(id, true, "ok")
}

// get is the usual request; post has that body.
func get() *h2.Request { return request("GET", nil) }

func post(body []byte) *h2.Request { return request("POST", body) }

func request(method string, body []byte) *h2.Request {
	r := new(h2.Request)
	r.Start(method, "/a?b=c", "api.example.com")
	r.Field("X-A", "1")
	r.Body, r.Bodyless = body, body == nil
	return r
}

// roomy has five seconds.
func roomy() h2.Limits {
	return h2.Limits{HeaderBytes: 64 << 10, Headers: 256, BodyBytes: 3 << 20, Deadline: time.Now().Add(5 * time.Second)}
}

// outcome is what a RoundTrip gave.
type outcome struct {
	h2.Response

	err error
}

// send makes a RoundTrip on a goroutine of its own.
func send(ctx context.Context, c *h2.Conn, r *h2.Request, lim h2.Limits) <-chan outcome {
	out := make(chan outcome, 1) // receives one, is never closed
	go func() {
		a, err := c.RoundTrip(ctx, r, lim)
		out <- outcome{a, err}
	}()
	return out
}

// fails checks kind and text of an error, and what is proved.
func fails(t *testing.T, o outcome, kind h2.Kind, text string, begun, sent bool) {
	t.Helper()
	e, ok := errors.AsType[*h2.Error](o.err)
	if !ok || e.Kind != kind || e.Text != text {
		t.Errorf("%v, want %v: %s", o.err, kind, text)
	}
	if o.Begun != begun || o.Sent != sent || o.Body != nil {
		t.Errorf("begun %v, sent %v, body %q; want %v, %v, none", o.Begun, o.Sent, o.Body, begun, sent)
	}
}

// answers checks that a connection still serves.
func answers(t *testing.T, c *h2.Conn, p *peer) {
	t.Helper()
	out := send(t.Context(), c, get(), roomy())
	p.ok(p.want(http2.FrameHeaders).id)
	if o := <-out; o.err != nil || string(o.Body) != "ok" {
		t.Errorf("the connection does not serve any more: %v", o.err)
	}
}

// limit is how many streams a connection takes.
func limit(c *h2.Conn) int {
	n, _ := c.Limit()
	return n
}
