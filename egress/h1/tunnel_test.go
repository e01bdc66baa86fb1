package h1_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/egress/h1"
)

// tunnel asks for one over p and gives the status, and all that a reader of the tunnel would find.
func tunnel(t testing.TB, p *peer, lim h1.Limits) (status int, through []byte, err error) {
	t.Helper()
	c := h1.New(p)
	c.Start("CONNECT", "192.0.2.7:443", "192.0.2.7:443")
	if err := c.Send(nil, true); err != nil {
		t.Fatal(err)
	}
	var r h1.Response
	rest, err := c.ReadTunnel(&r, lim)
	if err != nil {
		if r.Status != 0 || len(rest) > 0 || len(r.Fields) > 0 {
			t.Errorf("%v, but status %d, fields %v, rest %q", err, r.Status, r.Fields, rest)
		}
		return 0, nil, err
	}
	// Nothing else may be asked of the connection: it is the tunnel's now, or its body is unread.
	c.Start("GET", "/", "example.com")
	if kindOf(t, c.Send(nil, true)) != h1.Refused {
		t.Error("another request was written into the tunnel")
	}
	for _, f := range p.fragments {
		rest = append(rest, f...)
	}
	return r.Status, rest, nil
}

func TestConnectIsWrittenAsAnAuthorityAndNothingElse(t *testing.T) {
	p := whole("HTTP/1.1 200 OK\r\n\r\n")
	if _, _, err := tunnel(t, p, roomy()); err != nil {
		t.Fatal(err)
	}
	if want := "CONNECT 192.0.2.7:443 HTTP/1.1\r\nHost: 192.0.2.7:443\r\n\r\n"; string(p.wrote) != want {
		t.Errorf("wrote %q, want %q", p.wrote, want)
	}
}

