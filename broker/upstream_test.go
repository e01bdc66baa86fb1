package broker

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// upstream is a real server on loopback that answers by script: request n gets step n, later ones the last.
type upstream struct {
	listener net.Listener
	script   []step
	running  sync.WaitGroup
	arrived  chan struct{} // receives a value for every request, as far as somebody cares; never closed

	mu    sync.Mutex // protects the fields below
	conns []net.Conn
	seen  []seen
}

// seen is a request as it arrived.
type seen struct {
	*http.Request
	body string
}

// step answers one request; false ends the connection.
type step func(net.Conn) bool

// say writes an answer as it stands.
func say(answer string) step {
	return func(c net.Conn) bool {
		_, err := io.WriteString(c, answer)
		return err == nil
	}
}

// lose takes the request and ends the connection without an answer.
func lose(net.Conn) bool { return false }

// hold answers nothing until the peer ends the connection, and then closes ended.
func hold(ended chan<- struct{}) step {
	return func(c net.Conn) bool {
		_, _ = io.Copy(io.Discard, c)
		close(ended)
		return false
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func scripted(t testing.TB, script ...step) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{listener: l, script: script, arrived: make(chan struct{}, 16)}
	u.running.Go(u.accept)
	t.Cleanup(func() {
		_ = l.Close()
		u.mu.Lock()
		for _, c := range u.conns {
			_ = c.Close()
		}
		u.mu.Unlock()
		u.running.Wait()
	})
	return u
}

func (u *upstream) accept() {
	for {
		c, err := u.listener.Accept()
		if err != nil {
			return
		}
		u.mu.Lock()
		u.conns = append(u.conns, c)
		u.mu.Unlock()
		u.running.Go(func() {
			defer c.Close()
			r, more := bufio.NewReader(c), true
			for more {
				more = u.answer(r, c)
			}
		})
	}
}

func (u *upstream) answer(r *bufio.Reader, c net.Conn) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return false
	}
	u.mu.Lock()
	u.seen = append(u.seen, seen{req, string(body)})
	next := u.script[min(len(u.seen), len(u.script))-1]
	u.mu.Unlock()
	select {
	case u.arrived <- struct{}{}:
	default:
	}
	return next(c)
}

func (u *upstream) requests() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]seen(nil), u.seen...)
}

func (u *upstream) url(path string) string { return "http://" + u.listener.Addr().String() + path }
