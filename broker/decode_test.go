package broker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// hush stands wherever a row puts something that no error may repeat.
const hush = "hush-hush"

// fieldsOf gives the paths of the violations, in order, and checks that each says something and nothing secret.
func fieldsOf(t *testing.T, violations []*call.InvalidError) []string {
	t.Helper()
	fields := []string{}
	for _, v := range violations {
		if v.Problem == "" || strings.Contains(v.Error(), hush) {
			t.Errorf("bad violation: %q", v.Error())
		}
		fields = append(fields, v.Field)
	}
	return fields
}

func TestUnusableRequestsNameTheirFields(t *testing.T) {
	url := func(u string) func(*pb.CallRequest) { return func(r *pb.CallRequest) { r.Request.Url = u } }
	method := func(m string) func(*pb.CallRequest) { return func(r *pb.CallRequest) { r.Request.Method = m } }
	header := func(name, value string) func(*pb.CallRequest) {
		return func(r *pb.CallRequest) {
			r.Request.Headers = []*pb.HttpHeader{{Name: "Accept", Value: "*/*"}, {Name: name, Value: value}}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*pb.CallRequest)
		fields string
	}{
		{"no request at all", func(r *pb.CallRequest) { r.Request = nil }, "request.method request.url"},
		{"empty request", func(r *pb.CallRequest) { r.Request = &pb.HttpRequest{} }, "request.method request.url"},
		{"no method", method(""), "request.method"},
		{"method with a blank", method("GET " + hush), "request.method"},
		{"method with a line break", method("GET\r\n"), "request.method"},
		{"method outside ASCII", method("GÉT"), "request.method"},
		{"CONNECT", method("CONNECT"), "request.method"},
		{"a method of 65 bytes", method(strings.Repeat("M", 65)), "request.method"},
		{"TRACK", method("TRACK"), "request.method"},

		{"no URL", url(""), "request.url"},
		{"relative URL", url("/" + hush), "request.url"},
		{"no authority", url("http:///" + hush), "request.url"},
		{"another scheme", url("ftp://example.com/" + hush), "request.url"},
		{"scheme without slashes", url("http:" + hush), "request.url"},
		{"userinfo", url("http://ann:" + hush + "@example.com/"), "request.url"},
		{"user without a password", url("https://" + hush + "@example.com/"), "request.url"},
		{"fragment", url("http://example.com/#" + hush), "request.url"},
		{"dot segment", url("http://example.com/a/../" + hush), "request.url"},
		{"encoded dot segment", url("http://example.com/%2E%2e/" + hush), "request.url"},
		{"half encoded dot segment", url("http://example.com/.%2e"), "request.url"},
		{"dot segment between encoded slashes", url("http://example.com/a%2f..%5cb"), "request.url"},
		{"encoded NUL", url("http://example.com/%00"), "request.url"},
		{"encoded LF", url("http://example.com/%0A"), "request.url"},
		{"encoded CR", url("http://example.com/%0d"), "request.url"},
		{"raw line break", url("http://example.com/\r\nX: " + hush), "request.url"},
		{"raw NUL", url("http://example.com/\x00"), "request.url"},
		{"blank", url("http://example.com/a b"), "request.url"},
		{"blank in the query", url("http://example.com/?q=a b" + hush), "request.url"},
		{"backslash", url("http://example.com\\@" + hush), "request.url"},
		{"short address", url("http://127.1/"), "request.url"},
		{"decimal address", url("http://2130706433/"), "request.url"},
		{"hexadecimal address", url("http://0x7f000001/"), "request.url"},
		{"octal address", url("http://0177.0.0.1/"), "request.url"},
		{"escaped host", url("http://%6cocalhost/"), "request.url"},
		{"full-width host", url("http://127.0.0.１/"), "request.url"},
		{"IPv6 with a zone", url("http://[fe80::1%25eth0]/"), "request.url"},
		{"IPv6 without brackets", url("http://::1/"), "request.url"},
		{"port zero", url("http://example.com:0/"), "request.url"},
		{"port too high", url("http://example.com:65536/"), "request.url"},
		{"port with a leading zero", url("http://example.com:080/"), "request.url"},

		{"field name with a blank", header("X Y", ""), "request.headers[1].name"},
		{"no field name", header("", hush), "request.headers[1].name"},
		{"pseudo-header", header(":authority", "example.com"), "request.headers[1].name"},
		{"method override", header("X-HTTP-Method-Override", "DELETE"), "request.headers[1].name"},
		{"method override in CGI spelling", header("x_http_method", "DELETE"), "request.headers[1].name"},
		{"line break in a value", header("Authorization", hush+"\r\nX: y"), "request.headers[1].value"},
		{"NUL in a value", header("X-A", hush+"\x00"), "request.headers[1].value"},
		{"control byte in a field that is dropped", header("Host", "a\nb"), "request.headers[1].value"},
		{"control byte in raw_value", func(r *pb.CallRequest) {
			r.Request.Headers = []*pb.HttpHeader{{Name: "X-A", RawValue: []byte("\xff\x00")}}
		}, "request.headers[0].value"},
		{"value and raw_value", func(r *pb.CallRequest) {
			r.Request.Headers = []*pb.HttpHeader{{Name: "X-A", Value: hush, RawValue: []byte(hush)}}
		}, "request.headers[0].raw_value"},
		{"too many fields", func(r *pb.CallRequest) {
			r.Request.Headers = slices.Repeat([]*pb.HttpHeader{{Name: "X-A"}}, 101)
		}, "request.headers"},

		{"TRACE with a body", func(r *pb.CallRequest) { r.Request.Method, r.Request.Body = "TRACE", []byte(hush) }, "request.body"},
		{"operation id with a blank", func(r *pb.CallRequest) { r.OperationId = "a b" }, "operation_id"},
		{"operation id outside ASCII", func(r *pb.CallRequest) { r.OperationId = "é" }, "operation_id"},
		{"operation id of 256 characters", func(r *pb.CallRequest) { r.OperationId = strings.Repeat("x", 256) }, "operation_id"},
		{"negative attempt_timeout", func(r *pb.CallRequest) { r.AttemptTimeout = durationpb.New(-1) }, "attempt_timeout"},
		{"attempt_timeout beyond range", func(r *pb.CallRequest) {
			r.AttemptTimeout = &durationpb.Duration{Seconds: math.MaxInt64}
		}, "attempt_timeout"},
		{"negative reserve", func(r *pb.CallRequest) { r.Reserve = durationpb.New(-time.Hour) }, "reserve"},
		{"reserve of two signs", func(r *pb.CallRequest) { r.Reserve = &durationpb.Duration{Seconds: 1, Nanos: -1} }, "reserve"},
		{"reserve with too many nanos", func(r *pb.CallRequest) { r.Reserve = &durationpb.Duration{Nanos: 1e9} }, "reserve"},
		{"unknown repeat_safety", func(r *pb.CallRequest) { r.RepeatSafety = 3 }, "repeat_safety"},
		{"unknown criticality", func(r *pb.CallRequest) { r.Criticality = -1 }, "criticality"},
		{"unknown report", func(r *pb.CallRequest) { r.Report = 99 }, "report"},
		{"17 labels", func(r *pb.CallRequest) { r.Labels = labels(17) }, "labels"},
		{"a label without a name", func(r *pb.CallRequest) { r.Labels = map[string]string{"": "x"} }, "labels"},
		{"a long label name", func(r *pb.CallRequest) { r.Labels = map[string]string{strings.Repeat("x", 129): "x"} }, "labels"},
		{"a long label value", func(r *pb.CallRequest) { r.Labels = map[string]string{"x": strings.Repeat("x", 1025)} }, "labels"},
		{"invalid expire_time", func(r *pb.CallRequest) { r.ExpireTime = &timestamppb.Timestamp{Nanos: -1} }, "expire_time"},
		{"deferral without id and end", func(r *pb.CallRequest) { r.AllowDeferral = true }, "operation_id expire_time"},
		{"deferral without an id", func(r *pb.CallRequest) {
			r.AllowDeferral, r.ExpireTime = true, timestamppb.New(time.Now().Add(time.Hour))
		}, "operation_id"},
		{"deferral that is over", func(r *pb.CallRequest) {
			r.AllowDeferral, r.OperationId, r.ExpireTime = true, "id", timestamppb.New(time.Unix(1, 0))
		}, "expire_time"},
		{"deferral without an end", func(r *pb.CallRequest) { r.AllowDeferral, r.OperationId = true, "id" }, "expire_time"},
		{"everything at once", func(r *pb.CallRequest) {
			r.Request = &pb.HttpRequest{Method: "A B", Url: "//" + hush, Headers: []*pb.HttpHeader{{Name: "\n"}}}
			r.OperationId, r.Criticality, r.Reserve = "\t", 7, durationpb.New(-1)
		}, "request.method request.url request.headers[0].name operation_id criticality reserve"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := get("http://example.com/")
			tt.change(req)
			_, violations := decode(t.Context(), req, "ann", time.Now())
			if got := strings.Join(fieldsOf(t, violations), " "); got != tt.fields {
				t.Errorf("violations of %q, want %q", got, tt.fields)
			}
		})
	}
}

