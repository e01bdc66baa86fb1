package call_test

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
)

// TestTargetIsTakenApartAsWritten: what goes out is what was written.
func TestTargetIsTakenApartAsWritten(t *testing.T) {
	v4 := netip.MustParseAddr("127.0.0.1")
	rows := []struct {
		raw  string
		want call.Target
	}{
		{"http://example.com/a", call.Target{Scheme: "http", Host: "example.com", Port: 80, Authority: "example.com", Path: "/a", RequestTarget: "/a", Origin: "http://example.com:80"}},
		{"https://example.com", call.Target{Scheme: "https", Host: "example.com", Port: 443, Authority: "example.com", Path: "/", RequestTarget: "/", Origin: "https://example.com:443"}},
		{"http://example.com?q=1", call.Target{Scheme: "http", Host: "example.com", Port: 80, Authority: "example.com", Path: "/", RequestTarget: "/?q=1", Origin: "http://example.com:80"}},
		{"http://example.com/?", call.Target{Scheme: "http", Host: "example.com", Port: 80, Authority: "example.com", Path: "/", RequestTarget: "/?", Origin: "http://example.com:80"}},
		{"HTTP://example.com:80/", call.Target{Scheme: "http", Host: "example.com", Port: 80, Authority: "example.com:80", Path: "/", RequestTarget: "/", Origin: "http://example.com:80"}},
		{"hTTpS://API.Example.COM.:8443/x", call.Target{Scheme: "https", Host: "api.example.com", Port: 8443, Authority: "API.Example.COM:8443", Path: "/x", RequestTarget: "/x", Origin: "https://api.example.com:8443"}},
		{"http://127.0.0.1:8080/a%2Fb//c;d?x=%20y&z=1&z=2", call.Target{Scheme: "http", Host: "127.0.0.1", Address: v4, Port: 8080, Authority: "127.0.0.1:8080", Path: "/a%2Fb//c;d", RequestTarget: "/a%2Fb//c;d?x=%20y&z=1&z=2", Origin: "http://127.0.0.1:8080"}},
		{"http://[0:0:0:0:0:0:0:1]:8080/", call.Target{Scheme: "http", Host: "::1", Address: netip.IPv6Loopback(), Port: 8080, Authority: "[0:0:0:0:0:0:0:1]:8080", Path: "/", RequestTarget: "/", Origin: "http://[::1]:8080"}},
		{"https://[2001:DB8::A]", call.Target{Scheme: "https", Host: "2001:db8::a", Address: netip.MustParseAddr("2001:db8::a"), Port: 443, Authority: "[2001:DB8::A]", Path: "/", RequestTarget: "/", Origin: "https://[2001:db8::a]:443"}},
		{"http://[::ffff:127.0.0.1]/", call.Target{Scheme: "http", Host: "127.0.0.1", Address: netip.MustParseAddr("127.0.0.1"), Port: 80, Authority: "[::ffff:127.0.0.1]", Path: "/", RequestTarget: "/", Origin: "http://127.0.0.1:80"}},
		{"http://h/p?u=http://../%2e%2e/%zz%00", call.Target{Scheme: "http", Host: "h", Port: 80, Authority: "h", Path: "/p", RequestTarget: "/p?u=http://../%2e%2e/%zz%00", Origin: "http://h:80"}},
	}
	for _, row := range rows {
		t.Run(row.raw, func(t *testing.T) {
			got, err := call.ParseTarget(row.raw)
			if err != nil || got != row.want {
				t.Errorf("%+v, %v\nwant %+v", got, err, row.want)
			}
		})
	}
}

