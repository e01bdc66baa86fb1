package call_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/call"
)

// TestFieldsOfAnAnswer is the response column of the hop-by-hop table.
func TestFieldsOfAnAnswer(t *testing.T) {
	var hop call.HopByHop
	hop.Nominate("X-Foo, close")
	hop.Nominate("x-bar")
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "TE", "Transfer-Encoding", "Trailer", "Upgrade", "HTTP2-Settings", "X-Foo", "X-Bar",
	} {
		for _, spelling := range []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "_")} {
			if !hop.Drops(spelling) {
				t.Errorf("%s is kept", spelling)
			}
		}
	}
	for _, name := range []string{
		"Expect", "Via", "Forwarded", "X-Forwarded-For", "X-HTTP-Method-Override", "Content-Length", "Content-Encoding", "traceparent", "tracestate",
		"baggage", "Set-Cookie", "Proxy-Authenticate", "Close", "X-Foo2", "X-Fo", "", strings.Repeat("x", 1000), "Connection" + strings.Repeat("x", 100),
	} {
		if hop.Drops(name) {
			t.Errorf("%s is dropped", name)
		}
	}
}

func TestUsualConnectionFieldsCostNothing(t *testing.T) {
	n := testing.AllocsPerRun(100, func() {
		var hop call.HopByHop
		hop.Nominate("close")
		hop.Nominate("Keep-Alive, Upgrade")
		if !hop.Drops("connection") || hop.Drops("Content-Type") {
			t.Error("wrong answer")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestEndlessNominationsAreBounded(t *testing.T) {
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("x-%d", i))
	}
	var hop call.HopByHop
	hop.Nominate(strings.Repeat("a,", 1000) + strings.Join(names, ","))
	if !hop.Drops("A") || !hop.Drops("x-254") {
		t.Error("an early one is forgotten")
	}
	if hop.Drops("x-255") {
		t.Error("more than 256 names are remembered")
	}
}

func TestReservedFieldsAreNobodys(t *testing.T) {
	for _, name := range []string{
		"Host", "Content-Length", "Transfer-Encoding", "TE", "Trailer", "Connection", "Keep-Alive", "Upgrade", "Proxy-Connection", "HTTP2-Settings",
		"Expect", "traceparent", "tracestate", "baggage", "X-HTTP-Method-Override", "X_HTTP_Method", "content_length", "HOST", ":authority", ":",
		"Via", "Proxy-Authorization", "proxy_x",
	} {
		if !call.ReservedField(name) {
			t.Errorf("%s may be set", name)
		}
	}
	for _, name := range []string{"Authorization", "User-Agent", "X-Api-Key", "Forwarded", "Idempotency-Key", "", strings.Repeat("h", 100)} {
		if call.ReservedField(name) {
			t.Errorf("%s may not be set", name)
		}
	}
}

// TestTokensAreThoseOfTheRFC goes through every byte.
func TestTokensAreThoseOfTheRFC(t *testing.T) {
	const tchar = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for i := range 256 {
		c := string([]byte{byte(i)})
		if got, want := call.ValidToken("a"+c), strings.Contains(tchar, c); got != want {
			t.Errorf("token with %#x: %v", i, got)
		}
		if got, want := call.ValidFieldValue("a"+c), i == '\t' || i >= ' ' && i != 0x7f; got != want {
			t.Errorf("value with %#x: %v", i, got)
		}
	}
	if call.ValidToken("") || !call.ValidFieldValue("") {
		t.Error("an empty token is none, an empty value is one")
	}
}
