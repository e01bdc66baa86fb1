package operation_test

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

func asked(t testing.TB, method, url string, body string, headers ...string) *call.Call {
	t.Helper()
	target, err := call.ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	c := &call.Call{Method: method, Target: target, Body: []byte(body)}
	for i := 0; i < len(headers); i += 2 {
		c.Headers = append(c.Headers, call.Header{Name: headers[i], Value: headers[i+1]})
	}
	return c
}

// A ledger outlives the program that wrote it: these never change.
func TestFingerprintsAreTheSameInEveryVersion(t *testing.T) {
	for _, tt := range []struct {
		name string
		call *call.Call
		want string
	}{
		{"the least", asked(t, "GET", "http://example.com", ""), "85e497e7ff972f8b072bc335006509c5ef62026e339b7f587a03c74910d3af22"},
		{"a payment", asked(t, "POST", "https://pay.example.com:8443/charges?to=42", `{"amount":1}`, "Content-Type", "application/json", "X-Tenant", "a", "x_tenant", "b"), "7e54be7a24e7e411b0dce77180333eb12a11476dff3915abb6cd99b949027d10"},
		{"bytes", asked(t, "post", "http://192.0.2.1/%7e", "\x00\xff", "X-Raw", "\xff\xfe"), "427a6571216578b4a3a7ae2e6984bb2f4d557524570794b854b3478bbc32f81a"},
	} {
		sum := operation.FingerprintOf(tt.call, "")
		if got := hex.EncodeToString(sum[:]); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestWhatAFingerprintCounts(t *testing.T) {
	const url = "http://example.com/a?b=c"
	base := asked(t, "POST", url, "body", "Accept", "a", "Accept", "b", "X-Other", "o")
	for _, tt := range []struct {
		name string
		call *call.Call
		key  string
		same bool
	}{
		{"method", asked(t, "PUT", url, "body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", false},
		{"method in another case", asked(t, "post", url, "body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", false},
		{"scheme", asked(t, "POST", "https://example.com/a?b=c", "body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", false},
		{"host", asked(t, "POST", "http://www.example.com/a?b=c", "body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", false},
		{"host in another case", asked(t, "POST", "http://EXAMPLE.com/a?b=c", "body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", true},
		{"the default port written", asked(t, "POST", "http://example.com:80/a?b=c", "body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", true},
		{"port", asked(t, "POST", "http://example.com:81/a?b=c", "body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", false},
		{"query", asked(t, "POST", "http://example.com/a?b=d", "body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", false},
		{"path", asked(t, "POST", "http://example.com/A?b=c", "body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", false},
		{"body", asked(t, "POST", url, "Body", "Accept", "a", "Accept", "b", "X-Other", "o"), "", false},
		{"no body", asked(t, "POST", url, "", "Accept", "a", "Accept", "b", "X-Other", "o"), "", false},
		{"a value", asked(t, "POST", url, "body", "Accept", "a", "Accept", "b", "X-Other", "O"), "", false},
		{"a field less", asked(t, "POST", url, "body", "Accept", "a", "Accept", "b"), "", false},
		{"a field more", asked(t, "POST", url, "body", "Accept", "a", "Accept", "b", "X-Other", "o", "X-More", ""), "", false},
		{"values of one name in another order", asked(t, "POST", url, "body", "Accept", "b", "Accept", "a", "X-Other", "o"), "", false},
		{"two values as one", asked(t, "POST", url, "body", "Accept", "a, b", "X-Other", "o"), "", false},
		{"names in another order", asked(t, "POST", url, "body", "X-Other", "o", "Accept", "a", "Accept", "b"), "", true},
		{"names in another case", asked(t, "POST", url, "body", "ACCEPT", "a", "accept", "b", "x_other", "o"), "", true},
		{"trace context", asked(t, "POST", url, "body", "Accept", "a", "Accept", "b", "X-Other", "o", "Traceparent", "1", "TraceState", "2", "baggage", "3", "B3", "4", "X-B3-TraceId", "5", "x-datadog-parent-id", "6", "X-Amzn-Trace-Id", "7", "X-Cloud-Trace-Context", "8", "sentry_trace", "9", "uber-trace-id", "10", "Grpc-Trace-Bin", "11"), "", true},
		{"date and credentials", asked(t, "POST", url, "body", "Date", "1", "Accept", "a", "AUTHORIZATION", "2", "Accept", "b", "X-Other", "o", "Cookie", "3", "Cookie2", "4"), "", true},
		{"the field of the key", asked(t, "POST", url, "body", "Accept", "a", "Accept", "b", "X-Other", "o", "idempotency_key", "k"), "Idempotency-Key", true},
		{"that field without a contract", asked(t, "POST", url, "body", "Accept", "a", "Accept", "b", "X-Other", "o", "Idempotency-Key", "k"), "", false},
		{"another key", asked(t, "POST", url, "body", "Accept", "a", "Accept", "b", "X-Other", "o", "Idempotency-Key", "k"), "X-Key", false},
	} {
		if got := operation.FingerprintOf(tt.call, tt.key) == operation.FingerprintOf(base, tt.key); got != tt.same {
			t.Errorf("%s: the same is %v", tt.name, got)
		}
	}
	mixed, apart := asked(t, "POST", url, ""), asked(t, "POST", url, "")
	for i := range 50 { // more than are sorted by inserting
		mixed.Headers = append(mixed.Headers, call.Header{Name: "B", Value: strconv.Itoa(i)}, call.Header{Name: "A", Value: strconv.Itoa(i)})
		apart.Headers = append(apart.Headers, call.Header{Name: "A", Value: strconv.Itoa(i)})
	}
	for i := range 50 {
		apart.Headers = append(apart.Headers, call.Header{Name: "B", Value: strconv.Itoa(i)})
	}
	if operation.FingerprintOf(mixed, "") != operation.FingerprintOf(apart, "") {
		t.Error("how the fields of two names stand among each other counts")
	}
	before := *base
	base.Caller, base.Criticality, base.Reserve, base.SingleUseBody, base.Labels = "bob", call.CriticalityCritical, 1, true, map[string]string{"a": "b"}
	if operation.FingerprintOf(base, "") != operation.FingerprintOf(&before, "") {
		t.Error("how it is asked for counts")
	}
	if !reflect.DeepEqual(base.Headers, asked(t, "POST", url, "body", "Accept", "a", "Accept", "b", "X-Other", "o").Headers) {
		t.Errorf("the call was changed: %v", base.Headers)
	}
}

// Two calls differ in their fingerprints unless they differ in nothing, however the bytes of one part would go on in the next.
func TestPartsOfAFingerprintDoNotRunTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.SampledFrom([]string{"", "a", "b", "aa", "ab", "\x00", "\x00\x00\x00\x00\x00\x00\x00\x01", "a\x00\x00\x00\x00\x00\x00\x00\x01b"})
		draw := rapid.Custom(func(t *rapid.T) *call.Call {
			c := &call.Call{Method: few.Draw(t, "method"), Body: []byte(few.Draw(t, "body"))}
			c.Target.Origin, c.Target.RequestTarget = few.Draw(t, "origin"), few.Draw(t, "target")
			for range rapid.IntRange(0, 3).Draw(t, "fields") {
				c.Headers = append(c.Headers, call.Header{Name: "x" + few.Draw(t, "name"), Value: few.Draw(t, "value")})
			}
			return c
		})
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		same := a.Method == b.Method && a.Target == b.Target && bytes.Equal(a.Body, b.Body) && reflect.DeepEqual(byName(a), byName(b))
		if got := operation.FingerprintOf(a, "") == operation.FingerprintOf(b, ""); got != same {
			t.Fatalf("the same is %v of\n%+v\n%+v", got, a, b)
		}
	})
}

func byName(c *call.Call) map[string][]string {
	all := map[string][]string{}
	for _, h := range c.Headers {
		all[h.Name] = append(all[h.Name], h.Value)
	}
	return all
}