// TestURLAcceptance: which URLs are calls at all. Those that are may still be denied by the guard.
func TestURLAcceptance(t *testing.T) {
	const taken, refused = true, false
	label63 := strings.Repeat("a", 63)
	name253 := strings.Repeat(label63+".", 3) + strings.Repeat("a", 61)
	rows := []struct {
		raw  string
		want bool
	}{
		{"http://127.0.0.1:8080/", taken},
		{"http://127.255.255.254:8080/", taken},
		{"http://localhost:8080/", taken},
		{"http://LOCALHOST:8080/", taken},
		{"http://0.0.0.0:8080/", taken},
		{"http://255.255.255.255:8080/", taken},
		{"http://169.254.169.254:8080/latest/meta-data/", taken},
		{"http://[::1]:8080/", taken},
		{"http://[::]:8080/", taken},
		{"http://[::ffff:127.0.0.1]:8080/", taken},
		{"http://[::127.0.0.1]:8080/", taken},
		{"http://[64:ff9b::7f00:1]:8080/", taken},
		{"http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]:8080/", taken},
		{"http://[fe80::1]:8080/", taken},
		{"http://metadata.google.internal/", taken},
		{"http://instance-data/", taken},
		{"HTTP://127.0.0.1:8080/", taken},
		{"Http://127.0.0.1:8080/", taken},
		{"http://127.0.0.1:8080?q=1", taken},
		{"https://192.0.2.7:8080/", taken},
		{"http://a_b.example.com:1/", taken},
		{"http://_dmarc.example.com:65535/", taken},
		{"http://xn--bcher-kva.example/", taken},
		{"http://r3---sn-x.example.com/", taken},
		{"http://1.example/", taken},
		{"http://0x7f.example/", taken},
		{"http://a1/", taken},
		{"http://0xg/", taken},
		{"http://example.com./", taken},
		{"http://" + label63 + ".example/", taken},
		{"http://" + name253 + "/", taken},
		{"http://" + name253 + "./", taken},
		{"http://h/%2e%2e%2e/...", taken},
		{"http://h/a/..b/.c/d../e.", taken},
		{"http://h/..;/", taken},
		{"http://h/%5c%2F;//", taken},
		{"http://h/%252e%252e/", taken},
		{"http://h/%0b%7f%ff", taken},
		{"http://h/{}|^`\"<>[]@:!", taken},
		{"http://h/?q=a@b/../%0d", taken},
		{"http://h/" + strings.Repeat("a", 8<<10-9), taken},

		// Addresses that are none, or that others read as other ones.
		{"http://127.1:8080/", refused},
		{"http://0x7f.1:8080/", refused},
		{"http://0x7f000001:8080/", refused},
		{"http://0X7F000001:8080/", refused},
		{"http://2130706433:8080/", refused},
		{"http://0177.0.0.1:8080/", refused},
		{"http://127.000.000.001:8080/", refused},
		{"http://0:8080/", refused},
		{"http://127.0.0.1.5:8080/", refused},
		{"http://127.0.1:8080/", refused},
		{"http://256.0.0.1/", refused},
		{"http://127.0.0.1./", refused},
		{"http://example.0x/", refused},
		{"http://example.1/", refused},
		{"http://example.0xff./", refused},
		{"http://127。0。0。1:8080/", refused},
		{"http://１２７.0.0.1:8080/", refused},
		{"http://%31%32%37.0.0.1:8080/", refused},
		{"http://loc%61lhost:8080/", refused},
		{"http://127.0.0.1%2e:8080/", refused},
		{"http://[fe80::1%25lo]:8080/", refused},
		{"http://[::1%25lo]:8080/", refused},
		{"http://[::1%lo]:8080/", refused},
		{"http://[127.0.0.1]/", refused},
		{"http://[v1.a]/", refused},
		{"http://[]/", refused},
		{"http://[::1/", refused},
		{"http://::1]/", refused},
		{"http://::1/", refused},
		{"http://[::1].:80/", refused},
		{"http://[::1]a/", refused},
		{"http://a[::1]/", refused},
		{"http://[::1]]/", refused},
		{"http://[1:2:3]/", refused},

		// Userinfo.
		{"http://user:s3cr3t@127.0.0.1:8080/", refused},
		{"http://s3cr3t@127.0.0.1:8080/", refused},
		{"http://user:p%40ss%21@127.0.0.1:8080/", refused},
		{"http://user:s3cr3t@127.0.0.1:80\n/", refused},
		{"http://user:s3cr3t@127.0.0.1:port/", refused},
		{"http://user:s3cr3t@[::1/", refused},
		{"http://@127.0.0.1/", refused},

		// Bytes.
		{"http://192.0.2.1\\@127.0.0.1:8080/", refused},
		{"http://127.0.0.1:8080\\@192.0.2.1/", refused},
		{"http://h/a\\b", refused},
		{" http://127.0.0.1:8080/", refused},
		{"http://127.0.0.1:8080/ ", refused},
		{"http://127.0.\t0.1:8080/", refused},
		{"http://127.0.0.1:8080/a\r\nX: y", refused},
		{"http://127.0.0.1:8080/a\nb", refused},
		{"http://127.0.0.1:8080/a b", refused},
		{"http://127.0.0.1:8080/a?b\tc", refused},
		{"http://h/a?\x00", refused},
		{"http://h/a?\x7f", refused},
		{"http://h/ä", refused},
		{"http://h/?ä", refused},
		{"http://ex\u00adample.com/", refused},
		{"httpſ://example.com/", refused},

		// Scheme, authority, host.
		{"http:127.0.0.1:8080/", refused},
		{"http:/127.0.0.1:8080/", refused},
		{"http:127.0.0.1/?u=http://h", refused},
		{"//127.0.0.1:8080/", refused},
		{"http:///p", refused},
		{"http://", refused},
		{"http://?q", refused},
		{"http://:80/", refused},
		{"http://./", refused},
		{"127.0.0.1:8080/", refused},
		{"/path", refused},
		{"", refused},
		{"unix:///var/run/docker.sock", refused},
		{"file:///etc/passwd", refused},
		{"gopher://127.0.0.1:8080/", refused},
		{"ftp://127.0.0.1:8080/", refused},
		{"ws://127.0.0.1:8080/", refused},
		{"http://a..b/", refused},
		{"http://.a/", refused},
		{"http://example.com../", refused},
		{"http://-a.example/", refused},
		{"http://a-.example/", refused},
		{"http://xn--/", refused},
		{"http://xn--localhost-/", refused},
		{"http://a" + label63 + ".example/", refused},
		{"http://" + name253 + "a/", refused},
		{"http://" + strings.Repeat("a.", 127) + "/", taken},
		{"http://" + strings.Repeat("a.", 127) + "a/", refused},
		{"http://a*b/", refused},
		{"http://a,b/", refused},
		{"http://a;b/", refused},
		{"http://h/" + strings.Repeat("a", 8<<10-8), refused},

		// Ports.
		{"http://127.0.0.1:0/", refused},
		{"http://127.0.0.1:99999/", refused},
		{"http://127.0.0.1:65536/", refused},
		{"http://127.0.0.1:-1/", refused},
		{"http://127.0.0.1:+80/", refused},
		{"http://127.0.0.1:80a/", refused},
		{"http://127.0.0.1:080/", refused},
		{"http://127.0.0.1:/", refused},
		{"http://127.0.0.1:80:80/", refused},
		{"http://127.0.0.1:4294967376/", refused},
		{"http://[::1]:/", refused},
		{"http://[::1]:080/", refused},

		// Paths and fragments.
		{"http://h/a/../b", refused},
		{"http://h/./a", refused},
		{"http://h/..", refused},
		{"http://h/.", refused},
		{"http://h/a/%2e%2e/b", refused},
		{"http://h/a/.%2E", refused},
		{"http://h/%2e?q", refused},
		{"http://h/a%2f..%2fb", refused},
		{"http://h/a%5C%2e%2E", refused},
		{"http://h/a%00b", refused},
		{"http://h/a%0ab", refused},
		{"http://h/a%0Db", refused},
		{"http://h/%", refused},
		{"http://h/%4", refused},
		{"http://h/%zz", refused},
		{"http://h/%4?1", refused},
		{"http://h/a#f", refused},
		{"http://h/a#", refused},
		{"http://h/?a#f", refused},
		{"http://h#f", refused},
	}
	for _, row := range rows {
		t.Run(row.raw, func(t *testing.T) {
			got, err := call.ParseTarget(row.raw)
			if row.want == taken {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var invalid *call.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "request.url" || invalid.Problem == "" {
				t.Fatalf("%+v, %v: want an InvalidError for request.url", got, err)
			}
			if got != (call.Target{}) {
				t.Errorf("a refused URL leaves %+v", got)
			}
			for _, secret := range []string{"s3cr3t", "p%40ss", "p@ss", "user:"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q repeats the URL", err)
				}
			}
		})
	}
}