func labels(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint("label", i)] = ""
	}
	return m
}

func TestEdgesOfWhatIsTaken(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*pb.CallRequest)
	}{
		{"the least there is", func(*pb.CallRequest) {}},
		{"operation id of one character", func(r *pb.CallRequest) { r.OperationId = "!" }},
		{"operation id of 255 characters", func(r *pb.CallRequest) { r.OperationId = strings.Repeat("~", 255) }},
		{"16 labels", func(r *pb.CallRequest) { r.Labels = labels(16) }},
		{"a method of 64 bytes", func(r *pb.CallRequest) { r.Request.Method = strings.Repeat("M", 64) }},
		{"the longest label", func(r *pb.CallRequest) {
			r.Labels = map[string]string{strings.Repeat("x", 128): strings.Repeat("x", 1024)}
		}},
		{"scheme in capitals", func(r *pb.CallRequest) { r.Request.Url = "HTTPS://example.com" }},
		{"bracketed IPv6", func(r *pb.CallRequest) { r.Request.Url = "http://[::1]:8080/" }},
		{"dots in the query", func(r *pb.CallRequest) { r.Request.Url = "http://example.com/?p=/../x" }},
		{"method nobody lists", func(r *pb.CallRequest) { r.Request.Method = "get" }},
		{"TRACE without a body", func(r *pb.CallRequest) { r.Request.Method = "TRACE" }},
		{"zero durations", func(r *pb.CallRequest) { r.Reserve, r.AttemptTimeout = durationpb.New(0), durationpb.New(0) }},
		{"last enum values", func(r *pb.CallRequest) {
			r.RepeatSafety, r.Criticality, r.Report = pb.RepeatSafety_REPEAT_SAFETY_IDEMPOTENT, pb.Criticality_CRITICALITY_SHEDDABLE, pb.Report_REPORT_BRIEF
		}},
		{"deferral with all it needs", func(r *pb.CallRequest) {
			r.AllowDeferral, r.OperationId, r.ExpireTime = true, "id", timestamppb.New(time.Now().Add(time.Hour))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := get("http://example.com/")
			tt.change(req)
			if _, violations := decode(t.Context(), req, "ann", time.Now()); len(violations) > 0 {
				t.Errorf("refused: %v", violations)
			}
		})
	}
}
