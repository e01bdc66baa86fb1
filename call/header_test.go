package call_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
)

func fields(namesAndValues ...string) []call.Header {
	var out []call.Header
	for i := 0; i < len(namesAndValues); i += 2 {
		out = append(out, call.Header{Name: namesAndValues[i], Value: namesAndValues[i+1]})
	}
	return out
}

// TestFieldsOfARequest is the request column of the hop-by-hop table.
func TestFieldsOfARequest(t *testing.T) {
	rows := []struct {
		fate  string
		names []string
	}{
		{"keep", []string{
			"Accept", "Authorization", "Cookie", "User-Agent", "Content-Type", "Content-Encoding", "Idempotency-Key", "If-Match", "Set-Cookie",
			"X-Stay", "x-a", "Prefer", "Retry-After", "Hosts", "Proxy", "X-Forwarded", "CF-Access-Client-Id", "X-HTTP-Methods", "TE2", "!#$%&'*+-.^_`|~",
		}},
		{"drop", []string{
			"Connection", "Proxy-Connection", "Keep-Alive", "TE", "Transfer-Encoding", "Trailer", "Upgrade", "HTTP2-Settings",
			"Proxy-Authorization", "Proxy-Authenticate", "Proxy-Anything", "Expect", "Via", "Forwarded",
			"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Anything", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP",
			"Content-Length", "Host", "traceparent", "tracestate", "baggage",
			"X-Envoy-Original-Path", "X-Original-URL", "X-Rewrite-URL", "X-Original-Host",
			"Metadata", "Metadata-Flavor", "X-Google-Metadata-Request", "X-aws-ec2-metadata-token", "X-aws-ec2-metadata-token-ttl-seconds",
		}},
		{"refuse", []string{
			"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override",
			"", ":authority", ":method", "X A", " X", "X ", "X-A:", "X-A\r\nX-B", "X\x00", "X\x7f", "Ä", "X(", "X,Y", strings.Repeat("x", 65),
		}},
	}
	for _, row := range rows {
		for _, name := range row.names {
			spellings := []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "_")}
			for _, spelling := range spellings {
				t.Run(row.fate+" "+spelling, func(t *testing.T) {
					in := fields("A", "1", spelling, "v", "B", "2")
					got, err := call.CleanHeaders(in)
					switch row.fate {
					case "keep":
						if err != nil || !slices.Equal(got, in) {
							t.Errorf("%v, %v", got, err)
						}
					case "drop":
						if err != nil || !slices.Equal(got, fields("A", "1", "B", "2")) {
							t.Errorf("%v, %v", got, err)
						}
					case "refuse":
						var invalid *call.InvalidError
						if !errors.As(err, &invalid) || invalid.Field != "request.headers[1].name" || got != nil {
							t.Errorf("%v, %v", got, err)
						}
					}
				})
			}
		}
	}
}

func TestConnectionTakesWithItWhatItNames(t *testing.T) {
	rows := []struct {
		name     string
		in, want []call.Header
	}{
		{"one, and an option", fields("Connection", "X-Foo, close", "X-Foo", "1", "X-Stay", "yes"), fields("X-Stay", "yes")},
		{"named after it stood", fields("X-Foo", "1", "X-Stay", "yes", "Connection", "X-Foo"), fields("X-Stay", "yes")},
		{"another spelling", fields("connection", "x_foo", "X-FOO", "1", "x-foo", "2", "X_Foo", "3"), nil},
		{"several fields, blanks and empty items", fields("Connection", " , A ,\t, ", "Connection", "b", "a", "1", "B", "2", "c", "3"), fields("c", "3")},
		{"only whole names", fields("Connection", "X-Fo", "X-Foo", "1"), fields("X-Foo", "1")},
		{"what is no token names nothing", fields("Connection", "X Foo;q=1", "X", "1", "Foo", "2"), fields("X", "1", "Foo", "2")},
		{"nothing named", fields("Connection", "keep-alive", "X", "1"), fields("X", "1")},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := call.CleanHeaders(row.in)
			if err != nil || !slices.Equal(got, row.want) {
				t.Errorf("%v, %v\nwant %v", got, err, row.want)
			}
		})
	}
}