func TestAmbiguousPathIsNoticed(t *testing.T) {
	for raw, want := range map[string]bool{
		"http://h/":           false,
		"http://h/a/b%20c":    false,
		"http://h/?q=%2f":     false,
		"http://h/%252f":      false,
		"http://h/a%2fb":      true,
		"http://h/a%2F":       true,
		"http://h/a%5cb":      true,
		"http://h/a%5C?q=%20": true,
		"http://h//a":         true,
		"http://h/a//b":       true,
		"http://h/a/":         false,
		"http://h/a;b":        true,
		"http://h/a%3bb":      true,
		"http://h/?q=//;":     false,
	} {
		target, err := call.ParseTarget(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.Ambiguous(); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

// TestAssembledURLsAreTakenApartAgain builds URLs from legal parts and looks for the parts.
func TestAssembledURLsAreTakenApartAgain(t *testing.T) {
	name := rapid.StringMatching(`([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,8}[a-zA-Z0-9_])?\.){0,3}[a-zA-Z]([a-zA-Z0-9-]{0,8}[a-zA-Z])?`)
	path := rapid.StringMatching(`(/[a-zA-Z0-9~;:@!]{1,5}(%20|%2f|%5C)?){0,3}`)
	query := rapid.StringMatching(`(\?[!-"$-\[\]-~]{0,10})?`)
	rapid.Check(t, func(t *rapid.T) {
		scheme := rapid.SampledFrom([]string{"http", "https"}).Draw(t, "scheme")
		host, port := name.Draw(t, "host"), rapid.IntRange(1, 65535).Draw(t, "port")
		rest, q := path.Draw(t, "path"), query.Draw(t, "query")
		authority := host + ":" + strconv.Itoa(port)
		got, err := call.ParseTarget(scheme + "://" + authority + rest + q)
		if err != nil {
			t.Fatal(err)
		}
		if rest == "" {
			rest = "/"
		}
		lower := strings.ToLower(host)
		want := call.Target{
			Scheme: scheme, Host: lower, Port: uint16(port), Authority: authority, Path: rest, RequestTarget: rest + q,
			Origin: scheme + "://" + lower + ":" + strconv.Itoa(port),
		}
		if got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{
		"http://example.com/a?b", "https://API.Example.com.:8443", "http://[::ffff:127.0.0.1]:80/%2f", "http://[2001:DB8::1]?",
		"http://127.0.0.1:1/..;", "http://u@h", "http://h/%2e", "http://0x7f.1", "http://h/?#", "HTTP://h:", "http://a_b-c.d//;",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := call.ParseTarget(raw)
		if err != nil {
			return
		}
		again, err := call.ParseTarget(target.Scheme + "://" + target.Authority + target.RequestTarget)
		if err != nil || again != target {
			t.Fatalf("%q: %+v becomes %+v, %v", raw, target, again, err)
		}
		checkHost(t, target)

		// net/url reads the same host and port in what it was given and in what goes out.
		for _, text := range []string{raw, target.Scheme + "://" + target.Authority + target.RequestTarget} {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatalf("%q: net/url: %v", text, err)
			}
			host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
			if target.Address.IsValid() {
				host = netip.MustParseAddr(host).Unmap().String()
			}
			port := u.Port()
			if port == "" {
				port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
			}
			if host != target.Host || port != strconv.Itoa(int(target.Port)) || u.Scheme != target.Scheme {
				t.Fatalf("%q: net/url reads %s %s %s, not %+v", text, u.Scheme, host, port, target)
			}
		}
	})
}

// checkHost: a host is letters, digits, hyphens, underscores and dots, or the canonical text of an address.
func checkHost(t *testing.T, target call.Target) {
	t.Helper()
	if target.Address.IsValid() {
		if target.Address.String() != target.Host || target.Address.Zone() != "" {
			t.Fatalf("%+v: no canonical address", target)
		}
		return
	}
	if _, err := netip.ParseAddr(target.Host); err == nil {
		t.Fatalf("%+v: an address passed as a name", target)
	}
	for _, c := range target.Host {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_.", c) {
			t.Fatalf("%+v: %q in a name", target, c)
		}
	}
	if target.Host == "" {
		t.Fatalf("%+v: no host", target)
	}
}

func BenchmarkParseTarget(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := call.ParseTarget("https://api.example.com/v1/charges?limit=10"); err != nil {
			b.Fatal(err)
		}
	}
}
