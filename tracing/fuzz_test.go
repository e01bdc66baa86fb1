package tracing

import (
	"regexp"
	"strings"
	"testing"
)

// wellFormed is a traceparent of version 00 (Trace Context §3.2.2), later those whose ids are not zero.
var wellFormed = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$`)

// FuzzTraceparent: whatever a caller sends, the call has a trace, it is the caller's exactly where that is valid, and what goes
// upstream is a valid traceparent of ours.
func FuzzTraceparent(f *testing.F) {
	for _, s := range []string{
		"00-" + theTrace + "-" + theSpan + "-01", "00-" + theTrace + "-" + theSpan + "-ff", "01-" + theTrace + "-" + theSpan + "-01-more",
		"ff-" + theTrace + "-" + theSpan + "-01", "00-" + strings.Repeat("0", 32) + "-" + theSpan + "-01", "00-" + theTrace + "-" + theSpan + "-01 ", "", "00-",
	} {
		f.Add(s, "vendor=x,other=\x00")
	}
	f.Add("00-"+theTrace+"-"+theSpan+"-01", strings.Repeat("a=b,", 40))
	f.Fuzz(func(t *testing.T, traceparent, tracestate string) {
		id, a := traced(t, traceparent, tracestate)
		out := parts.FindStringSubmatch(a.TraceParent)
		if len(out) == 0 || out[1] != id || out[2] != a.SpanID || strings.Trim(id, "0") == "" || strings.Trim(a.SpanID, "0") == "" {
			t.Fatalf("%q goes upstream for trace %q, span %q", a.TraceParent, id, a.SpanID)
		}
		in := wellFormed.FindStringSubmatch(traceparent)
		valid := len(in) > 0 && strings.Trim(in[1], "0") != "" && strings.Trim(in[2], "0") != ""
		switch {
		case valid && in[3] <= "02" && id != in[1]:
			t.Fatalf("%q was not joined", traceparent)
		// A version to come may say more (§3.2.4), and the OpenTelemetry library takes flags nobody has defined for an error.
		case !valid && strings.HasPrefix(traceparent, "00") && strings.Contains(traceparent, id):
			t.Fatalf("%q was joined", traceparent)
		case valid && out[2] == in[2]:
			t.Fatalf("the caller's span %q goes upstream as ours", in[2])
		}
	})
}
