package policy

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
)

// Proxy is the HTTP proxy that the calls of a policy go through, by CONNECT.
type Proxy struct {
	// Host is the name in lower case, or the address, which is then in Address too.
	Host    string
	Address netip.Addr
	Port    uint16
	// Rules judge where the proxy itself stands. An operator names it, and proxies stand in private networks: SOFT ranges are open
	// and any port goes; loopback for a policy of the start-up file only. allow_cidrs, deny_cidrs and ports speak of targets.
	Rules guard.Rules
}

// flatProxy is the flat form of egress.proxy; nil for none.
func flatProxy(url string, byFile bool) *Proxy {
	t, err := parseProxy(url)
	if err != nil { // the empty text; Check has read any other before
		return nil
	}
	everywhere := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	return &Proxy{
		Host: t.Host, Address: t.Address, Port: t.Port,
		Rules: guard.Rules{Allow: everywhere, AllowLoopback: byFile, AnyPort: true, AllowHTTP: true},
	}
}

// parseProxy reads http://host:port. No error repeats any of it: it may hold a password.
func parseProxy(url string) (call.Target, error) {
	authority, ok := strings.CutPrefix(url, "http://")
	switch {
	case !ok:
		return call.Target{}, errors.New("write http://host:port: a proxy is spoken to in plain HTTP, and https stays encrypted within")
	case strings.Contains(authority, "@"):
		return call.Target{}, errors.New("leave user and password out: no credential is sent to a proxy")
	case strings.ContainsAny(authority, "/?#"):
		return call.Target{}, errors.New("write http://host:port and nothing behind it: no slash, path, query or fragment")
	case strings.Contains(authority, "_"):
		return call.Target{}, errors.New("write http://host:port: the name of a proxy has letters, digits, hyphens and dots")
	case strings.LastIndexByte(authority, ':') <= strings.LastIndexByte(authority, ']'):
		return call.Target{}, errors.New("name the port too: http://host:port")
	}
	t, err := call.ParseTarget(url)
	if invalid, ok := errors.AsType[*call.InvalidError](err); ok {
		return t, errors.New("write http://host:port: " + invalid.Problem)
	}
	return t, err
}

func (c *checker) proxy(url *string) {
	if url == nil || *url == "" {
		return
	}
	if _, err := parseProxy(*url); err != nil {
		c.add("egress.proxy", err.Error())
	}
}
