package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// system resolves as this machine is set up, but for two things that would make a name mean something else than it says: libc is
// never asked (it takes 127.1 and 0x7f000001 for loopback), and neither is the search list of resolv.conf.
type system struct {
	files *net.Resolver // the hosts file only: it cannot reach a server
	dns   *net.Resolver
}

var errFilesOnly = errors.New("the hosts file only")

func newSystem() *system {
	unreachable := func(context.Context, string, string) (net.Conn, error) { return nil, errFilesOnly }
	return &system{
		files: &net.Resolver{PreferGo: true, Dial: unreachable},
		dns:   &net.Resolver{PreferGo: true},
	}
}

// LookupNetIP asks the hosts file, where names stand without the trailing dot, then DNS for the absolute name.
func (s *system) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if found, err := s.files.LookupNetIP(ctx, network, host); err == nil {
		return found, nil
	}
	return s.dns.LookupNetIP(ctx, network, host+".")
}
