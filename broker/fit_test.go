package broker

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// fitted decodes a request and fits it to the table.
func fitted(t *testing.T, table *policy.Table, req *pb.CallRequest) (*call.Call, []string) {
	t.Helper()
	c, violations := decode(t.Context(), req, "ann", time.Now())
	if len(violations) > 0 {
		t.Fatalf("decode: %v", violations)
	}
	_, violations = fit(c, req.GetRequest().GetHeaders(), table.Match(c), table)
	return c, fieldsOf(t, violations)
}

func TestBodyLimitIsExact(t *testing.T) {
	rule := policy.Rule{Name: "policies/small", Revision: 1}
	rule.Body.MaxRequestBytes = new(uint64(10))
	table := compile(t, rule)
	for size, want := range map[int]string{0: "", 10: "", 11: "request.body"} {
		req := post("http://example.com/", "")
		req.Request.Body = make([]byte, size)
		if _, fields := fitted(t, table, req); strings.Join(fields, " ") != want {
			t.Errorf("%d bytes: violations of %q, want %q", size, fields, want)
		}
	}
}

func TestEncodedSlashIsRefusedOnlyWherePathsAreRuled(t *testing.T) {
	table := compile(
		t,
		policy.Rule{Name: "policies/scoped", Match: policy.Match{Hosts: []string{"scoped.example.com"}, PathPrefix: "/v1", Methods: []string{"PUT"}}},
		policy.Rule{Name: "policies/whole", Match: policy.Match{Hosts: []string{"whole.example.com"}}},
	)
	for _, tt := range []struct{ url, want string }{
		{"http://whole.example.com/v1%2fx", ""},
		{"http://scoped.example.com/v1/x?q=%2f", ""},
		{"http://scoped.example.com/v1%2fx", "request.url"},
		{"http://scoped.example.com//v1/x", "request.url"},
		{"http://scoped.example.com/v1;a/x", "request.url"},
		{"http://whole.example.com//v1;a/x", ""},
		{"http://scoped.example.com/v2%5Cx", "request.url"},
		{"http://SCOPED.example.com./v1%2Fx", "request.url"},
	} {
		if _, fields := fitted(t, table, get(tt.url)); strings.Join(fields, " ") != tt.want {
			t.Errorf("%s: violations of %q, want %q", tt.url, fields, tt.want)
		}
	}
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestOperationUnderAContractHasOneID(t *testing.T) {
	key := func(values ...string) (list []*pb.HttpHeader) {
		for _, v := range values {
			list = append(list, &pb.HttpHeader{Name: "idempotency-KEY", Value: v})
		}
		return list
	}
	for _, tt := range []struct {
		name    string
		method  string
		id      string
		headers []*pb.HttpHeader
		want    string // "UUID": any
		fields  string
	}{
		{"operation_id", "POST", "op", nil, "op", ""},
		{"the header", "POST", "", key("op"), "op", ""},
		{"the header with blanks around", "PATCH", "", key(" op\t"), "op", ""},
		{"both alike", "POST", "op", key("op"), "op", ""},
		{"neither", "POST", "", nil, "UUID", ""},
		{"the header, spelled with _", "POST", "", []*pb.HttpHeader{{Name: "idempotency_key", Value: "op"}}, "op", ""},
		{"the header, given as bytes", "POST", "", []*pb.HttpHeader{{Name: "Idempotency-Key", RawValue: []byte("op")}}, "op", ""},
		{"the header, nominated in Connection", "POST", "", append(key("op"), &pb.HttpHeader{Name: "Connection", Value: "Idempotency-Key"}), "op", ""},
		{"two alike", "POST", "", key("op", "op"), "op", ""},
		{"another method", "GET", "", key("op"), "", ""},
		{"both, different", "POST", "op", key("other"), "op", "request.headers[0].value"},
		{"two different", "POST", "", key("op", "other"), "op", "request.headers[1].value"},
		{"case differs", "POST", "op", key("OP"), "op", "request.headers[0].value"},
		{"an empty header", "POST", "", key(""), "UUID", "request.headers[0].value"},
		{"a header of 256 characters", "POST", "op", key(strings.Repeat("x", 256)), "op", "request.headers[0].value"},
		{"a header that is no id", "POST", "op", key("a b"), "op", "request.headers[0].value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := post("http://example.com/", tt.id)
			req.Request.Method, req.Request.Headers = tt.method, tt.headers
			c, fields := fitted(t, compile(t, contract()), req)
			if got := strings.Join(fields, " "); got != tt.fields {
				t.Errorf("violations of %q, want %q", got, tt.fields)
			}
			if c.OperationID != tt.want && (tt.want != "UUID" || !uuidForm.MatchString(c.OperationID)) {
				t.Errorf("id %q, want %q", c.OperationID, tt.want)
			}
		})
	}
}

func TestKeyWithoutAContractIsAnOrdinaryField(t *testing.T) {
	req := post("http://example.com/", "")
	req.Request.Headers = []*pb.HttpHeader{{Name: "Idempotency-Key", Value: "any thing"}}
	c, fields := fitted(t, compile(t), req)
	if c.OperationID != "" || len(fields) > 0 || len(c.Headers) != 1 {
		t.Errorf("id %q, violations of %q, headers %v", c.OperationID, fields, c.Headers)
	}
}

func TestGeneratedIDsDiffer(t *testing.T) {
	table, seen := compile(t, contract()), map[string]bool{}
	for range 100 {
		c, _ := fitted(t, table, post("http://example.com/", ""))
		seen[c.OperationID] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d ids for 100 calls", len(seen))
	}
}
