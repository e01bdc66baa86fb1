package guard

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// tier says what opens a range.
type tier uint8

const (
	_ tier = iota // the zero tier: not listed, open
	// soft opens through a policy.
	soft
	// hard opens through the operator's flag at start alone.
	hard
)

// listed is a range with its tier. The tier of the longest range that holds an address counts.
type listed struct {
	cidr string
	tier tier
	what string
}

// closedRanges are the IANA special-purpose registries (RFC 6890 and its updates), what lies outside the global unicast space
// 2000::/3, every IPv6 form that embeds an IPv4 address, and the addresses of metadata services. Ranges of a tier within others of
// the same tier are left out, but for metadata, which is hard wherever it lies.
func closedRanges() []listed {
	const metadata = "metadata service"
	return []listed{
		{"0.0.0.0/8", hard, "this network"},
		{"10.0.0.0/8", soft, "private, RFC 1918"},
		{"100.64.0.0/10", soft, "shared, RFC 6598"},
		{"127.0.0.0/8", soft, "loopback"},
		{"169.254.0.0/16", hard, "link local"},
		{"172.16.0.0/12", soft, "private, RFC 1918"},
		{"192.0.0.0/24", hard, "IETF protocol assignments"},
		{"192.0.2.0/24", hard, "documentation"},
		{"192.31.196.0/24", hard, "AS112"},
		{"192.52.193.0/24", hard, "AMT"},
		{"192.88.99.0/24", hard, "6to4 relay"},
		{"192.168.0.0/16", soft, "private, RFC 1918"},
		{"192.175.48.0/24", hard, "AS112"},
		{"198.18.0.0/15", soft, "benchmarking"},
		{"198.51.100.0/24", hard, "documentation"},
		{"203.0.113.0/24", hard, "documentation"},
		{"224.0.0.0/4", hard, "multicast"},
		{"240.0.0.0/4", hard, "reserved, broadcast"},

		{"::/8", hard, "unspecified, IPv4-compatible, translated, NAT64"},
		{"::1/128", soft, "loopback"},
		{"100::/8", hard, "discard-only, outside 2000::/3"},
		{"200::/7", hard, "outside 2000::/3"},
		{"400::/6", hard, "outside 2000::/3"},
		{"800::/5", hard, "outside 2000::/3"},
		{"1000::/4", hard, "outside 2000::/3"},
		{"4000::/2", hard, "outside 2000::/3"},
		{"8000::/1", hard, "link local, multicast, outside 2000::/3"},
		{"fc00::/7", soft, "unique local"},
		{"2001::/23", hard, "IETF protocol assignments, Teredo"},
		{"2001:db8::/32", hard, "documentation"},
		{"2002::/16", hard, "6to4"},
		{"2620:4f:8000::/48", hard, "AS112"},
		{"3ffe::/16", hard, "former 6bone"},
		{"3fff::/20", hard, "documentation"},

		{"100.100.100.200/32", hard, metadata},
		{"168.63.129.16/32", hard, metadata}, // looks public
		{"169.254.169.123/32", hard, metadata},
		{"169.254.169.253/32", hard, metadata},
		{"169.254.169.254/32", hard, metadata},
		{"169.254.170.2/32", hard, metadata},
		{"169.254.170.23/32", hard, metadata},
		{"192.0.0.192/32", hard, metadata},
		{"fd00:ec2::23/128", hard, metadata},
		{"fd00:ec2::123/128", hard, metadata},
		{"fd00:ec2::253/128", hard, metadata},
		{"fd00:ec2::254/128", hard, metadata},
		{"fd20:ce::254/128", hard, metadata},
	}
}

// table is closedRanges compiled, the longest range first, so that the first that fits is the one that counts. At this size a scan
// over masks is quicker than a tree.
type table struct {
	v4     []range4
	v6     []range6
	isatap *listed
	none   *listed
}

type range4 struct {
	base, mask uint32
	*listed
}

// range6 holds base and mask in two halves, the high one first.
type range6 struct {
	baseHigh, maskHigh, baseLow, maskLow uint64
	*listed
}

func compile() table {
	rows := closedRanges()
	slices.SortStableFunc(rows, func(a, b listed) int {
		return cmp.Compare(netip.MustParsePrefix(b.cidr).Bits(), netip.MustParsePrefix(a.cidr).Bits())
	})
	t := table{isatap: &listed{tier: hard, what: "ISATAP"}, none: &listed{}}
	for i := range rows {
		row := &rows[i]
		p := netip.MustParsePrefix(row.cidr)
		if p.Addr().Is4() {
			b := p.Addr().As4()
			t.v4 = append(t.v4, range4{binary.BigEndian.Uint32(b[:]), ^uint32(0) << (32 - p.Bits()), row})
			continue
		}
		high, low := halves(p.Addr())
		// A shift by 64 or more gives 0: a short prefix has no low mask, a long one the whole high mask.
		maskHigh, maskLow := ^uint64(0)<<(64-min(p.Bits(), 64)), ^uint64(0)<<(128-max(p.Bits(), 64))
		t.v6 = append(t.v6, range6{high, maskHigh, low, maskLow, row})
	}
	return t
}

// find takes an unmapped address without a zone; the result is never nil.
func (t *table) find(addr netip.Addr) *listed {
	if addr.Is4() {
		b := addr.As4()
		x := binary.BigEndian.Uint32(b[:])
		for i := range t.v4 {
			if r := &t.v4[i]; x&r.mask == r.base {
				return r.listed
			}
		}
		return t.none
	}
	high, low := halves(addr)
	// RFC 5214 §6.1: an interface identifier 0:5efe or 200:5efe embeds an IPv4 address, under whatever prefix.
	if id := low >> 32; id == 0x0000_5efe || id == 0x0200_5efe {
		return t.isatap
	}
	for i := range t.v6 {
		if r := &t.v6[i]; high&r.maskHigh == r.baseHigh && low&r.maskLow == r.baseLow {
			return r.listed
		}
	}
	return t.none
}

func halves(addr netip.Addr) (high, low uint64) {
	b := addr.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}
