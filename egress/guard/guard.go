// Package guard says whether an address may be dialled.
//
// The address dialled is the address checked: [Guard.Target] judges what a URL says before anything is looked up or dialled,
// [Guard.Address] every resolved address and then the actual connect target of every connection. Neither does I/O.
//
// What is not listed in the table of ranges is open. A listed address is closed, in one of two tiers: SOFT opens through a policy,
// HARD only through the start-up flag for special ranges. A policy's deny list wins over everything.
package guard

import (
	"net/netip"
	"slices"
	"strings"
)

// Rules are one policy's. The zero value allows nothing that is plain http, and no port.
type Rules struct {
	// Allow opens SOFT ranges, Deny closes anything and wins. Both hold prefixes as [ParsePrefix] gives them.
	Allow, Deny []netip.Prefix
	// AllowLoopback lets Allow open loopback as well: the policy comes from the start-up file.
	AllowLoopback bool
	// Ports are those that may be dialled; AnyPort leaves the list out of account.
	Ports   []uint16
	AnyPort bool
	// AllowHTTP lets a call go out without TLS.
	AllowHTTP bool
}

// Config is what the guard knows of this process and machine.
type Config struct {
	// Special are the HARD ranges the operator opened at start; see [ParseSpecial].
	Special []netip.Prefix
	// Own are the broker's own listeners. Their ports are closed on every address of this machine: a listener on one address is
	// no reason to trust the same port on another.
	Own []netip.AddrPort
	// Local are the addresses of this machine's interfaces; loopback need not be among them.
	Local []netip.Addr
	// Dev opens loopback, on any port.
	Dev bool
}

// Guard judges addresses. It never changes and may be used from any number of goroutines.
type Guard struct {
	ranges   table
	special  []netip.Prefix
	ownPorts []uint16
	local    map[netip.Addr]struct{}
	dev      bool
}

// New makes a guard.
func New(c Config) *Guard {
	g := &Guard{
		ranges:  compile(),
		special: slices.Clone(c.Special),
		local:   make(map[netip.Addr]struct{}, len(c.Local)+len(c.Own)),
		dev:     c.Dev,
	}
	for _, addr := range c.Local {
		g.local[addr.Unmap().WithZone("")] = struct{}{}
	}
	for _, own := range c.Own {
		g.ownPorts = append(g.ownPorts, own.Port())
		g.local[own.Addr().Unmap().WithZone("")] = struct{}{}
	}
	return g
}

// Target judges what a URL says, before anything is looked up or dialled. host is in lower case without a trailing dot, addr is
// invalid when host is a name; a literal address is judged as [Guard.Address] does.
func (g *Guard) Target(r *Rules, scheme, host string, addr netip.Addr, port uint16) error {
	switch {
	case scheme != "https" && (scheme != "http" || !r.AllowHTTP):
		return &DeniedError{Rule: RuleScheme}
	case isMetadataName(host):
		return &DeniedError{Rule: RuleName, what: "metadata service"}
	case addr.IsValid():
		return g.Address(r, netip.AddrPortFrom(addr, port))
	case g.dev && port != 0:
		return nil // a name may lead to loopback, where any port goes: Address knows
	case !r.allowsPort(port):
		return &DeniedError{Rule: RulePort}
	}
	return nil
}

// Address judges an address that is about to be dialled. An IPv4-mapped address is judged as the IPv4 address it leads to; a zone
// is refused, since it picks an interface.
func (g *Guard) Address(r *Rules, ap netip.AddrPort) error {
	addr, port := ap.Addr().Unmap(), ap.Port()
	loopback := addr.IsLoopback()
	switch {
	case !addr.IsValid():
		return denied(RuleAddress, "no address", ap)
	case ap.Addr().Zone() != "": // Unmap drops it
		return denied(RuleAddress, "address with a zone", ap)
	case !r.allowsPort(port) && !(g.dev && loopback && port != 0):
		return denied(RulePort, "port not listed", ap)
	case g.isOwn(addr, loopback, port):
		return denied(RuleOwn, "the broker itself", ap)
	case within(r.Deny, addr):
		return denied(RuleDeny, "deny_cidrs", ap)
	}
	switch found := g.ranges.find(addr); found.tier {
	case soft:
		if loopback && g.dev || within(r.Allow, addr) && (!loopback || r.AllowLoopback) {
			return nil
		}
		return denied(RuleSoft, found.what, ap)
	case hard:
		if within(g.special, addr) {
			return nil
		}
		return denied(RuleHard, found.what, ap)
	default:
		return nil
	}
}

// ParsePrefix reads a CIDR of a policy or of the command line. IPv4 written as IPv4-mapped IPv6 becomes IPv4: addresses are judged
// so, and a prefix left in the other form would silently hold none of them.
func ParsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// allowsPort never allows 0, which no server listens on.
func (r *Rules) allowsPort(port uint16) bool {
	return port != 0 && (r.AnyPort || slices.Contains(r.Ports, port))
}

// isOwn reports whether a listener of the broker may be behind an address: a broker that calls itself is a loop, and its own API
// would be called with the broker's rights.
func (g *Guard) isOwn(addr netip.Addr, loopback bool, port uint16) bool {
	if !slices.Contains(g.ownPorts, port) {
		return false
	}
	_, local := g.local[addr]
	return local || loopback || addr.IsUnspecified()
}

func within(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// isMetadataName knows the names under which metadata services go; their addresses are in the table. Only names that cannot be
// anything else are here.
func isMetadataName(host string) bool {
	switch strings.ToLower(host) {
	case "metadata.google.internal", "metadata.tencentyun.com", "instance-data":
		return true
	}
	return false
}
