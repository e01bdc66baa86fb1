package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
)

// rawConn is the connection below TLS. It adds to a net.Conn a read that never waits, for the look before a request
// is written on an idle connection.
type rawConn struct {
	net.Conn
	remote string

	sys     syscall.RawConn // nil when the connection is no socket
	readNow func(fd uintptr) bool
	into    []byte
	n       int
	err     error

	underTLS bool
	settling bool        // wait for the first bytes only
	now      atomic.Bool // reads do not wait
}

// nowReader is a connection that can read without waiting by itself; the in-memory ones of tests are.
type nowReader interface {
	ReadNow(b []byte) (int, error)
}

// nothingYetError says that there is nothing to read now. It is temporary, so that a TLS session outlives it.
type nothingYetError struct{}

func (nothingYetError) Error() string        { return "nothing to read" }
func (nothingYetError) Timeout() bool        { return true }
func (nothingYetError) Temporary() bool      { return true }
func (nothingYetError) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// errNothingYet is the only one there is.
var errNothingYet error = nothingYetError{}

func newRawConn(nc net.Conn) *rawConn {
	r := &rawConn{Conn: nc}
	if addr := nc.RemoteAddr(); addr != nil {
		r.remote = addr.String()
	}
	if s, ok := nc.(syscall.Conn); ok {
		if sys, err := s.SyscallConn(); err == nil {
			r.sys = sys
			r.readNow = func(fd uintptr) bool {
				for {
					r.n, r.err = syscall.Read(int(fd), r.into)
					if !errors.Is(r.err, syscall.EINTR) {
						return true // never wait, whatever came
					}
				}
			}
		}
	}
	return r
}

// Read waits as usual, unless the look is under way.
func (r *rawConn) Read(b []byte) (int, error) {
	read := r.Conn.Read
	if r.now.Load() {
		read = r.ReadNow
	}
	n, err := read(b)
	if n > 0 && r.settling {
		r.now.Store(true)
	}
	if err == io.EOF && r.underTLS { //nolint:errorlint // io.Reader's own, never wrapped
		return n, errTruncated
	}
	return n, err
}

// errTruncated is the end of a connection under TLS. A session ends with close_notify; where it does not, crypto/tls may still
// report io.EOF, and a body that lasts until the end would look complete (RFC 8446 §6.1, RFC 9112 §9.8).
var errTruncated = errors.New("the connection ended without close_notify")

// ReadNow reads what is there and never waits: errNothingYet when that is nothing.
func (r *rawConn) ReadNow(b []byte) (int, error) {
	if nr, ok := r.Conn.(nowReader); ok {
		return nr.ReadNow(b)
	}
	if r.sys == nil {
		return 0, errNothingYet
	}
	r.into = b
	err := r.sys.Read(r.readNow)
	r.into = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(r.err, syscall.EAGAIN):
		return 0, errNothingYet
	case r.err != nil:
		return 0, os.NewSyscallError("read", r.err)
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}
