package egress

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// upstream is a real server on loopback. serve is given every connection, and the number of it from 1.
type upstream struct {
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex // protects the fields below
	conns []net.Conn
}

func newUpstream(t testing.TB, serve func(n int, c net.Conn)) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{listener: l}
	u.running.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.conns = append(u.conns, c)
			u.mu.Unlock()
			u.running.Go(func() {
				defer c.Close()
				serve(n, c)
			})
		}
	})
	t.Cleanup(u.stop)
	return u
}

func (u *upstream) stop() {
	_ = u.listener.Close()
	u.mu.Lock()
	for _, c := range u.conns {
		_ = c.Close()
	}
	u.mu.Unlock()
	u.running.Wait()
}

// connections is how many were accepted.
func (u *upstream) connections() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns)
}

func (u *upstream) port() uint16 {
	return u.listener.Addr().(*net.TCPAddr).AddrPort().Port()
}

func (u *upstream) url(path string) string { return "http://" + u.listener.Addr().String() + path }

// request reads one request; io.EOF at the end of the connection.
func request(r *bufio.Reader) (*http.Request, []byte, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(req.Body)
	return req, body, err
}

// always answers every request on a connection alike.
func always(answer string) func(int, net.Conn) {
	return func(_ int, c net.Conn) {
		for r := bufio.NewReader(c); ; {
			if _, _, err := request(r); err != nil {
				return
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// loopback is the built-in policy with loopback opened.
func loopback(t testing.TB) *policy.Effective {
	t.Helper()
	table, err := policy.Compile(nil, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := *table.Match(&call.Call{Method: "GET", Target: call.Target{Scheme: "http", Host: "localhost", Port: 80, Path: "/"}})
	p.Egress.Rules = guard.Rules{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowLoopback: true, AnyPort: true, AllowHTTP: true,
	}
	return &p
}

func newTransport(t testing.TB, change func(*Config)) *Transport {
	t.Helper()
	cfg := Config{Guard: guard.New(guard.Config{}), UserAgent: "sallyport/test"}
	if change != nil {
		change(&cfg)
	}
	tr := New(cfg)
	t.Cleanup(tr.Close)
	return tr
}

func newCall(t testing.TB, method, url, body string) *call.Call {
	t.Helper()
	target, err := call.ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	return &call.Call{Method: method, Target: target, Body: []byte(body), Arrived: time.Now()}
}

// attempt has five seconds.
func attempt() call.Attempt {
	now := time.Now()
	return call.Attempt{Number: 1, Start: now, Timeout: 5 * time.Second, Deadline: now.Add(5 * time.Second), Remaining: 5 * time.Second}
}

func attemptOf(d time.Duration) call.Attempt {
	a := attempt()
	a.Timeout, a.Deadline = d, a.Start.Add(d)
	return a
}

// want compares what an attempt gave with what it should have.
func want(t testing.TB, r call.Result, evidence call.Evidence, failure call.Failure) {
	t.Helper()
	if r.Evidence != evidence || r.Failure != failure {
		t.Fatalf("%s, %s (%s), want %s, %s", r.Evidence, r.Failure, r.Detail, evidence, failure)
	}
}

// reset makes the kernel send RST at the close.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

var errFake = errors.New("made for a test")

// accepted are the connections so far.
func (u *upstream) accepted() []net.Conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.conns)
}
