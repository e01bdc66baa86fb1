package h2_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sallyport/sallyport/egress/h2"
)

// stricter lists every reason for which we refuse an answer that golang.org/x/net's client takes, by the text of our error. A refusal for
// another reason fails the fuzzing.
var stricter = regexp.MustCompile(strings.Join([]string{
	// x/net takes any number as a status, and skips 101 like every interim answer.
	"status outside 100 to 599", "101 to a request that asked for no upgrade",
	// … forgets a Content-Length it cannot read, or of which there are several.
	"Content-Length", "different Content-Length values", "a body longer than declared",
	"declared length over the limit",
	// … takes a length beside a head that ends the stream for that of no body.
	"its body is shorter than declared",
	// … gives up the stream alone for a frame whose padding or priority cannot be read, and with it the memory of the compression.
	"frames that break the protocol$",
	// … skips what is for a stream that was never opened (RFC 9113 §5.1: to be treated as an error of the connection).
	"a frame for a stream that was never opened",
	// … takes a body for 204 and 304.
	"a body where there can be none",
	// … has other limits of heads.
	"too many fields", "a head over the limit", "a field over the limit", "too many interim answers",
}, "|"))

// script is a connection whose peer sends its settings, waits for a request, says what the fuzzer wants and is gone.
type script struct {
	mu     sync.Mutex // protects the fields below
	before []byte     // what it says first
	after  []byte     // what it says once a request is there
	wrote  []byte     // the tail of what was written to it, not yet a whole frame
	asked  chan struct{}
	over   bool
	sent   int
}

func newScript(raw []byte) *script {
	var first bytes.Buffer
	_ = http2.NewFramer(&first, nil).WriteSettings()
	return &script{before: first.Bytes(), after: raw, asked: make(chan struct{})}
}

func (s *script) Read(b []byte) (int, error) {
	if n := copy(b, s.before); n > 0 {
		s.before = s.before[n:]
		return n, nil
	}
	<-s.asked
	n := copy(b, s.after)
	if s.after = s.after[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *script) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote = append(s.wrote, b...)
	if s.sent == 0 {
		s.wrote = bytes.TrimPrefix(s.wrote, []byte(http2.ClientPreface))
	}
	s.sent++
	for len(s.wrote) >= 9 {
		size := 9 + int(binary.BigEndian.Uint32(s.wrote)>>8)
		if len(s.wrote) < size {
			break
		}
		if http2.FrameType(s.wrote[3]) == http2.FrameHeaders {
			s.ask()
		}
		s.wrote = s.wrote[size:]
	}
	return len(b), nil
}

func (s *script) ask() {
	if !s.over {
		s.over = true
		close(s.asked)
	}
}

func (s *script) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask()
	return nil
}

func (*script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }

type reading struct {
	status           int
	body             string
	fields, trailers []string // as "name: value", sorted
}

func ours(t *testing.T, raw []byte) (reading, error) {
	t.Helper()
	c := h2.New(newScript(raw), nil)
	defer c.Close()
	lim := roomy()
	lim.Deadline = time.Now().Add(20 * time.Second)
	a, err := c.RoundTrip(t.Context(), get(), lim)
	got := reading{status: a.Status, body: string(a.Body)}
	for _, f := range a.Fields {
		got.fields = append(got.fields, f.Name+": "+f.Value)
	}
	for _, f := range a.Trailers {
		got.trailers = append(got.trailers, f.Name+": "+f.Value)
	}
	slices.Sort(got.fields)
	slices.Sort(got.trailers)
	return got, err
}

