package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

func proxied(url string, file bool) policy.Rule {
	r := policy.Rule{Name: "policies/proxied", File: file}
	r.Egress.Proxy = &url
	return r
}

func TestProxyIsHostAndPortAndNothingElse(t *testing.T) {
	for url, fix := range map[string]string{
		"http://proxy.example.com:3128":             "",
		"http://proxy.example.com.:3128":            "",
		"http://10.0.0.7:80":                        "",
		"http://[fd00::7]:3128":                     "",
		"":                                          "",
		"proxy.example.com:3128":                    "write http://host:port",
		"https://proxy.example.com:3128":            "spoken to in plain HTTP",
		"socks5://proxy.example.com:1080":           "spoken to in plain HTTP",
		"HTTP://proxy.example.com:3128":             "write http://host:port",
		"http://u:hunter2@proxy.example.com:3128":   "leave user and password out",
		"http://hunter2@proxy.example.com:3128":     "leave user and password out",
		"http://proxy.example.com:3128/":            "nothing behind it",
		"http://proxy.example.com:3128/hunter2":     "nothing behind it",
		"http://proxy.example.com:3128?hunter2":     "nothing behind it",
		"http://proxy.example.com:3128#hunter2":     "nothing behind it",
		"http://proxy.example.com":                  "name the port",
		"http://[fd00::7]":                          "name the port",
		"http://proxy.example.com:":                 "a port must follow the colon",
		"http://proxy.example.com:0":                "the port must be",
		"http://proxy.example.com:080":              "the port must be",
		"http://proxy.example.com:70000":            "the port must be",
		"http://a_proxy.example.com:3128":           "letters, digits, hyphens",
		"http://:3128":                              "must name a host",
		"http://127.1:3128":                         "write http://host:port: ",
		"http://fd00::7:3128":                       "an IPv6 address must stand in brackets",
		"http://[fe80::7%25eth0]:3128":              "write http://host:port: ",
		"http://proxy.example.com:3128\r\nX: a":     "write http://host:port: ",
		"http://pr\u00f6xy.example.com:3128":        "write http://host:port: ",
		"http://proxy.example.com:3128,b.example:1": "write http://host:port: ",
	} {
		problems := policy.Check([]policy.Rule{proxied(url, true)})
		switch {
		case fix == "" && len(problems) > 0:
			t.Errorf("%q: %v", url, problems)
		case fix == "":
		case len(problems) != 1 || problems[0].Path != "egress.proxy" || !strings.Contains(problems[0].Text, fix):
			t.Errorf("%q: %v, want one at egress.proxy with %q", url, problems, fix)
		case strings.Contains(problems[0].Text, "hunter2"):
			t.Errorf("%q: the text repeats a secret: %s", url, problems[0].Text)
		}
	}
}

