package guard_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/egress/guard"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// standard are the rules of a policy that says nothing.
func standard() *guard.Rules { return &guard.Rules{Ports: []uint16{80, 443}, AllowHTTP: true} }

func TestSamplesAreJudgedAsTheTableSays(t *testing.T) {
	g := guard.New(guard.Config{})
	for _, s := range readOracle(t).Samples {
		err := g.Address(standard(), netip.AddrPortFrom(s.Address, 443))
		if got := err == nil; got != (s.Verdict == "allow") {
			t.Errorf("%s: %v, want %s", s.Address, err, s.Verdict)
		}
	}
}

// TestEveryRangeEndsWhereTheTableSays looks at both ends of every range, from both sides, in both tiers.
func TestEveryRangeEndsWhereTheTableSays(t *testing.T) {
	o := readOracle(t)
	everything := prefixes("0.0.0.0/0", "::/0")
	configs := map[string]guard.Config{"plain": {}, "special": {Special: everything}, "dev": {Dev: true}}
	rules := map[string]*guard.Rules{
		"plain":    standard(),
		"allow":    {Ports: []uint16{443}, Allow: everything},
		"loopback": {Ports: []uint16{443}, Allow: everything, AllowLoopback: true},
	}
	for _, addr := range o.interesting() {
		for configName, c := range configs {
			g := guard.New(c)
			for rulesName, r := range rules {
				for _, port := range []uint16{443, 8080} {
					ap := netip.AddrPortFrom(addr, port)
					err := g.Address(r, ap)
					if got, want := err == nil, o.allows(c, r, ap); got != want {
						t.Errorf("%s, config %s, rules %s: %v, want allowed %v", ap, configName, rulesName, err, want)
					}
				}
			}
		}
	}
}

// TestNothingOutsideGlobalUnicastIsOpen goes through the whole IPv6 space by its first 16 bits.
func TestNothingOutsideGlobalUnicastIsOpen(t *testing.T) {
	o := readOracle(t)
	g := guard.New(guard.Config{})
	open := 0
	for top := range 1 << 16 {
		var b [16]byte
		binary.BigEndian.PutUint16(b[:], uint16(top))
		block := netip.PrefixFrom(netip.AddrFrom16(b), 16)
		for _, addr := range []netip.Addr{block.Addr(), lastOf(block)} {
			allowed := g.Address(standard(), netip.AddrPortFrom(addr, 443)) == nil
			if allowed && top>>13 != 1 {
				t.Errorf("%s is open, and outside 2000::/3", addr)
			}
			if allowed != (o.tier(addr.Unmap()) == "") {
				t.Errorf("%s: allowed %v", addr, allowed)
			}
			if allowed {
				open++
			}
		}
	}
	if open < 2*(1<<13)-20 {
		t.Errorf("only %d of the global addresses are open", open)
	}
}

