package egress

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sallyport/sallyport/policy"
)

// streams is a real HTTP/2 server over TLS that does with each stream what a test says, and counts what reached it.
type streams struct {
	*upstream
	authority *authority
	settings  []http2.Setting
	serve     func(*stream)
	deaf      bool // it says nothing by itself, not even its settings

	mu       sync.Mutex // protects the fields below
	requests []request2
}

// request2 is a request as it arrived.
type request2 struct {
	conn   int // number of its connection, from 1
	method string
	fields map[string][]string
	body   string
}

// stream is one request while it is served.
type stream struct {
	*side

	id   uint32
	n    int           // number of the request over all connections, from 1
	req  int           // its place in requests
	done chan struct{} // closed when the request is here whole, or the connection is over
}

// side is the server's side of one connection.
type side struct {
	u  *streams
	n  int
	c  net.Conn
	mu sync.Mutex // protects writing
	fr *http2.Framer

	buf bytes.Buffer
	enc *hpack.Encoder
}

func newStreams(t testing.TB, serve func(*stream), change func(*streams)) *streams {
	t.Helper()
	u := &streams{authority: newAuthority(t), serve: serve}
	if change != nil {
		change(u)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{u.authority.server(t, nil)}, NextProtos: []string{alpnHTTP2, alpnHTTP1}}
	u.upstream = newUpstream(t, overTLS(cfg, u.connection))
	return u
}

// policy allows HTTP/2, and HTTP/1.1.
func (u *streams) policy(t testing.TB) *policy.Effective {
	t.Helper()
	p := u.authority.trusting(t)
	p.Attempt.Protocols = []policy.Protocol{policy.ProtocolHTTP2, policy.ProtocolHTTP11}
	return p
}

func (u *streams) url(path string) string { return secure(u.upstream, path) }

// seen is what arrived so far.
func (u *streams) seen() []request2 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.requests)
}

func (u *streams) connection(n int, c net.Conn) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	s := &side{u: u, n: n, c: c, fr: http2.NewFramer(c, c)}
	s.fr.AllowIllegalWrites = true
	s.fr.SetReuseFrames()
	s.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	s.enc = hpack.NewEncoder(&s.buf)
	if !u.deaf {
		s.write(func() error { return s.fr.WriteSettings(u.settings...) })
	}
	open := map[uint32]*stream{}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() {
		for _, st := range open {
			close(st.done)
		}
	}()
	for {
		f, err := s.fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() && !u.deaf {
				s.write(s.fr.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !f.IsAck() && !u.deaf {
				data := f.Data
				s.write(func() error { return s.fr.WritePing(true, data) })
			}
		case *http2.MetaHeadersFrame:
			st := s.begin(f)
			open[f.StreamID] = st
			serving.Go(func() { u.serve(st) })
			if f.StreamEnded() {
				close(st.done)
				delete(open, f.StreamID)
			}
		case *http2.DataFrame:
			if st := open[f.StreamID]; st != nil {
				st.take(f)
				if f.StreamEnded() {
					close(st.done)
					delete(open, f.StreamID)
				}
			}
		case *http2.RSTStreamFrame:
			if st := open[f.StreamID]; st != nil {
				close(st.done)
				delete(open, f.StreamID)
			}
		}
	}
}

func (s *side) begin(f *http2.MetaHeadersFrame) *stream {
	r := request2{conn: s.n, fields: map[string][]string{}}
	for _, h := range f.Fields {
		r.fields[h.Name] = append(r.fields[h.Name], h.Value)
	}
	r.method = r.fields[":method"][0]
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	s.u.requests = append(s.u.requests, r)
	return &stream{side: s, id: f.StreamID, n: len(s.u.requests), req: len(s.u.requests) - 1, done: make(chan struct{})}
}

// take takes a piece of the body, and gives back what it took of the windows.
func (st *stream) take(f *http2.DataFrame) {
	st.u.mu.Lock()
	st.u.requests[st.req].body += string(f.Data())
	st.u.mu.Unlock()
	if n := f.Length; n > 0 && !st.u.deaf {
		st.write(func() error { return st.fr.WriteWindowUpdate(0, n) })
		st.write(func() error { return st.fr.WriteWindowUpdate(st.id, n) })
	}
}

// write writes frames; a client that is gone meanwhile is no matter.
func (s *side) write(f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = f()
}

func (st *stream) path() string {
	st.u.mu.Lock()
	defer st.u.mu.Unlock()
	return st.u.requests[st.req].fields[":path"][0]
}

func (st *stream) head(ends bool, namesAndValues ...string) {
	st.write(func() error {
		st.buf.Reset()
		for i := 0; i < len(namesAndValues); i += 2 {
			if err := st.enc.WriteField(hpack.HeaderField{Name: namesAndValues[i], Value: namesAndValues[i+1]}); err != nil {
				return err
			}
		}
		return st.block(ends, st.buf.Bytes())
	})
}

// block writes a header block in frames of 16 KiB.
func (st *stream) block(ends bool, block []byte) error {
	n := min(len(block), 16<<10)
	err := st.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: st.id, BlockFragment: block[:n], EndStream: ends, EndHeaders: n == len(block)})
	for block = block[n:]; err == nil && len(block) > 0; block = block[n:] {
		n = min(len(block), 16<<10)
		err = st.fr.WriteContinuation(st.id, n == len(block), block[:n])
	}
	return err
}

func (st *stream) data(ends bool, data string) {
	st.write(func() error { return st.fr.WriteData(st.id, ends, []byte(data)) })
}

func (st *stream) rst(code http2.ErrCode) {
	st.write(func() error { return st.fr.WriteRSTStream(st.id, code) })
}

func (st *stream) goAway(last uint32, code http2.ErrCode) {
	st.write(func() error { return st.fr.WriteGoAway(last, code, []byte("s3cr3t")) })
}

// ok answers once the request is here whole.
func (st *stream) ok() {
	<-st.done
	st.head(false, ":status", "200", "content-length", "2")
	st.data(true, "ok")
}