func TestTunnelBeginsBehindTheHead(t *testing.T) {
	for name, row := range map[string]struct {
		raw, through string
		status       int
	}{
		"plain":                {"HTTP/1.1 200 Connection established\r\n\r\n", "", 200},
		"HTTP/1.0":             {"HTTP/1.0 200 Connection established\r\nProxy-Agent: x\r\n\r\n", "", 200},
		"no reason":            {"HTTP/1.1 200\r\n\r\n", "", 200},
		"LF alone":             {"HTTP/1.1 200 OK\n\nabc", "abc", 200},
		"another 2xx":          {"HTTP/1.1 299 OK\r\n\r\nabc", "abc", 299},
		"204":                  {"HTTP/1.1 204 OK\r\n\r\nabc", "abc", 204},
		"a length":             {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", "abc", 200},
		"a length that is bad": {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc", "abc", 200},
		"chunked":              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "0\r\n\r\n", 200},
		"two framings":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nabc", "abc", 200},
		"after an interim one": {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabc", "abc", 200},
		"a refusal":            {"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nsecret", "secret", 403},
		"a refusal, chunked":   {"HTTP/1.1 502 X\r\nTransfer-Encoding: chunked\r\n\r\n", "", 502},
		"a redirect":           {"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n", "", 302},
	} {
		for how, p := range map[string]*peer{"whole": whole(row.raw), "dripping": dripping(row.raw)} {
			status, through, err := tunnel(t, p, roomy())
			if err != nil || status != row.status || string(through) != row.through {
				t.Errorf("%s, %s: %d, %q, %v, want %d, %q", name, how, status, through, err, row.status, row.through)
			}
		}
	}
}

func TestNoTunnelWithoutAHead(t *testing.T) {
	lim := h1.Limits{HeaderBytes: 1000, Headers: 10}
	for name, row := range map[string]struct {
		raw  string
		kind h1.Kind
	}{
		"nothing":            {"", h1.Lost},
		"half a head":        {"HTTP/1.1 200 OK\r\nX: a\r\n", h1.Lost},
		"another protocol":   {"SSH-2.0-OpenSSH_9.9\r\n", h1.Malformed},
		"HTTP/2":             {"HTTP/2 200 OK\r\n\r\n", h1.Malformed},
		"switching":          {"HTTP/1.1 101 X\r\n\r\n", h1.Malformed},
		"a bare CR":          {"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n", h1.Malformed},
		"a blank in a name":  {"HTTP/1.1 200 OK\r\nX : a\r\n\r\n", h1.Malformed},
		"status 700":         {"HTTP/1.1 700 X\r\n\r\n", h1.Malformed},
		"a long line":        {"HTTP/1.1 200 " + strings.Repeat("x", 1000), h1.TooLarge},
		"a large head":       {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("x", 200)+"\r\n", 6) + "\r\n", h1.TooLarge},
		"many fields":        {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: a\r\n", 11) + "\r\n", h1.TooLarge},
		"endless interims":   {strings.Repeat("HTTP/1.1 100 X\r\n\r\n", 1000), h1.TooLarge},
		"a hundred interims": {strings.Repeat("HTTP/1.1 100\n\n", 101), h1.TooLarge},
	} {
		lim := lim
		if name == "a hundred interims" {
			lim.HeaderBytes = 64 << 10
		}
		for how, p := range map[string]*peer{"whole": whole(row.raw), "dripping": dripping(row.raw)} {
			if _, _, err := tunnel(t, p, lim); kindOf(t, err) != row.kind {
				t.Errorf("%s, %s: %v, want %s", name, how, err, row.kind)
			}
		}
	}
}

func TestWaitForATunnelEnds(t *testing.T) {
	p := whole("HTTP/1.1 200 OK\r\n")
	p.end = timeout{}
	if _, _, err := tunnel(t, p, roomy()); kindOf(t, err) != h1.Timeout {
		t.Error(err)
	}
}

// timeout is what a connection says when its deadline has passed.
type timeout struct{}

func (timeout) Error() string   { return "timed out" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

var framingField = regexp.MustCompile(`(?i)\n(content-length|transfer-encoding|trailer):`)

// FuzzReadTunnel: how the network cuts the bytes never changes the verdict, no byte of the tunnel is lost, and net/http finds the end
// of the head in the same place.
func FuzzReadTunnel(f *testing.F) {
	for _, a := range answers() {
		f.Add([]byte(a.raw), byte(len(a.raw)))
	}
	f.Add([]byte("HTTP/1.0 200 Connection established\r\n\r\n\x16\x03\x01"), byte(3))
	f.Add([]byte("HTTP/1.1 103 Early\n\nHTTP/1.1 200 OK\r\nContent-Length: 3, 4\r\n\r\nabc"), byte(1))
	f.Add([]byte("HTTP/1.1 407 X\r\nProxy-Authenticate: Basic\r\n y\r\n\r\n<html>"), byte(0))
	f.Fuzz(func(t *testing.T, raw []byte, piece byte) {
		if len(raw) > 64<<10 {
			t.Skip()
		}
		lim := h1.Limits{HeaderBytes: 1 << 20, Headers: 1 << 20}
		cut := func(size int) *peer {
			p := &peer{takes: -1}
			for f := range slices.Chunk(raw, size) {
				p.fragments = append(p.fragments, slices.Clone(f))
			}
			return p
		}
		status, through, err := tunnel(t, cut(len(raw)+1), lim)
		again, throughAgain, errAgain := tunnel(t, cut(int(piece)+1), lim)
		if status != again || !bytes.Equal(through, throughAgain) || kindOf(t, err) != kindOf(t, errAgain) {
			t.Fatalf("%d %q %v in one piece, %d %q %v in pieces of %d", status, through, err, again, throughAgain, errAgain, int(piece)+1)
		}
		if err != nil {
			return
		}
		if status < 200 || status > 599 || !bytes.HasSuffix(raw, through) {
			t.Fatalf("%d, %q of %q", status, through, raw)
		}
		head := raw[:len(raw)-len(through)]
		if !bytes.HasSuffix(head, []byte("\n\n")) && !bytes.HasSuffix(head, []byte("\n\r\n")) {
			t.Fatalf("the head ends in %q", head)
		}
		in := bufio.NewReaderSize(bytes.NewReader(raw), len(raw)+4096)
		for {
			r, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
			if err != nil {
				if !framingField.Match(head) { // it judges the framing, which a tunnel has none of
					t.Fatalf("laxer than net/http: %v", err)
				}
				return
			}
			if r.StatusCode >= 200 {
				if left, _ := io.ReadAll(in); r.StatusCode != status || !bytes.Equal(left, through) {
					t.Fatalf("%d %q, net/http %d %q", status, through, r.StatusCode, left)
				}
				return
			}
		}
	})
}
