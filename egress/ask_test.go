package egress

import (
	"net"
	"testing"
	"time"
)

// talk is both ends of a TCP connection.
func talk(t *testing.T) (r *rawConn, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	if err := near.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return newRawConn(near), far
}

// The poller tells of an answer once. One that it told of before anybody waits must not be waited for until the deadline.
func TestAnswerThatIsThereBeforeTheWaitIsNotMissed(t *testing.T) {
	r, far := talk(t)
	other, otherFar := talk(t)
	quiet, unasked := r.ask(func() bool {
		// The poller tells things in their order: when the second byte is here, the first has been told.
		for _, c := range []net.Conn{far, otherFar} {
			if _, err := c.Write([]byte("a")); err != nil {
				t.Error(err)
			}
		}
		if _, err := other.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		return true
	})
	if n, err := r.Read(make([]byte, 8)); !quiet || unasked || n != 1 || err != nil {
		t.Errorf("quiet %t, unasked %t; read %d: %v", quiet, unasked, n, err)
	}
}

func TestNothingIsSaidOnAConnectionThatIsNotQuiet(t *testing.T) {
	for _, row := range []struct {
		name    string
		before  func(r *rawConn, far net.Conn) error
		unasked bool
	}{
		{"closed by the peer", func(_ *rawConn, far net.Conn) error { return far.Close() }, false},
		{"closed here", func(r *rawConn, _ net.Conn) error { return r.Close() }, false},
		{"reset", func(_ *rawConn, far net.Conn) error {
			if err := far.(*net.TCPConn).SetLinger(0); err != nil {
				return err
			}
			return far.Close()
		}, false},
		{"bytes that nobody asked for", func(_ *rawConn, far net.Conn) error {
			_, err := far.Write([]byte("H"))
			return err
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, far := talk(t)
			if err := row.before(r, far); err != nil {
				t.Fatal(err)
			}
			quiet, unasked := r.ask(func() bool {
				t.Error("something was said")
				return true
			})
			if quiet || unasked != row.unasked {
				t.Errorf("quiet %t, unasked %t", quiet, unasked)
			}
		})
	}
}

// Where no time is left, the write says so: it is what an attempt without a look would meet.
func TestNoTimeForALookIsFoundByTheWrite(t *testing.T) {
	r, _ := talk(t)
	if err := r.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	said := false
	quiet, unasked := r.ask(func() bool {
		said = true
		_, err := r.Write([]byte("G"))
		return err == nil
	})
	if !said || !quiet || unasked {
		t.Errorf("said %t, quiet %t, unasked %t", said, quiet, unasked)
	}
}

// A write that failed ends it at once: no answer will come.
func TestFailedWriteIsNotWaitedFor(t *testing.T) {
	r, _ := talk(t)
	begin := time.Now()
	if quiet, _ := r.ask(func() bool { return false }); !quiet || time.Since(begin) > 5*time.Second {
		t.Errorf("quiet %t after %s", quiet, time.Since(begin))
	}
}

// The interruption of a caller that went away ends the wait.
func TestInterruptionEndsTheWait(t *testing.T) {
	r, _ := talk(t)
	begin := time.Now()
	r.ask(func() bool { return r.SetDeadline(time.Unix(1, 0)) == nil })
	if _, err := r.Read(make([]byte, 1)); !isTimeout(err) || time.Since(begin) > 5*time.Second {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
}
