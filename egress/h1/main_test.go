package h1_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/egress/h1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a connection whose other side is a script: fragments to read, one per Read, then an end.
type peer struct {
	net.Conn // nil: a method that is not here must not be called

	fragments [][]byte
	// end is what Read returns after the last fragment; nil means io.EOF. With endBeside it comes with that fragment.
	end       error
	endBeside bool
	// takes is how many bytes Write accepts before it fails with EPIPE; negative means all.
	takes   int
	wrote   []byte
	writes  int
	readNow func([]byte) (int, error)
}

func (p *peer) Read(b []byte) (int, error) {
	end := p.end
	if end == nil {
		end = io.EOF
	}
	if len(p.fragments) == 0 {
		return 0, end
	}
	n := copy(b, p.fragments[0])
	if p.fragments[0] = p.fragments[0][n:]; len(p.fragments[0]) == 0 {
		p.fragments = p.fragments[1:]
	}
	if p.endBeside && len(p.fragments) == 0 {
		return n, end
	}
	return n, nil
}

func (p *peer) Write(b []byte) (int, error) {
	p.writes++
	if p.takes >= 0 && len(b) > p.takes {
		n := p.takes
		p.takes = 0
		p.wrote = append(p.wrote, b[:n]...)
		return n, &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	if p.takes >= 0 {
		p.takes -= len(b)
	}
	p.wrote = append(p.wrote, b...)
	return len(b), nil
}

func (p *peer) SetDeadline(time.Time) error     { return nil }
func (p *peer) SetReadDeadline(time.Time) error { return nil }

// look is a peer that can be read without waiting.
type look struct{ *peer }

func (l look) ReadNow(b []byte) (int, error) { return l.readNow(b) }

// whole delivers raw in one piece, dripping one byte at a time.
func whole(raw string) *peer { return &peer{fragments: [][]byte{[]byte(raw)}, takes: -1} }

func dripping(raw string) *peer {
	p := &peer{takes: -1}
	for i := range len(raw) {
		p.fragments = append(p.fragments, []byte{raw[i]})
	}
	return p
}

// roomy limits are no limits to an ordinary answer.
func roomy() h1.Limits { return h1.Limits{HeaderBytes: 64 << 10, Headers: 256, BodyBytes: 1 << 20} }

// exchange sends one bodyless request and reads its answer.
func exchange(t testing.TB, c *h1.Conn, method string, lim h1.Limits) (*h1.Response, error) {
	t.Helper()
	c.Start(method, "/", "example.com")
	if err := c.Send(nil, true); err != nil {
		t.Fatalf("send: %v", err)
	}
	var r h1.Response
	err := c.ReadResponse(&r, lim)
	return &r, err
}

// kindOf is the kind of err, 0 for none; any other type of error fails the test.
func kindOf(t testing.TB, err error) h1.Kind {
	t.Helper()
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*h1.Error](err)
	if !ok {
		t.Fatalf("error of type %T: %v", err, err)
	}
	return e.Kind
}
