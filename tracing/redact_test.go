package tracing

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/call"
)

func TestURLKeepsNamesAndLosesValues(t *testing.T) {
	for _, tt := range []struct{ name, url, want string }{
		{"no query", "https://api.example.com/a/b", "https://api.example.com/a/b"},
		{"no path", "https://api.example.com", "https://api.example.com/"},
		{"port as written", "http://api.example.com:8080/a", "http://api.example.com:8080/a"},
		{"IPv6", "http://[2001:db8::1]:8080/a?b=c", "http://[2001:db8::1]:8080/a?b=REDACTED"},
		{"values", "https://api.example.com/a?id=17&token=s3cret", "https://api.example.com/a?id=REDACTED&token=REDACTED"},
		{"the same name twice", "https://api.example.com/?a=1&a=2", "https://api.example.com/?a=REDACTED&a=REDACTED"},
		{"no value", "https://api.example.com/?a=&b=", "https://api.example.com/?a=REDACTED&b=REDACTED"},
		{"empty query", "https://api.example.com/?", "https://api.example.com/?"},
		{"value without a name", "https://api.example.com/?s3cret", "https://api.example.com/?REDACTED"},
		{"empty name", "https://api.example.com/?=s3cret", "https://api.example.com/?=REDACTED"},
		{"base64 padding", "https://api.example.com/?k=czNjcmV0Cg==", "https://api.example.com/?k=REDACTED"},
		{"empty parts", "https://api.example.com/?&&a=1&", "https://api.example.com/?&&a=REDACTED&"},
		{"question mark in a value", "https://api.example.com/?a=b?c=d", "https://api.example.com/?a=REDACTED"},
		{"semicolon hides nothing", "https://api.example.com/?a=1;token=s3cret", "https://api.example.com/?a=REDACTED"},
		{"escapes", "https://api.example.com/%3Fa?b%3D=c%26d", "https://api.example.com/%3Fa?b%3D=REDACTED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target, err := call.ParseTarget(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			if got := redacted(&target); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

var (
	// safe is a query of which only names are left.
	safe = regexp.MustCompile(`^(([^&=]*=)?REDACTED)?(&(([^&=]*=)?REDACTED)?)*$`)
	// named are its names.
	named = regexp.MustCompile(`(?:^|&)([^&=]*)=`)
)

func FuzzRedacted(f *testing.F) {
	for _, url := range []string{
		"https://api.example.com/a?id=17&token=s3cret", "http://[2001:db8::1]:80/?=&a&=b==c", "https://h/?a=b?c&d=e;f=g", "http://h?", "https://h/%3F?%26=%3D",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		target, err := call.ParseTarget(url)
		if err != nil {
			return
		}
		got := redacted(&target)
		path, query, found := strings.Cut(target.RequestTarget, "?")
		gotPath, gotQuery, gotFound := strings.Cut(strings.TrimPrefix(got, target.Scheme+"://"+target.Authority), "?")
		if gotPath != path || gotFound != found {
			t.Fatalf("%s: %s", url, got)
		}
		if !safe.MatchString(gotQuery) {
			t.Errorf("%s: a value is left in %q", url, gotQuery)
		}
		if !reflect.DeepEqual(named.FindAllString(gotQuery, -1), named.FindAllString(query, -1)) ||
			strings.Count(gotQuery, "&") != strings.Count(query, "&") {
			t.Errorf("%s: the names changed in %q", url, gotQuery)
		}
	})
}
