package guard_test

import (
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/egress/guard"
)

// oracle judges by the reference table with one linear scan, knowing nothing of how the guard does it.
type oracle struct {
	Metadata []netip.Addr `json:"metadata"`
	Names    []string     `json:"names"`
	Ranges   []struct {
		CIDR netip.Prefix `json:"cidr"`
		Tier string       `json:"tier"`
	} `json:"ranges"`
	Samples []struct {
		Address netip.Addr `json:"address"`
		Verdict string     `json:"verdict"`
	} `json:"samples"`
}

func readOracle(t testing.TB) *oracle {
	t.Helper()
	text, err := os.ReadFile("testdata/deny_ranges.json")
	if err != nil {
		t.Fatal(err)
	}
	var o oracle
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	if len(o.Metadata) == 0 || len(o.Names) == 0 || len(o.Ranges) == 0 || len(o.Samples) == 0 {
		t.Fatal("the table lacks a part")
	}
	return &o
}

// tier is "", "SOFT" or "HARD"; addr is unmapped.
func (o *oracle) tier(addr netip.Addr) string {
	if slices.Contains(o.Metadata, addr) {
		return "HARD"
	}
	if addr.Is6() {
		b := addr.As16()
		if id := hex.EncodeToString(b[8:12]); id == "00005efe" || id == "02005efe" {
			return "HARD"
		}
	}
	tier, bits := "", -1
	for _, r := range o.Ranges {
		if r.CIDR.Contains(addr) && r.CIDR.Bits() > bits {
			tier, bits = r.Tier, r.CIDR.Bits()
		}
	}
	return tier
}

// allows is the whole rule, written as the sentences of the specification.
func (o *oracle) allows(c guard.Config, r *guard.Rules, ap netip.AddrPort) bool {
	if !ap.IsValid() || ap.Addr().Zone() != "" {
		return false
	}
	addr, port := ap.Addr().Unmap(), ap.Port()
	loopback := strings.HasPrefix(addr.String(), "127.") || addr.String() == "::1"
	holds := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
	}

	portOpen := r.AnyPort || slices.Contains(r.Ports, port) || c.Dev && loopback
	if port == 0 || !portOpen {
		return false
	}
	for _, own := range c.Own {
		if own.Port() == port {
			here := loopback || addr.IsUnspecified() || slices.Contains(c.Local, addr)
			for _, other := range c.Own {
				here = here || other.Addr().Unmap() == addr
			}
			if here {
				return false
			}
		}
	}
	if holds(r.Deny) {
		return false
	}
	switch o.tier(addr) {
	case "HARD":
		return holds(c.Special)
	case "SOFT":
		if loopback {
			return c.Dev || r.AllowLoopback && holds(r.Allow)
		}
		return holds(r.Allow)
	}
	return true
}

// interesting are the addresses where a verdict can change: both ends of every range and their neighbours outside, and all samples.
func (o *oracle) interesting() []netip.Addr {
	var out []netip.Addr
	add := func(addr netip.Addr) {
		if addr.IsValid() {
			out = append(out, addr)
		}
	}
	for _, r := range o.Ranges {
		first, last := r.CIDR.Masked().Addr(), lastOf(r.CIDR)
		for _, addr := range []netip.Addr{first, first.Prev(), first.Next(), last, last.Next(), last.Prev()} {
			add(addr)
		}
	}
	for _, addr := range o.Metadata {
		for _, addr := range []netip.Addr{addr, addr.Prev(), addr.Next()} {
			add(addr)
		}
	}
	for _, s := range o.Samples {
		add(s.Address)
	}
	return out
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