func TestProxyIsReadInOneSpelling(t *testing.T) {
	c := callTo(t, "GET", "https://example.com/", "")
	for url, want := range map[string]policy.Proxy{
		"http://Proxy.Example.com.:3128": {Host: "proxy.example.com", Port: 3128},
		"http://10.0.0.7:80":             {Host: "10.0.0.7", Address: netip.MustParseAddr("10.0.0.7"), Port: 80},
		"http://[FD00:0::7]:3128":        {Host: "fd00::7", Address: netip.MustParseAddr("fd00::7"), Port: 3128},
		"http://[::ffff:10.0.0.7]:3128":  {Host: "10.0.0.7", Address: netip.MustParseAddr("10.0.0.7"), Port: 3128},
	} {
		got := compile(t, proxied(url, false)).Match(c).Egress.Proxy
		if got == nil || got.Host != want.Host || got.Address != want.Address || got.Port != want.Port {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
	broad, narrow := proxied("http://proxy.example.com:3128", false), proxied("", false)
	narrow.Name, narrow.Match.Hosts = "policies/direct", []string{"example.com"}
	if got := compile(t, broad, narrow).Match(c).Egress.Proxy; got != nil {
		t.Errorf("an empty proxy inherits %+v, want none", got)
	}
}

// Where a proxy may stand is not what its policy says of targets: the guard's own tiers decide, loopback by who wrote the policy.
func TestProxyIsJudgedByRulesOfItsOwn(t *testing.T) {
	own := netip.MustParseAddrPort("10.0.0.1:7400")
	for _, row := range []struct {
		at        string
		file, dev bool
		rule      string
	}{
		{at: "8.8.8.8:3128"},
		{at: "10.0.0.7:3128"},
		{at: "192.168.0.7:1"},
		{at: "100.64.0.7:3128"},
		{at: "[fd00::7]:3128"},
		{at: "127.0.0.1:3128", file: true},
		{at: "[::1]:3128", file: true},
		{at: "127.0.0.1:3128", dev: true},
		{at: "127.0.0.1:3128", rule: guard.RuleSoft},
		{at: "[::1]:3128", rule: guard.RuleSoft},
		{at: "[::ffff:127.0.0.1]:3128", rule: guard.RuleSoft},
		{at: "169.254.169.254:80", file: true, dev: true, rule: guard.RuleHard},
		{at: "100.100.100.200:80", file: true, rule: guard.RuleHard},
		{at: "0.0.0.0:3128", file: true, rule: guard.RuleHard},
		{at: "[64:ff9b::a00:1]:3128", file: true, rule: guard.RuleHard},
		{at: "10.0.0.1:7400", file: true, dev: true, rule: guard.RuleOwn},
		{at: "127.0.0.1:7400", file: true, dev: true, rule: guard.RuleOwn},
		{at: "10.0.0.7:0", file: true, rule: guard.RulePort},
		{at: "198.51.100.7:3128"}, // opened below
	} {
		r := proxied("http://proxy.example.com:3128", row.file)
		// What is said of targets must not matter.
		r.Egress.DenyCIDRs, r.Egress.Ports, r.Egress.AllowHTTP = []string{"0.0.0.0/0", "::/0"}, []uint32{443}, new(false)
		p := compile(t, r).Match(callTo(t, "GET", "https://example.com/", "")).Egress.Proxy
		g := guard.New(guard.Config{Own: []netip.AddrPort{own}, Dev: row.dev, Special: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}})
		err := g.Address(&p.Rules, netip.MustParseAddrPort(row.at))
		if got := ruleOf(err); got != row.rule {
			t.Errorf("%s, file %t, dev %t: denied by %q, want %q", row.at, row.file, row.dev, got, row.rule)
		}
		if err := g.Target(&p.Rules, "http", "metadata.google.internal", netip.Addr{}, 80); ruleOf(err) != guard.RuleName {
			t.Errorf("a metadata service as a proxy: %v", err)
		}
	}
}

// Who opens loopback for targets does not open it for the proxy of another policy, nor the other way round.
func TestLoopbackOfTheProxyIsItsOwnPolicys(t *testing.T) {
	c := callTo(t, "GET", "https://example.com/", "")
	file := policy.Rule{Name: "policies/file", File: true, Match: policy.Match{Hosts: []string{"example.com"}}}
	file.Egress.AllowCIDRs = []string{"127.0.0.0/8"}
	e := compile(t, file, proxied("http://127.0.0.1:3128", false)).Match(c).Egress
	if !e.Rules.AllowLoopback || e.Proxy.Rules.AllowLoopback {
		t.Errorf("targets %t, proxy %t, want the targets alone", e.Rules.AllowLoopback, e.Proxy.Rules.AllowLoopback)
	}
	stored := policy.Rule{Name: "policies/stored", Match: policy.Match{Hosts: []string{"example.com"}}}
	stored.Egress.AllowCIDRs = []string{"127.0.0.0/8"}
	e = compile(t, stored, proxied("http://127.0.0.1:3128", true)).Match(c).Egress
	if e.Rules.AllowLoopback || !e.Proxy.Rules.AllowLoopback {
		t.Errorf("targets %t, proxy %t, want the proxy alone", e.Rules.AllowLoopback, e.Proxy.Rules.AllowLoopback)
	}
}

func ruleOf(err error) string {
	if denied, ok := errors.AsType[*guard.DeniedError](err); ok {
		return denied.Rule
	}
	return ""
}
