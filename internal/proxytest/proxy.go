// Package proxytest is an HTTP proxy on loopback for tests: it speaks CONNECT, remembers what it was asked, and misbehaves on demand.
package proxytest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Established is how most proxies say that a tunnel is open.
const Established = "HTTP/1.1 200 Connection established\r\n\r\n"

// Proxy is a running proxy. It ends with its test.
type Proxy struct {
	listener net.Listener
	serve    func(*Asked)
	running  sync.WaitGroup

	mu      sync.Mutex // protects the fields below
	conns   []net.Conn
	clients int
	heads   []string
}

// Asked is one request to the proxy, whose head was read and which was not answered yet. The connection is closed when its server
// returns.
type Asked struct {
	net.Conn

	// Number counts the connections from 1.
	Number int
	// Target is what the request line names, for example "192.0.2.7:443".
	Target string

	proxy *Proxy
	in    *bufio.Reader
}

// Start runs a proxy that serves every connection by serve; nil forwards to where it is told.
func Start(t testing.TB, serve func(*Asked)) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends with the test
	if err != nil {
		t.Fatal(err)
	}
	if serve == nil {
		serve = func(a *Asked) { a.Forward(a.Target) }
	}
	p := &Proxy{listener: l, serve: serve}
	p.running.Go(p.accept)
	t.Cleanup(p.Stop)
	return p
}

// URL is how a policy names the proxy.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Connections is how many were accepted.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients
}

// Heads are the requests so far, byte for byte up to the empty line.
func (p *Proxy) Heads() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.heads...)
}

// Stop closes the listener and every connection, and waits.
func (p *Proxy) Stop() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns = append(p.conns, c)
		p.clients++
		number := p.clients
		p.mu.Unlock()
		p.running.Go(func() {
			defer func() { _ = c.Close() }()
			p.one(&Asked{Conn: c, Number: number, proxy: p, in: bufio.NewReader(c)})
		})
	}
}

func (p *Proxy) one(a *Asked) {
	var head strings.Builder
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		line, err := a.in.ReadString('\n')
		if err != nil {
			return
		}
		head.WriteString(line)
	}
	p.mu.Lock()
	p.heads = append(p.heads, head.String())
	p.mu.Unlock()
	_, rest, _ := strings.Cut(head.String(), " ")
	a.Target, _, _ = strings.Cut(rest, " ")
	p.serve(a)
}

// Read reads what came behind the head.
func (a *Asked) Read(b []byte) (int, error) { return a.in.Read(b) } //nolint:wrapcheck // io.EOF must stay itself

// Say writes that, and nothing of what becomes of it matters.
func (a *Asked) Say(text string) { _, _ = io.WriteString(a.Conn, text) }

// Hang returns when the client has closed the connection.
func (a *Asked) Hang() { _, _ = io.Copy(io.Discard, a) }

// Forward opens a tunnel to that address and carries bytes both ways until one side ends.
func (a *Asked) Forward(to string) {
	up, err := net.Dial("tcp", to) //nolint:noctx // ends with the test
	if err != nil {
		a.Say("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	a.proxy.mu.Lock()
	a.proxy.conns = append(a.proxy.conns, up)
	a.proxy.mu.Unlock()
	a.Say(Established)
	var down sync.WaitGroup
	down.Go(func() {
		_, _ = io.Copy(a.Conn, up)
		_ = a.Conn.Close()
	})
	_, _ = io.Copy(up, a)
	_ = up.Close()
	down.Wait()
}