func TestAddressRules(t *testing.T) {
	policy := func(change func(*guard.Rules)) *guard.Rules {
		r := standard()
		change(r)
		return r
	}
	allow := func(list ...string) *guard.Rules {
		return policy(func(r *guard.Rules) { r.Allow = prefixes(list...) })
	}
	own := []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:80"), netip.MustParseAddrPort("[2606:4700::9]:443")}
	local := []netip.Addr{netip.MustParseAddr("8.8.4.4")}
	rows := []struct {
		name   string
		config guard.Config
		rules  *guard.Rules
		at     string
		denied string
	}{
		{"a global address", guard.Config{}, standard(), "8.8.8.8:443", ""},
		{"a port not listed", guard.Config{}, standard(), "8.8.8.8:8443", guard.RulePort},
		{"any port", guard.Config{}, &guard.Rules{AnyPort: true}, "8.8.8.8:8443", ""},
		{"port 0 is none", guard.Config{}, &guard.Rules{AnyPort: true}, "8.8.8.8:0", guard.RulePort},
		{"no ports at all", guard.Config{}, &guard.Rules{}, "8.8.8.8:443", guard.RulePort},
		{"a zone", guard.Config{}, standard(), "[2606:4700::1%lo]:443", guard.RuleAddress},
		{"a zone on a mapped address", guard.Config{}, standard(), "[::ffff:8.8.8.8%lo]:443", guard.RuleAddress},

		{"private", guard.Config{}, standard(), "10.0.0.1:443", guard.RuleSoft},
		{"private, allowed", guard.Config{}, allow("10.0.0.0/8"), "10.0.0.1:443", ""},
		{"private, mapped and allowed", guard.Config{}, allow("10.0.0.0/8"), "[::ffff:10.0.0.1]:443", ""},
		{"private, another one allowed", guard.Config{}, allow("10.0.0.0/24"), "10.0.1.1:443", guard.RuleSoft},
		{"private, opened as special only", guard.Config{Special: prefixes("10.0.0.0/8")}, standard(), "10.0.0.1:443", guard.RuleSoft},
		{"unique local, allowed", guard.Config{}, allow("fd00::/8"), "[fd12::1]:443", ""},
		{"metadata in an allowed range", guard.Config{}, allow("fd00::/8"), "[fd00:ec2::254]:443", guard.RuleHard},
		{"metadata in a shared range", guard.Config{}, allow("100.64.0.0/10"), "100.100.100.200:80", guard.RuleHard},
		{"ISATAP in an allowed range", guard.Config{}, allow("fd00::/8"), "[fd12::5efe:a00:1]:443", guard.RuleHard},
		{"ISATAP, the other form", guard.Config{}, standard(), "[2606:4700::200:5efe:a00:1]:443", guard.RuleHard},

		{"link local allowed by a policy", guard.Config{}, allow("0.0.0.0/0"), "169.254.1.1:443", guard.RuleHard},
		{"link local, special", guard.Config{Special: prefixes("169.254.0.0/16")}, standard(), "169.254.169.254:80", ""},
		{"link local, special, denied", guard.Config{Special: prefixes("169.254.0.0/16")}, policy(func(r *guard.Rules) { r.Deny = prefixes("169.254.169.254/32") }), "169.254.169.254:80", guard.RuleDeny},
		{"ISATAP, special", guard.Config{Special: prefixes("2606:4700::/32")}, standard(), "[2606:4700::5efe:a00:1]:443", ""},
		{"deny wins over allow", guard.Config{}, policy(func(r *guard.Rules) { r.Allow, r.Deny = prefixes("10.0.0.0/8"), prefixes("10.0.0.1/32") }), "10.0.0.1:443", guard.RuleDeny},
		{"deny closes a global address", guard.Config{}, policy(func(r *guard.Rules) { r.Deny = prefixes("8.8.8.0/24") }), "[::ffff:8.8.8.8]:443", guard.RuleDeny},

		{"loopback", guard.Config{}, standard(), "127.0.0.1:443", guard.RuleSoft},
		{"loopback allowed by a policy of the API", guard.Config{}, allow("127.0.0.0/8"), "127.0.0.1:443", guard.RuleSoft},
		{"loopback allowed by a policy of the file", guard.Config{}, policy(func(r *guard.Rules) { r.Allow, r.AllowLoopback = prefixes("127.0.0.0/8"), true }), "127.0.0.1:443", ""},
		{"IPv6 loopback, only IPv4 allowed", guard.Config{}, policy(func(r *guard.Rules) { r.Allow, r.AllowLoopback = prefixes("127.0.0.0/8"), true }), "[::1]:443", guard.RuleSoft},
		{"loopback without an allow list", guard.Config{}, policy(func(r *guard.Rules) { r.AllowLoopback = true }), "127.0.0.1:443", guard.RuleSoft},
		{"dev: loopback on any port", guard.Config{Dev: true}, standard(), "127.0.0.2:40000", ""},
		{"dev: IPv6 and mapped loopback", guard.Config{Dev: true}, standard(), "[::ffff:127.0.0.1]:40000", ""},
		{"dev: denied loopback", guard.Config{Dev: true}, policy(func(r *guard.Rules) { r.Deny = prefixes("127.0.0.1/32") }), "127.0.0.1:40000", guard.RuleDeny},
		{"dev: private stays closed", guard.Config{Dev: true}, standard(), "10.0.0.1:443", guard.RuleSoft},
		{"dev: ports elsewhere stay closed", guard.Config{Dev: true}, standard(), "8.8.8.8:40000", guard.RulePort},
		{"dev: compatible form is not loopback", guard.Config{Dev: true}, standard(), "[::127.0.0.1]:443", guard.RuleHard},
		{"dev: unspecified is not loopback", guard.Config{Dev: true}, standard(), "0.0.0.0:443", guard.RuleHard},

		{"own listener on loopback", guard.Config{Own: own, Dev: true}, standard(), "127.0.0.1:80", guard.RuleOwn},
		{"own port, another loopback address", guard.Config{Own: own, Dev: true}, standard(), "127.8.8.8:443", guard.RuleOwn},
		{"own port on an interface", guard.Config{Own: own, Local: local}, standard(), "8.8.4.4:80", guard.RuleOwn},
		{"own port on an interface, mapped", guard.Config{Own: own, Local: local}, standard(), "[::ffff:8.8.4.4]:80", guard.RuleOwn},
		{"own port on the address of a listener", guard.Config{Own: own}, standard(), "[2606:4700::9]:80", guard.RuleOwn},
		{"own port, unspecified, special", guard.Config{Own: own, Special: prefixes("0.0.0.0/8")}, standard(), "0.0.0.0:80", guard.RuleOwn},
		{"own port, unspecified, listener on loopback, special", guard.Config{Own: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:80")}, Special: prefixes("0.0.0.0/8")}, standard(), "0.0.0.0:80", guard.RuleOwn},
		{"own port on an interface told mapped", guard.Config{Own: own, Local: []netip.Addr{netip.MustParseAddr("::ffff:8.8.4.4")}}, standard(), "8.8.4.4:80", guard.RuleOwn},
		{"own port on an interface told with its zone", guard.Config{Own: own, Local: []netip.Addr{netip.MustParseAddr("fe80::1%lo")}, Special: prefixes("fe80::/10")}, standard(), "[fe80::1]:80", guard.RuleOwn},
		{"own port elsewhere", guard.Config{Own: own, Local: local}, standard(), "8.8.8.8:80", ""},
		{"another port on an interface", guard.Config{Own: own[:1], Local: local}, standard(), "8.8.4.4:443", ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			g := guard.New(row.config)
			at := netip.MustParseAddrPort(row.at)
			wantRule(t, g.Address(row.rules, at), row.denied)
			// A literal address in a URL is judged the same, before anything is dialled.
			wantRule(t, g.Target(row.rules, "https", at.Addr().String(), at.Addr(), at.Port()), row.denied)
		})
	}
	wantRule(t, guard.New(guard.Config{}).Address(standard(), netip.AddrPort{}), guard.RuleAddress)
}

func wantRule(t *testing.T, err error, rule string) {
	t.Helper()
	var denied *guard.DeniedError
	switch {
	case rule == "" && err != nil:
		t.Errorf("denied: %v", err)
	case rule != "" && (!errors.As(err, &denied) || denied.Rule != rule):
		t.Errorf("%#v, want rule %s", err, rule)
	}
}

func TestTargetsAreJudgedBeforeAnyLookup(t *testing.T) {
	o := readOracle(t)
	for _, name := range o.Names {
		for _, dev := range []bool{false, true} {
			g := guard.New(guard.Config{Dev: dev, Special: prefixes("0.0.0.0/0", "::/0")})
			wantRule(t, g.Target(&guard.Rules{AnyPort: true, AllowHTTP: true}, "http", name, netip.Addr{}, 80), guard.RuleName)
			wantRule(t, g.Target(&guard.Rules{AnyPort: true, AllowHTTP: true}, "http", "x."+name, netip.Addr{}, 80), "")
		}
	}
	plain, dev := guard.New(guard.Config{}), guard.New(guard.Config{Dev: true})
	rows := []struct {
		name   string
		g      *guard.Guard
		rules  *guard.Rules
		scheme string
		port   uint16
		denied string
	}{
		{"a name", plain, standard(), "https", 443, ""},
		{"plain http", plain, standard(), "http", 80, ""},
		{"plain http forbidden", plain, &guard.Rules{AnyPort: true}, "http", 80, guard.RuleScheme},
		{"https beside forbidden http", plain, &guard.Rules{AnyPort: true}, "https", 80, ""},
		{"another scheme", plain, standard(), "ftp", 80, guard.RuleScheme},
		{"a port not listed", plain, standard(), "https", 8443, guard.RulePort},
		{"dev: the address will tell", dev, standard(), "https", 8443, ""},
		{"dev: port 0", dev, standard(), "https", 0, guard.RulePort},
		{"dev: plain http forbidden", dev, &guard.Rules{}, "http", 8443, guard.RuleScheme},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			wantRule(t, row.g.Target(row.rules, row.scheme, "example.com", netip.Addr{}, row.port), row.denied)
		})
	}
}

