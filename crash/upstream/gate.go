package upstream

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Gate is a port of a [Held] at which no connection is made until it is opened: its queue is full, and the kernel answers nobody.
type Gate struct {
	u       *Held
	fd      int
	address string
	queue   []net.Conn
}

// Gate makes one. Open or Close ends it.
func (u *Held) Gate(ctx context.Context) (*Gate, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	syscall.CloseOnExec(fd)
	g := &Gate{u: u, fd: fd}
	if err := g.shut(ctx); err != nil {
		g.Close()
		return nil, fmt.Errorf("gate: %w", err)
	}
	return g, nil
}

// shut fills the queue, which has the shortest length there is.
func (g *Gate) shut(ctx context.Context) error {
	if err := syscall.Bind(g.fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := syscall.Listen(g.fd, 0); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	name, err := syscall.Getsockname(g.fd)
	if err != nil {
		return fmt.Errorf("getsockname: %w", err)
	}
	in, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return fmt.Errorf("listens at %v", name)
	}
	g.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(in.Port))
	const most, patience = 16, 100 * time.Millisecond
	for range most {
		c, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", g.address)
		if err != nil {
			return ctx.Err() //nolint:wrapcheck // nil: full, as it should be
		}
		g.queue = append(g.queue, c)
	}
	return fmt.Errorf("takes more than %d connections that nobody accepts", most)
}

// Address is host:port.
func (g *Gate) Address() string { return g.address }

// Open lets everybody in.
func (g *Gate) Open() error {
	const many = 128
	defer g.Close()
	if err := syscall.Listen(g.fd, many); err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	f := os.NewFile(uintptr(g.fd), "gate")
	l, err := net.FileListener(f)
	_ = f.Close() // the listener has its own
	g.fd = -1
	if err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	g.u.gates.Add(1)
	go func() { g.u.served <- g.u.server.Serve(l) }()
	return nil
}

// Close ends one that was not opened.
func (g *Gate) Close() {
	for _, c := range g.queue {
		_ = c.Close() // it was never used
	}
	g.queue = nil
	if g.fd >= 0 {
		_ = syscall.Close(g.fd) // nothing was written
		g.fd = -1
	}
}
