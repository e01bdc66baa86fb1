package guard_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/egress/guard"
)

func TestGuardAgreesWithThePlainOracle(t *testing.T) {
	o := readOracle(t)
	pool := o.interesting()
	address := rapid.OneOf(
		rapid.SampledFrom(pool),
		rapid.Custom(func(t *rapid.T) netip.Addr {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
		}),
		rapid.Custom(func(t *rapid.T) netip.Addr {
			return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6")))
		}),
		rapid.Map(rapid.SampledFrom(pool), func(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }), // mapped
	)
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		addr := rapid.SampledFrom(pool).Draw(t, "base").Unmap()
		return netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")).Masked()
	})
	port := rapid.SampledFrom([]uint16{0, 80, 443, 7400, 8080})
	rapid.Check(t, func(t *rapid.T) {
		at := netip.AddrPortFrom(address.Draw(t, "address"), port.Draw(t, "port"))
		// Half of the lists hold the very address, so that every rule gets its say.
		list := func(label string) []netip.Prefix {
			p := rapid.SliceOfN(prefix, 0, 3).Draw(t, label)
			if addr := at.Addr().Unmap(); rapid.Bool().Draw(t, label+" holds it") {
				p = append(p, netip.PrefixFrom(addr, addr.BitLen()))
			}
			return p
		}
		c := guard.Config{Dev: rapid.Bool().Draw(t, "dev"), Special: list("special")}
		for range rapid.IntRange(0, 2).Draw(t, "own") {
			c.Own = append(c.Own, netip.AddrPortFrom(rapid.SampledFrom(pool).Draw(t, "own"), port.Draw(t, "own port")))
		}
		if rapid.Bool().Draw(t, "local") {
			c.Local = append(c.Local, at.Addr().Unmap())
		}
		r := &guard.Rules{
			Allow: list("allow"), AllowLoopback: rapid.Bool().Draw(t, "allow loopback"),
			Ports: rapid.SliceOfN(port, 0, 3).Draw(t, "ports"), AnyPort: rapid.Bool().Draw(t, "any port"),
		}
		if rapid.IntRange(0, 3).Draw(t, "denies") == 0 {
			r.Deny = list("deny")
		}
		err := guard.New(c).Address(r, at)
		if got, want := err == nil, o.allows(c, r, at); got != want {
			t.Fatalf("%s: %v, want allowed %v\n%+v\n%+v", at, err, want, c, r)
		}
	})
}

func FuzzAddress(f *testing.F) {
	o := readOracle(f)
	for _, addr := range o.interesting() {
		f.Add(addr.AsSlice(), uint16(443))
	}
	everything := prefixes("0.0.0.0/0", "::/0")
	configs := []guard.Config{{}, {Dev: true}, {Special: everything}}
	var guards []*guard.Guard
	for _, c := range configs {
		guards = append(guards, guard.New(c))
	}
	rules := []*guard.Rules{standard(), {AnyPort: true, Allow: everything, AllowLoopback: true}}
	f.Fuzz(func(t *testing.T, raw []byte, port uint16) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		at := netip.AddrPortFrom(addr, port)
		for i, g := range guards {
			for _, r := range rules {
				err := g.Address(r, at)
				if got, want := err == nil, o.allows(configs[i], r, at); got != want {
					t.Fatalf("%s, config %d: %v, want allowed %v", at, i, err, want)
				}
			}
		}
	})
}

func TestJudgingAllocatesNothing(t *testing.T) {
	g := guard.New(guard.Config{Dev: true})
	r := standard()
	r.Allow = prefixes("10.0.0.0/8", "fd00::/8")
	for _, at := range []string{"8.8.8.8:443", "10.1.2.3:80", "[2606:4700::1]:443", "[fd12::1]:80", "127.0.0.1:9000"} {
		ap := netip.MustParseAddrPort(at)
		if n := testing.AllocsPerRun(100, func() {
			if g.Address(r, ap) != nil {
				t.Fatal("denied")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", at, n)
		}
	}
}

func BenchmarkAddress(b *testing.B) {
	g := guard.New(guard.Config{Own: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7400")}})
	r := standard()
	r.Allow = prefixes("10.0.0.0/8", "fd00::/8")
	for _, name := range []string{"8.8.8.8:443", "10.1.2.3:443", "[2606:4700::1]:443", "[fd12::1]:443"} {
		ap := netip.MustParseAddrPort(name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Address(r, ap); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