func TestValuesAreTrimmedOrRefused(t *testing.T) {
	const refused = "\x00"
	rows := []struct{ name, value, want string }{
		{"plain", "a b", "a b"},
		{"empty", "", ""},
		{"blanks around", " \t a\tb \t", "a\tb"},
		{"only blanks", " \t ", ""},
		{"bytes above ASCII", "a\xff", "a\xff"},
		{"the longest", strings.Repeat("v", 8<<10), strings.Repeat("v", 8<<10)},
		{"the longest, with blanks", " " + strings.Repeat("v", 8<<10) + " ", strings.Repeat("v", 8<<10)},
		{"one byte more", strings.Repeat("v", 8<<10+1), refused},
		{"a field in the value", "a\r\nX-B: c", refused},
		{"a folded line", "a\r\n b", refused},
		{"LF", "a\nb", refused},
		{"CR at the end", "a\r", refused},
		{"NUL", "a\x00b", refused},
		{"DEL", "a\x7fb", refused},
		{"escape", "\x1b[2J", refused},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := call.CleanHeaders(fields("X-A", "1", "X-B", row.value))
			if row.want == refused {
				var invalid *call.InvalidError
				if !errors.As(err, &invalid) || invalid.Field != "request.headers[1].value" {
					t.Errorf("%q, %v", got, err)
				}
			} else if err != nil || !slices.Equal(got, fields("X-A", "1", "X-B", row.want)) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	// A field that is left out is checked as well: its bytes say who wrote it.
	if _, err := call.CleanHeaders(fields("Host", "a\r\nX: y")); err == nil {
		t.Error("a dropped field passed with a line break")
	}
}

func TestHeadersAreBounded(t *testing.T) {
	many := func(n int, name, value string) []call.Header {
		return slices.Repeat([]call.Header{{Name: name, Value: value}}, n)
	}
	rows := []struct {
		name  string
		in    []call.Header
		field string
	}{
		{"none", nil, ""},
		{"100 fields", many(100, "X", "1"), ""},
		{"101 fields", many(101, "X", "1"), "request.headers"},
		{"101 fields to drop", many(101, "Host", "1"), "request.headers"},
		{"a name of 64", many(1, strings.Repeat("x", 64), "1"), ""},
		{"32 KiB in all", many(32, "X-Name", strings.Repeat("v", 1<<10-6)), ""},
		{"32 KiB and a byte", append(many(32, "X-Name", strings.Repeat("v", 1<<10-6)), call.Header{Name: "X"}), "request.headers"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := call.CleanHeaders(row.in)
			var invalid *call.InvalidError
			switch {
			case row.field == "" && (err != nil || !slices.Equal(got, row.in)):
				t.Errorf("%d fields, %v", len(got), err)
			case row.field != "" && (!errors.As(err, &invalid) || invalid.Field != row.field):
				t.Errorf("%v, want one for %s", err, row.field)
			}
		})
	}
}

// TestRepeatedFieldsStayInOrder holds CleanHeaders to a plain filter.
func TestRepeatedFieldsStayInOrder(t *testing.T) {
	name := rapid.SampledFrom([]string{"X-A", "x-a", "X_A", "X-B", "Connection", "Host", "Accept", "Via"})
	value := rapid.SampledFrom([]string{"1", " 2", "", "X-A", "x-b,accept", "close"})
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) call.Header {
			return call.Header{Name: name.Draw(t, "name"), Value: value.Draw(t, "value")}
		}), 0, 20).Draw(t, "in")
		before := slices.Clone(in)

		fold := func(s string) string { return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "_", "-") }
		gone := map[string]bool{"connection": true, "host": true, "via": true}
		for _, h := range in {
			if fold(h.Name) == "connection" {
				for option := range strings.SplitSeq(h.Value, ",") {
					gone[fold(option)] = true
				}
			}
		}
		var want []call.Header
		for _, h := range in {
			if !gone[fold(h.Name)] {
				want = append(want, call.Header{Name: h.Name, Value: strings.TrimSpace(h.Value)})
			}
		}
		got, err := call.CleanHeaders(in)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v, %v\nwant %v", got, err, want)
		}
		if !slices.Equal(in, before) {
			t.Fatalf("the caller's slice was changed")
		}
	})
}

func TestUnchangedHeadersCostNothing(t *testing.T) {
	in := fields("Accept", "*/*", "Authorization", "Bearer x", "Content-Type", "application/json", "X-Request-Id", "7")
	if n := testing.AllocsPerRun(100, func() { _, _ = call.CleanHeaders(in) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	in = append(in, call.Header{Name: "Connection", Value: "keep-alive, Upgrade"}, call.Header{Name: "Host", Value: "h"})
	if n := testing.AllocsPerRun(100, func() { _, _ = call.CleanHeaders(in) }); n != 1 {
		t.Errorf("%v allocations beside the result's one", n-1)
	}
}

func FuzzCleanHeaders(f *testing.F) {
	f.Add("X-A", "1", "Connection", "X-A")
	f.Add("X_Http_Method", "DELETE", "Host", "a\r\nb")
	f.Add(":path", "/", "Transfer_Encoding", "chunked")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		out, err := call.CleanHeaders(fields(name1, value1, name2, value2))
		if err != nil {
			return
		}
		for _, h := range out {
			if !call.ValidToken(h.Name) || !call.ValidFieldValue(h.Value) || call.ReservedField(h.Name) {
				t.Fatalf("%q passed", h)
			}
			if strings.Trim(h.Value, " \t") != h.Value {
				t.Fatalf("%q kept its blanks", h)
			}
		}
		again, err := call.CleanHeaders(out)
		if err != nil || !slices.Equal(again, out) {
			t.Fatalf("%q becomes %q, %v", out, again, err)
		}
	})
}

func BenchmarkCleanHeaders(b *testing.B) {
	var in []call.Header
	for i := range 10 {
		in = append(in, call.Header{Name: fmt.Sprintf("X-Header-%d", i), Value: "some value of usual length"})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := call.CleanHeaders(in); err != nil {
			b.Fatal(err)
		}
	}
}
