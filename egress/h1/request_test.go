package h1_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/sallyport/sallyport/egress/h1"
)

func TestRequestBytesAreExact(t *testing.T) {
	for _, row := range []struct {
		name     string
		build    func(*h1.Conn)
		body     string
		bodyless bool
		want     string
		writes   int
	}{
		{"bodyless", func(c *h1.Conn) { c.Start("GET", "/a?b=c", "example.com:8080") }, "", true, "GET /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\n\r\n", 1},
		{"empty body", func(c *h1.Conn) { c.Start("POST", "/", "example.com") }, "", false, "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n", 1},
		{"fields in order", func(c *h1.Conn) {
			c.Start("PUT", "*", "[::1]")
			c.Field("B", "1")
			c.Field("a", "")
			c.Field("B", "x\xff\ty")
		}, "ok", false, "PUT * HTTP/1.1\r\nHost: [::1]\r\nB: 1\r\na: \r\nB: x\xff\ty\r\nContent-Length: 2\r\n\r\nok", 1},
		{"16 KiB in one write", func(c *h1.Conn) { c.Start("POST", "/", "h") }, strings.Repeat("x", 16<<10), false, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 16384\r\n\r\n" + strings.Repeat("x", 16<<10), 1},
		{"a byte more in two", func(c *h1.Conn) { c.Start("POST", "/", "h") }, strings.Repeat("x", 16<<10+1), false, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 16385\r\n\r\n" + strings.Repeat("x", 16<<10+1), 2},
		{"a long head and a long body", func(c *h1.Conn) { c.Start("POST", "/"+strings.Repeat("p", 20<<10), "h") }, strings.Repeat("x", 20<<10), false, "POST /" + strings.Repeat("p", 20<<10) + " HTTP/1.1\r\nHost: h\r\nContent-Length: 20480\r\n\r\n" + strings.Repeat("x", 20<<10), 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := whole("")
			c := h1.New(p)
			row.build(c)
			if err := c.Send([]byte(row.body), row.bodyless); err != nil {
				t.Fatal(err)
			}
			if string(p.wrote) != row.want {
				t.Errorf("wrote %.200q\nwant  %.200q", p.wrote, row.want)
			}
			if p.writes != row.writes || c.Written() != int64(len(row.want)) {
				t.Errorf("%d writes, %d bytes counted, want %d, %d", p.writes, c.Written(), row.writes, len(row.want))
			}
		})
	}
}

func TestIllegalRequestIsNotSent(t *testing.T) {
	field := func(name, value string) func(*h1.Conn) {
		return func(c *h1.Conn) {
			c.Start("GET", "/", "example.com")
			c.Field(name, value)
		}
	}
	start := func(method, target, host string) func(*h1.Conn) {
		return func(c *h1.Conn) { c.Start(method, target, host) }
	}
	for name, build := range map[string]func(*h1.Conn){
		"CR in a value":             field("A", "a\rb"),
		"LF in a value":             field("A", "a\nb"),
		"NUL in a value":            field("A", "a\x00b"),
		"a colon in a name":         field("A:", "b"),
		"LF in a name":              field("A\n", "b"),
		"no name":                   field("", "b"),
		"a length of its own":       field("content-length", "3"),
		"a coding of its own":       field("Transfer-Encoding", "chunked"),
		"a host of its own":         field("HOST", "example.org"),
		"a blank in the target":     start("GET", "/ HTTP/1.1", "example.com"),
		"a line end in the method":  start("GET\r\n", "/", "example.com"),
		"a line end in the host":    start("GET", "/", "example.com\r\nA: b"),
		"no target":                 start("GET", "", "example.com"),
		"no method":                 start("", "/", "example.com"),
		"an illegal field, then ok": func(c *h1.Conn) { field("A", "\n")(c); c.Field("B", "c") },
	} {
		t.Run(name, func(t *testing.T) {
			p := whole("")
			c := h1.New(p)
			build(c)
			err := c.Send(nil, true)
			if kindOf(t, err) != h1.Refused || p.writes != 0 || c.Written() != 0 {
				t.Errorf("%d writes, %d bytes: %v", p.writes, c.Written(), err)
			}
		})
	}
	t.Run("a body beside bodyless", func(t *testing.T) {
		p := whole("")
		c := h1.New(p)
		c.Start("GET", "/", "example.com")
		if err := c.Send([]byte("x"), true); kindOf(t, err) != h1.Refused || p.writes != 0 {
			t.Error(err)
		}
	})
}

func TestFailedSendCountsWhatWasTakenAndLeavesTheAnswer(t *testing.T) {
	body := []byte(strings.Repeat("x", 100_000))
	for _, takes := range []int{0, 1, 20_000} {
		p := whole("HTTP/1.1 413 x\r\nContent-Length: 2\r\n\r\nno")
		p.takes = takes
		c := h1.New(p)
		c.Start("POST", "/", "example.com")
		err := c.Send(body, false)
		if kindOf(t, err) != h1.WriteFailed || !errors.Is(err, syscall.EPIPE) || c.Written() != int64(takes) {
			t.Errorf("takes %d: written %d: %v", takes, c.Written(), err)
		}
		var r h1.Response
		if err := c.ReadResponse(&r, roomy()); err != nil || r.Status != 413 || string(r.Body) != "no" {
			t.Errorf("takes %d: %d %q: %v", takes, r.Status, r.Body, err)
		}
		if c.Reusable() {
			t.Errorf("takes %d: reusable after a failed send", takes)
		}
	}
}

// stuck is a connection whose writes end in the deadline.
type stuck struct{ *peer }

func (stuck) Write([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestSendPastTheDeadlineIsATimeout(t *testing.T) {
	c := h1.New(stuck{whole("")})
	c.Start("GET", "/", "example.com")
	if err := c.Send(nil, true); kindOf(t, err) != h1.Timeout {
		t.Error(err)
	}
}
