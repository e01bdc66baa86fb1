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

	asking func(fd uintptr) bool // for ask
	speak  func() bool
	spoken bool
	look   [1]byte

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
				r.readOnce(fd, r.into)
				return true // never wait, whatever came
			}
			r.asking = r.proceed
		}
	}
	return r
}

func (r *rawConn) readOnce(fd uintptr, into []byte) {
	for {
		if r.n, r.err = syscall.Read(int(fd), into); !errors.Is(r.err, syscall.EINTR) {
			return
		}
	}
}

// ask looks, lets speak write a request if the connection is quiet, and waits until there is something to read or to tell, unless speak
// says that it failed. Not quiet: nothing was written; unasked: there were bytes. It needs a socket.
//
// To the poller all this is one read: it remembers what comes after the look, so that the wait needs no try before it. A read of its own
// forgets what was before it, and has to try first, which is in vain as long as no upstream answers before it is asked.
func (r *rawConn) ask(speak func() bool) (quiet, unasked bool) {
	r.speak, r.spoken, r.n, r.err = speak, false, 0, nil
	err := r.sys.Read(r.asking)
	r.speak = nil
	switch {
	case r.spoken:
		return true, false // whatever ended the wait, the next read says so
	case isTimeout(err):
		speak() // there was no time even for a look: it finds that out by itself
		return true, false
	}
	return false, r.n > 0
}

// proceed is called when ask begins, and again when there is something to read; true ends it.
func (r *rawConn) proceed(fd uintptr) bool {
	if r.spoken {
		return true
	}
	if r.readOnce(fd, r.look[:]); !errors.Is(r.err, syscall.EAGAIN) {
		return true
	}
	r.spoken = true
	return !r.speak()
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