// TestADenialTellsNoAddresses: all closed addresses look the same to the caller, and none is named; the operator's log has it all.
func TestADenialTellsNoAddresses(t *testing.T) {
	g := guard.New(guard.Config{Own: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:443")}})
	r := standard()
	r.Deny = prefixes("8.8.8.8/32")
	texts := map[string]bool{}
	for _, addr := range []string{"8.8.8.8", "10.1.2.3", "127.0.0.1", "169.254.169.254", "fd00:ec2::254", "::", "2606::5efe:a00:1", "fe80::1%eth0"} {
		err := g.Address(r, netip.AddrPortFrom(netip.MustParseAddr(addr), 443))
		var denied *guard.DeniedError
		if !errors.As(err, &denied) {
			t.Fatalf("%s: %v", addr, err)
		}
		texts[err.Error()] = true
		if !strings.Contains(guard.Explain(denied), addr) || !strings.HasPrefix(guard.Explain(denied), denied.Rule) {
			t.Errorf("%s: the log says %q", addr, guard.Explain(denied))
		}
	}
	if len(texts) != 1 {
		t.Errorf("the text tells addresses apart: %v", texts)
	}
	for text := range texts {
		if strings.ContainsAny(text, "0123456789:") {
			t.Errorf("%q tells an address", text)
		}
	}
}

func TestPrefixesAreReadAsAddressesAreJudged(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8":            "10.0.0.0/8",
		"10.1.2.3/8":            "10.0.0.0/8",
		"fd00::1/8":             "fd00::/8",
		"::ffff:10.0.0.0/104":   "10.0.0.0/8",
		"::ffff:127.0.0.1/128":  "127.0.0.1/32",
		"::ffff:0:0/96":         "0.0.0.0/0",
		"::/0":                  "::/0",
		"10.0.0.0":              "",
		"10.0.0.0/33":           "",
		"fe80::%lo/10":          "",
		"example.com/8":         "",
		"":                      "",
		"10.0.0.0/8,10.0.0.0/8": "",
	} {
		got, err := guard.ParsePrefix(in)
		if (err == nil) != (want != "") || (err == nil && got.String() != want) {
			t.Errorf("%q: %v, %v, want %q", in, got, err, want)
		}
	}
}
