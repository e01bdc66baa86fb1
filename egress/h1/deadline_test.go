package h1_test

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/egress/h1"
)

// served runs one exchange with a body of 1 byte against serve, in a bubble, and returns how it ended and when.
func served(t *testing.T, lim h1.Limits, deadline time.Duration, serve func(net.Conn), during func(*h1.Conn)) (r *h1.Response, took time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		ours, theirs := net.Pipe()
		done := make(chan struct{}) // closed by the server
		go func() {
			defer close(done)
			defer theirs.Close()
			serve(theirs)
		}()
		c := h1.New(ours)
		start := time.Now()
		if deadline > 0 {
			lim.Deadline = start.Add(deadline)
			_ = ours.SetDeadline(lim.Deadline)
		}
		c.Start("POST", "/", "example.com")
		sent := make(chan struct{}) // closed by the sender
		go func() {
			defer close(sent)
			_ = c.Send([]byte("x"), false)
		}()
		if during != nil {
			go during(c)
		}
		r = new(h1.Response)
		err = c.ReadResponse(r, lim)
		took = time.Since(start)
		_ = ours.Close()
		<-sent
		<-done
	})
	return r, took, err
}

// serveAfter reads the request, waiting before, and then writes pieces, each after its pause.
func serveAfter(before time.Duration, pause time.Duration, pieces ...string) func(net.Conn) {
	return func(c net.Conn) {
		time.Sleep(before)
		if _, err := io.ReadFull(c, make([]byte, len("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\n\r\nx"))); err != nil {
			return
		}
		for _, p := range pieces {
			time.Sleep(pause)
			if _, err := io.WriteString(c, p); err != nil {
				return
			}
		}
	}
}

func TestTimeoutsAreExact(t *testing.T) {
	const ms = time.Millisecond
	drip := []string{ok + "Content-Length: 5\r\n\r\n", "a", "b", "c", "d", "e"}
	for _, row := range []struct {
		name          string
		header, idle  time.Duration
		deadline      time.Duration
		before, pause time.Duration
		want          h1.Kind
		phase         h1.Phase
		status        int
		took          time.Duration
	}{
		{name: "no limit", before: 300 * ms, pause: 200 * ms, status: 200, took: 1500 * ms},
		{name: "the deadline alone", deadline: 700 * ms, pause: 200 * ms, want: h1.Timeout, status: 200, took: 700 * ms},
		{name: "the head in time, the body its own", header: 201 * ms, pause: 200 * ms, status: 200, took: 1200 * ms},
		{name: "the head late", header: 199 * ms, pause: 200 * ms, want: h1.Timeout, took: 199 * ms},
		{name: "a slow send is not the head's time", header: 201 * ms, before: 500 * ms, pause: 200 * ms, status: 200, took: 1700 * ms},
		{name: "a slow send, then the head late", header: 199 * ms, before: 500 * ms, pause: 200 * ms, want: h1.Timeout, took: 699 * ms},
		{name: "the head's time ends at the deadline", header: time.Hour, deadline: 150 * ms, pause: 200 * ms, want: h1.Timeout, took: 150 * ms},
		{name: "each pause in time", idle: 201 * ms, pause: 200 * ms, status: 200, took: 1200 * ms},
		{name: "a pause too long", idle: 199 * ms, pause: 200 * ms, want: h1.Timeout, status: 200, took: 399 * ms},
		{name: "pauses end at the deadline", idle: 201 * ms, deadline: 900 * ms, pause: 200 * ms, want: h1.Timeout, status: 200, took: 900 * ms},
		{name: "after the head only the deadline", header: 201 * ms, deadline: 900 * ms, pause: 200 * ms, want: h1.Timeout, status: 200, took: 900 * ms},
	} {
		t.Run(row.name, func(t *testing.T) {
			lim := roomy()
			lim.HeaderTimeout, lim.IdleBody = row.header, row.idle
			r, took, err := served(t, lim, row.deadline, serveAfter(row.before, row.pause, drip...), nil)
			if kindOf(t, err) != row.want || r.Status != row.status || took != row.took {
				t.Errorf("%v, status %d after %v; want kind %v, %d after %v", err, r.Status, took, row.want, row.status, row.took)
			}
		})
	}
}

// TestSendThatEndsAfterTheHeadStartsNoWait: an early head settles the wait for it, whenever the send ends.
func TestSendThatEndsAfterTheHeadStartsNoWait(t *testing.T) {
	lim := roomy()
	lim.HeaderTimeout = 50 * time.Millisecond
	r, took, err := served(t, lim, time.Hour, func(c net.Conn) {
		_, _ = io.WriteString(c, ok+"Content-Length: 2\r\n\r\n")
		serveAfter(100*time.Millisecond, 100*time.Millisecond, "ok")(c)
	}, nil)
	if err != nil || string(r.Body) != "ok" || took != 200*time.Millisecond {
		t.Errorf("%q after %v: %v", r.Body, took, err)
	}
}

func TestInterruptIsNotUndoneByATimeoutOfOurs(t *testing.T) {
	lim := roomy()
	lim.IdleBody = time.Second
	drip := append([]string{ok + "Content-Length: 100\r\n\r\n"}, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	r, took, err := served(t, lim, time.Hour, serveAfter(0, 10*time.Millisecond, drip...), func(c *h1.Conn) {
		time.Sleep(35 * time.Millisecond)
		c.Interrupt()
	})
	if kindOf(t, err) != h1.Timeout || took != 35*time.Millisecond || r.Status != 200 {
		t.Errorf("status %d after %v: %v", r.Status, took, err)
	}
}

func TestInterruptBeforeTheReadStands(t *testing.T) {
	lim := roomy()
	lim.HeaderTimeout, lim.IdleBody = time.Second, time.Second
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		defer ours.Close()
		c := h1.New(ours)
		c.Start("GET", "/", "example.com")
		c.Interrupt()
		start := time.Now()
		if err := c.Send(nil, true); kindOf(t, err) != h1.Timeout || c.Written() != 0 {
			t.Errorf("send: %v", err)
		}
		var r h1.Response
		if err := c.ReadResponse(&r, lim); kindOf(t, err) != h1.Timeout || time.Since(start) != 0 || r.Begun {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
