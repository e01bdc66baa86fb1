package call_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
)

func target(t testing.TB, raw string) call.Target {
	t.Helper()
	parsed, err := call.ParseTarget(raw)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestReferenceIsResolved(t *testing.T) {
	// The base and the rows of RFC 3986 §5.4, with http and an empty path written as "/", then what servers write.
	base := target(t, "http://a/b/c/d;p?q")
	for _, row := range []struct{ reference, want string }{
		{"g", "http://a/b/c/g"},
		{"./g", "http://a/b/c/g"},
		{"g/", "http://a/b/c/g/"},
		{"/g", "http://a/g"},
		{"//g", "http://g/"},
		{"?y", "http://a/b/c/d;p?y"},
		{"g?y", "http://a/b/c/g?y"},
		{"#s", "http://a/b/c/d;p?q"},
		{"g#s", "http://a/b/c/g"},
		{"g?y#s", "http://a/b/c/g?y"},
		{";x", "http://a/b/c/;x"},
		{"g;x", "http://a/b/c/g;x"},
		{"g;x?y#s", "http://a/b/c/g;x?y"},
		{"", "http://a/b/c/d;p?q"},
		{".", "http://a/b/c/"},
		{"./", "http://a/b/c/"},
		{"..", "http://a/b/"},
		{"../", "http://a/b/"},
		{"../g", "http://a/b/g"},
		{"../..", "http://a/"},
		{"../../", "http://a/"},
		{"../../g", "http://a/g"},
		{"../../../g", "http://a/g"},
		{"../../../../g", "http://a/g"},
		{"/./g", "http://a/g"},
		{"/../g", "http://a/g"},
		{"g.", "http://a/b/c/g."},
		{".g", "http://a/b/c/.g"},
		{"g..", "http://a/b/c/g.."},
		{"..g", "http://a/b/c/..g"},
		{"./../g", "http://a/b/g"},
		{"./g/.", "http://a/b/c/g/"},
		{"g/./h", "http://a/b/c/g/h"},
		{"g/../h", "http://a/b/c/h"},
		{"g;x=1/./y", "http://a/b/c/g;x=1/y"},
		{"g;x=1/../y", "http://a/b/c/y"},
		{"g?y/./x", "http://a/b/c/g?y/./x"},
		{"g?y/../x", "http://a/b/c/g?y/../x"},
		{"HTTPS://B.example.com:8443/x/../y", "https://B.example.com:8443/y"},
		{"//b.example.com?x", "http://b.example.com/?x"},
		{"https://b.example.com", "https://b.example.com/"},
		{"a:b", ""},                       // the scheme a
		{"./a:b", "http://a/b/c/a:b"},     // and no scheme
		{"/x%2e", "http://a/x%2e"},        // not a dot segment
		{"/a//b", "http://a/a//b"},        // an empty segment is one
		{"http:g", ""},                    // RFC 3986 §5.2.2, strict: no authority
		{"mailto:x@example.com", ""},      //
		{"ftp://b.example.com/", ""},      //
		{"/x/%2e%2e/y", ""},               //
		{"/x%0ay", ""},                    //
		{"http://u:p@b.example.com/", ""}, //
		{"http://b.example.com:99999/", ""},
		{"//127.1/", ""},
		{"/with blank", ""},
		{"http://%zz/", ""},
		{"//", ""},
		{"/é", ""},
	} {
		got, err := base.Resolve(row.reference)
		if row.want == "" {
			if e, ok := errors.AsType[*call.InvalidError](err); !ok || e.Field != "Location" {
				t.Errorf("%q: %v, want it refused", row.reference, err)
			}
			continue
		}
		if err != nil || got.Scheme+"://"+got.Authority+got.RequestTarget != row.want {
			t.Errorf("%q: %s://%s%s, %v, want %s", row.reference, got.Scheme, got.Authority, got.RequestTarget, err, row.want)
		}
	}
}

// Where net/url can resolve without a repair, both agree.
func TestReferenceIsResolvedAsByNetURL(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "b.c", "..", ".", "%41", "x=1", "a:b", ";p"})
	path := rapid.Custom(func(t *rapid.T) string {
		segments := rapid.SliceOfN(piece, 0, 6).Draw(t, "segments") // no empty ones: net/url loses some
		return strings.Join(segments, "/") + rapid.SampledFrom([]string{"", "/"}).Draw(t, "end")
	})
	rapid.Check(t, func(t *rapid.T) {
		base := "http://a.example.com/" + strings.TrimLeft(path.Draw(t, "base"), "/.")
		parsed, err := call.ParseTarget(base)
		if err != nil {
			t.Skip("no base")
		}
		reference := rapid.SampledFrom([]string{"", "/", "//b.example.com/", "https://c.example.com:81/", "?"}).Draw(t, "before") + path.Draw(t, "path")
		if strings.HasPrefix(reference, "///") || reference == "//" {
			t.Skip("net/url takes an empty authority for the base's")
		}
		b, err := url.Parse(base)
		if err != nil {
			t.Skip("no base")
		}
		r, err := url.Parse(reference)
		if err != nil {
			t.Skip("no reference")
		}
		got, err := parsed.Resolve(reference)
		want, wantErr := call.ParseTarget(b.ResolveReference(r).String())
		if err != nil || wantErr != nil {
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%q + %q: %v, net/url %v", base, reference, err, wantErr)
			}
			return
		}
		if got != want {
			t.Fatalf("%q + %q: %+v, net/url %+v", base, reference, got, want)
		}
	})
}

func FuzzResolve(f *testing.F) {
	for _, seed := range []string{"", "../x", "//b/c", "?q", "https://b.example.com/../x", "a:b", "#", "..", "/a/b/../../..", "%2e%2e/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, reference string) {
		base := target(t, "https://api.example.com/a/b?c")
		got, err := base.Resolve(reference)
		if err != nil {
			return
		}
		again, err := call.ParseTarget(got.Scheme + "://" + got.Authority + got.RequestTarget)
		if err != nil || again != got {
			t.Errorf("%q: %+v does not stand by itself: %v", reference, got, err)
		}
	})
}
