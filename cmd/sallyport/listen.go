package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// unixPrefix begins the address of a unix socket.
const unixPrefix = "unix:"

// listeners are those of a node.
type listeners struct {
	grpc, http, admin net.Listener // admin is nil where there is none
}

// listenAll opens all of them or none.
func listenAll(ctx context.Context, s *settings) (*listeners, error) {
	var ls listeners
	for _, l := range []struct {
		flag, addr string
		to         *net.Listener
	}{{"grpc", s.GRPC, &ls.grpc}, {"http", s.HTTP, &ls.http}, {"admin", s.Admin, &ls.admin}} {
		if l.flag == "admin" && l.addr == "" {
			continue
		}
		opened, err := listen(ctx, l.flag, l.addr, s.Insecure || s.guarded())
		if err != nil {
			return nil, ls.closing(err)
		}
		*l.to = opened
		if path := opened.Addr(); path.Network() == "unix" && s.SocketMode&0o077 != 0 {
			if err := os.Chmod(path.String(), s.SocketMode); err != nil { // from strict to loose: nobody comes in before
				return nil, failure(ls.closing(fmt.Errorf("--%s: %w", l.flag, err)))
			}
		}
	}
	return &ls, nil
}

// all gives those there are.
func (ls *listeners) all() []net.Listener {
	var all []net.Listener
	for _, l := range []net.Listener{ls.grpc, ls.http, ls.admin} {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}

// closing gives back the listeners of a start that failed.
func (ls *listeners) closing(err error) error {
	for _, l := range ls.all() {
		if cerr := l.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	return err
}

// listen opens the listener that a flag names. Its errors name the flag and say what to do.
//
// trusted: whoever can reach the listener may call, because it is guarded by TLS and by tokens or client certificates, or the operator said so. Any other
// stays on this machine (contract.md §6).
func listen(ctx context.Context, flag, addr string, trusted bool) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		return listenUnix(ctx, flag, strings.TrimPrefix(path, "//"))
	}
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, usagef("--%s %s: %s", flag, addr, addressProblem(err))
	}
	if !trusted && !tcp.IP.IsLoopback() { // an empty host is every interface
		return nil, usagef("--%s %s is not loopback: there the broker needs --tls-cert, --tls-key, and --tokens or --client-ca; or --insecure", flag, addr)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", tcp.String())
	if err != nil {
		return nil, failure(listenError(flag, addr, err))
	}
	return l, nil
}

// listenUnix takes over the path of a broker that is gone, and only that: a file that is no socket, or one that answers, stays.
func listenUnix(ctx context.Context, flag, path string) (net.Listener, error) {
	if path == "" {
		return nil, usagef("--%s unix: no path; write unix:/run/sallyport.sock", flag)
	}
	if flag == "http" {
		return nil, usagef("--%s: a unix socket is for --grpc and --admin only; give host:port", flag)
	}
	var lc net.ListenConfig
	// Whoever may open the socket may call; without tokens that is the owner alone, from the first moment on.
	defer syscall.Umask(syscall.Umask(0o177))
	l, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, path) {
		if err := os.Remove(path); err != nil {
			return nil, failure(fmt.Errorf("--%s: %w", flag, err))
		}
		l, err = lc.Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, failure(listenError(flag, unixPrefix+path, err))
	}
	return l, nil
}

// abandoned: the path is a socket that nobody listens on.
func abandoned(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func listenError(flag, addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use: stop what listens there, or give another address with --%s", addr, flag)
	}
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		err = sys.Err
	}
	return fmt.Errorf("--%s %s: %w", flag, addr, err)
}

func addressProblem(err error) string {
	if bad, ok := errors.AsType[*net.AddrError](err); ok {
		return bad.Err + "; write host:port"
	}
	return err.Error()
}

// own gives the addresses that calls must never go to: those really bound.
func own(listeners ...net.Listener) []netip.AddrPort {
	var all []netip.AddrPort
	for _, l := range listeners {
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			all = append(all, tcp.AddrPort())
		}
	}
	return all
}

// local gives the addresses of this machine's interfaces.
func local() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	var all []netip.Addr
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				all = append(all, addr.Unmap())
			}
		}
	}
	return all, nil
}
