package broker

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// pipes is a listener of in-memory connections that obey deadlines, so that time-outs can be watched in a bubble.
type pipes struct {
	conns  chan net.Conn
	ended  chan struct{} // closed by Close
	closed sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.closed.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "@", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

// frame is what a test looks at of a frame.
type frame struct {
	kind     http2.FrameType
	stream   uint32
	code     http2.ErrCode // of RST_STREAM and GOAWAY
	text     string        // debug data of GOAWAY
	end, ack bool
	settings map[http2.SettingID]uint32
	window   uint32
	fields   map[string]string // of HEADERS
	at       time.Time
}

// rawClient speaks HTTP/2 by hand: it does what a polite library does not.
type rawClient struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	fields *hpack.Encoder
	mute   bool              // answers no PING
	gone   chan struct{}     // closed when the server has ended the connection
	news   chan struct{}     // receives a value after a frame, unless one is there already; never closed
	out    chan func() error // what is to be written, so that reading never waits for it; closed at the end of the test

	mu     sync.Mutex // protects the fields below
	frames []frame
	end    time.Time
}

// rawDial sends the connection preface and reads on until the server ends the connection.
func rawDial(t *testing.T, conn net.Conn, mute bool) *rawClient {
	t.Helper()
	c := &rawClient{t: t, conn: conn, framer: http2.NewFramer(conn, conn), mute: mute, gone: make(chan struct{}), news: make(chan struct{}, 1), out: make(chan func() error, 2000)}
	c.framer.SetMaxReadFrameSize(1<<24 - 1)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.fields = hpack.NewEncoder(&c.block)
	var running sync.WaitGroup
	running.Go(c.read)
	running.Go(func() {
		for do := range c.out {
			_ = do() // what fails because the server has ended the connection shows in the frames
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		<-c.gone
		close(c.out)
		running.Wait()
	})
	c.write(func() error {
		_, err := io.WriteString(conn, http2.ClientPreface)
		return errors.Join(err, c.framer.WriteSettings())
	})
	return c
}

func (c *rawClient) read() {
	defer close(c.gone)
	for {
		f, err := c.framer.ReadFrame()
		c.mu.Lock()
		if err != nil {
			c.end = time.Now()
			c.mu.Unlock()
			return
		}
		got := frame{kind: f.Header().Type, stream: f.Header().StreamID, at: time.Now()}
		var ping [8]byte
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			got.code = f.ErrCode
		case *http2.GoAwayFrame:
			got.code, got.text = f.ErrCode, string(f.DebugData())
		case *http2.SettingsFrame:
			got.settings, got.ack = make(map[http2.SettingID]uint32), f.IsAck()
			_ = f.ForeachSetting(func(s http2.Setting) error {
				got.settings[s.ID] = s.Val
				return nil
			})
		case *http2.WindowUpdateFrame:
			got.window = f.Increment
		case *http2.MetaHeadersFrame:
			got.end, got.fields = f.StreamEnded(), make(map[string]string)
			for _, field := range f.Fields {
				got.fields[field.Name] = field.Value
			}
		case *http2.PingFrame:
			got.ack, ping = f.IsAck(), f.Data
		}
		c.frames = append(c.frames, got)
		c.mu.Unlock()
		select {
		case c.news <- struct{}{}:
		default:
		}
		if got.kind == http2.FramePing && !got.ack && !c.mute {
			c.write(func() error { return c.framer.WritePing(true, ping) })
		}
	}
}

// write has something written after what was asked for before.
func (c *rawClient) write(do func() error) { c.out <- do }

func (c *rawClient) ping() {
	c.write(func() error { return c.framer.WritePing(false, [8]byte{}) })
}

// open begins an RPC with header fields of that size together, in as many frames as they need, and those that are given.
func (c *rawClient) open(stream uint32, path string, size int, end bool, more ...[2]string) {
	c.write(func() error {
		c.block.Reset()
		fields := [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "broker"}, {"content-type", "application/grpc"}, {"te", "trailers"},
		}
		fields = append(fields, more...)
		for ; size > 0; size -= 1 << 10 {
			fields = append(fields, [2]string{"x-large", strings.Repeat("x", min(size, 1<<10))})
		}
		for _, f := range fields {
			if err := c.fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
				return err
			}
		}
		const most = 16 << 10
		first := c.block.Next(most)
		err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: end, EndHeaders: c.block.Len() == 0})
		for err == nil && c.block.Len() > 0 {
			next := c.block.Next(most)
			err = c.framer.WriteContinuation(stream, c.block.Len() == 0, next)
		}
		return err
	})
}

// all gives the frames of a type that came so far.
func (c *rawClient) all(kind http2.FrameType) (found []frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.frames {
		if f.kind == kind {
			found = append(found, f)
		}
	}
	return found
}

// ended reports when the server ended the connection.
func (c *rawClient) ended() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end, !c.end.IsZero()
}

// answer waits for the end of an RPC and gives its status; nil: OK. A reset is an error that is no status.
func (c *rawClient) answer(stream uint32) error {
	c.t.Helper()
	deadline, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for {
		if err, ok := c.status(stream); ok {
			return err
		}
		select {
		case <-c.news:
		case <-c.gone:
			if err, ok := c.status(stream); ok {
				return err
			}
			c.t.Fatalf("the connection ended without an answer on stream %d", stream)
		case <-deadline.Done():
			c.t.Fatalf("no answer on stream %d", stream)
		}
	}
}

// status gives the status of an RPC, false while it has none.
func (c *rawClient) status(stream uint32) (err error, ok bool) { //nolint:revive // the error is the value
	for _, f := range c.all(http2.FrameHeaders) {
		code, told := f.fields["grpc-status"]
		if f.stream != stream || !told {
			continue
		}
		if packed := f.fields["grpc-status-details-bin"]; packed != "" {
			content, err := base64.RawStdEncoding.DecodeString(packed)
			st := &statuspb.Status{}
			if err := errors.Join(err, proto.Unmarshal(content, st)); err != nil {
				return err, true
			}
			return status.ErrorProto(st), true
		}
		number, err := strconv.Atoi(code)
		message, err2 := url.PathUnescape(f.fields["grpc-message"])
		if err := errors.Join(err, err2); err != nil {
			return err, true
		}
		return status.Error(codes.Code(number), message), true
	}
	for _, f := range c.all(http2.FrameRSTStream) {
		if f.stream == stream {
			return fmt.Errorf("reset: %s", f.code), true
		}
	}
	return nil, false
}