func theirs(raw []byte) (reading, error) {
	tr := &http2.Transport{DisableCompression: true, AllowHTTP: true} //nolint:staticcheck // the client of this very module is the oracle
	s := newScript(raw)
	defer s.Close()
	cc, err := tr.NewClientConn(s) //nolint:staticcheck // as above
	if err != nil {
		return reading{}, err
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "https://api.example.com/a?b=c", nil)
	if err != nil {
		return reading{}, err
	}
	res, err := cc.RoundTrip(req)
	if err != nil {
		return reading{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	got := reading{status: res.StatusCode, body: string(body)}
	list := func(h http.Header) (out []string) {
		for name, values := range h {
			for _, v := range values {
				out = append(out, name+": "+strings.Trim(v, " \t"))
			}
		}
		slices.Sort(out)
		return out
	}
	got.fields, got.trailers = list(res.Header), list(res.Trailer)
	return got, err
}

// FuzzAnswer holds what is made of a server's frames to golang.org/x/net's own client: the same answer, or a refusal whose reason is
// on the list. Whatever comes, it ends.
func FuzzAnswer(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 64<<10 {
			t.Skip()
		}
		got, err := ours(t, raw)
		if e, ok := errors.AsType[*h2.Error](err); err != nil && (!ok || e.Text == "" || e.Kind == h2.Timeout) {
			t.Fatalf("%v", err)
		}
		want, theirErr := theirs(raw)
		switch {
		case err != nil && theirErr == nil:
			if !stricter.MatchString(err.Error()) {
				t.Fatalf("stricter without a reason on the list: %v in %q", err, raw)
			}
		case err == nil && theirErr != nil:
			if got.status != 204 && got.status != 304 { // whose length means nothing (RFC 9110 §8.6); x/net waits for its body
				t.Fatalf("laxer without a reason: x/net says %v of %q", theirErr, raw)
			}
		case err == nil:
			if got.status != want.status || got.body != want.body {
				t.Fatalf("%d %q, x/net %d %q in %q", got.status, got.body, want.status, want.body, raw)
			}
			// x/net takes the trailers that were announced and names them alike; it drops fields of the connection.
			if a, b := likened(got.fields), likened(want.fields); !slices.Equal(a, b) {
				t.Fatalf("fields %q, x/net %q in %q", a, b, raw)
			}
		}
	})
}

// likened leaves out what x/net takes out or changes on purpose.
func likened(fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(f string) bool {
		name, _, _ := strings.Cut(f, ":")
		return slices.Contains([]string{"Trailer", "Content-Length", "Connection", "Transfer-Encoding", "Proxy-Connection", "Keep-Alive", "Upgrade", "Te"}, textproto.CanonicalMIMEHeaderKey(name))
	})
}

// seeds are answers of the tests, sound and not.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	var out [][]byte
	add := func(say func(fr *http2.Framer, head func(...string) []byte)) {
		var b, block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		fr := http2.NewFramer(&b, nil)
		fr.AllowIllegalWrites = true
		say(fr, func(fields ...string) []byte {
			block.Reset()
			for i := 0; i < len(fields); i += 2 {
				if err := enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
					f.Fatal(err)
				}
			}
			return slices.Clone(block.Bytes())
		})
		out = append(out, b.Bytes())
	}
	headers := func(fr *http2.Framer, id uint32, ends bool, block []byte) {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: ends, EndHeaders: true})
	}
	for _, fields := range [][]string{
		{":status", "200", "content-length", "2", "a", "b"},
		{":status", "204"},
		{":status", "999"},
		{":status", "101"},
		{"a", "b"},
		{":status", "200", "X-A", "b"},
		{":status", "200", "content-length", "2, 2"},
		{":status", "200", "trailer", "x-sum"},
		{":status", "200", "set-cookie", "a", "set-cookie", "b", "connection", "x", "a", "\xff "},
	} {
		add(func(fr *http2.Framer, head func(...string) []byte) {
			headers(fr, 1, false, head(":status", "103", "link", "</a>"))
			headers(fr, 1, false, head(fields...))
			_ = fr.WriteData(1, false, []byte("o"))
			_ = fr.WriteDataPadded(1, false, []byte("k"), make([]byte, 3))
			headers(fr, 1, true, head("x-sum", "7"))
		})
		add(func(fr *http2.Framer, head func(...string) []byte) { headers(fr, 1, true, head(fields...)) })
	}
	add(func(fr *http2.Framer, head func(...string) []byte) {
		_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		_ = fr.WritePing(false, [8]byte{1})
		_ = fr.WriteWindowUpdate(0, 7)
		block := head(":status", "200", "a", "b")
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:1]})
		_ = fr.WriteContinuation(1, true, block[1:])
		_ = fr.WriteData(1, true, []byte("ok"))
	})
	add(func(fr *http2.Framer, _ func(...string) []byte) { _ = fr.WriteRSTStream(1, http2.ErrCodeRefusedStream) })
	add(func(fr *http2.Framer, _ func(...string) []byte) { _ = fr.WriteGoAway(0, http2.ErrCodeNo, []byte("x")) })
	add(func(fr *http2.Framer, _ func(...string) []byte) {
		_ = fr.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2})
	})
	return append(out, []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), nil)
}
