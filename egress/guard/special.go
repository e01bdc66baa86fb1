package guard

import (
	"errors"
	"net/netip"
)

// ParseSpecial reads a range for [Config.Special]. It refuses one that holds no HARD address: such a range needs no flag at
// start, a policy opens it.
func ParseSpecial(s string) (netip.Prefix, error) {
	p, err := ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, errors.New("write it as 169.254.0.0/16 or 2001:db8::/32")
	}
	for _, r := range closedRanges() {
		if r.tier == hard && netip.MustParsePrefix(r.cidr).Overlaps(p) {
			return p, nil
		}
	}
	return netip.Prefix{}, errors.New("nothing in it is closed to policies; open it with egress.allow_cidrs of a policy")
}
