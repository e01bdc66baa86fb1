package broker

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// FuzzCall: whatever bytes come as a request, they are refused with a field, or make a call that may be sent.
func FuzzCall(f *testing.F) {
	for _, req := range []*pb.CallRequest{
		{},
		get("http://example.com/"),
		post("https://[::1]:8443/v1%2fx?q=%zz", "op"),
		{
			Request: &pb.HttpRequest{Method: "TRACE", Url: "HTTP://user@127.1", Headers: []*pb.HttpHeader{
				{Name: "Connection", Value: "Idempotency-Key, close"}, {Name: "Idempotency_Key", RawValue: []byte("\xff")}, {},
			}},
			Reserve: &durationpb.Duration{Seconds: -1, Nanos: 1}, Criticality: 9, Labels: map[string]string{"": ""}, AllowDeferral: true,
		},
	} {
		raw, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	scoped := policy.Rule{Name: "policies/scoped", Match: policy.Match{PathPrefix: "/v1"}}
	scoped.Body.MaxRequestBytes = new(uint64(64))
	table := compile(f, contract(), scoped)
	f.Fuzz(func(t *testing.T, raw []byte) {
		req := &pb.CallRequest{}
		if proto.Unmarshal(raw, req) != nil {
			return
		}
		c, violations := decode(t.Context(), req, "ann", time.Now())
		if len(violations) == 0 {
			_, violations = fit(c, req.GetRequest().GetHeaders(), table.Match(c), table)
		}
		if len(violations) == 0 {
			checkSendable(t, c)
			return
		}
		for _, v := range violations {
			if v.Field == "" || v.Problem == "" {
				t.Errorf("a violation that says nothing: %+v", v)
			}
		}
	})
}

func checkSendable(t *testing.T, c *call.Call) {
	t.Helper()
	if !call.ValidToken(c.Method) || c.Method == "CONNECT" || c.Method == "TRACE" && len(c.Body) > 0 {
		t.Errorf("method %q", c.Method)
	}
	// What goes onto the wire means what was checked.
	again, err := call.ParseTarget(c.Target.Scheme + "://" + c.Target.Authority + c.Target.RequestTarget)
	if err != nil || again != c.Target {
		t.Errorf("target %+v is read again as %+v: %v", c.Target, again, err)
	}
	for _, h := range c.Headers {
		if !call.ValidToken(h.Name) || !call.ValidFieldValue(h.Value) || call.ReservedField(h.Name) || strings.HasPrefix(strings.ToLower(h.Name), "proxy-") {
			t.Errorf("header %q: %q", h.Name, h.Value)
		}
	}
	if c.OperationID != "" && !validOperationID(c.OperationID) || c.OperationID == "" && c.Method == "POST" {
		t.Errorf("operation id %q", c.OperationID)
	}
	if c.Reserve < 0 || c.AttemptTimeout < 0 || len(c.Labels) > maxLabels || len(c.Body) > 3<<20 {
		t.Errorf("beyond a limit: %+v", c)
	}
}

// FuzzTokens: whatever the bytes, there are identities that may be told apart or an error of the file's name, and no panic.
func FuzzTokens(f *testing.F) {
	entry := "- {identity: ops, sha256: " + hashOf("one") + ", roles: [caller, viewer]}\n"
	f.Add([]byte("tokens:\n" + entry))
	f.Add([]byte("tokens:\n" + entry + entry))
	f.Add([]byte("tokens: []\n---\ntokens: []"))
	f.Add([]byte("tokens: [{identity: 'a b', sha256: 00, roles: [root]}, null, 1]"))
	f.Add([]byte("a: &a [*a]\ntokens: *a"))
	f.Add([]byte("tokens:\n- &t {identity: x, sha256: !!binary aGk=, roles: [operator]}\n- <<: *t\n"))
	f.Add([]byte("tokens:\n- {identity: 'uid:0', roles: [operator]}\n- {identity: 'spiffe://td/a', roles: [viewer]}\n- {identity: a.b, roles: [caller]}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		ids, err := parseTokens("the file", content, Proofs{Certificates: true, Users: true})
		if err != nil {
			if ids != nil || !strings.HasPrefix(err.Error(), "tokens: the file: ") {
				t.Fatalf("%v beside %q", ids, err)
			}
			return
		}
		if len(ids.tokens)+len(ids.names) == 0 {
			t.Fatal("nobody could call")
		}
		all := slices.Collect(maps.Values(ids.tokens))
		for name, id := range ids.names {
			if name != id.name || checkSPIFFE(name) != nil && checkDNS(name) != nil && !regexp.MustCompile(`^uid:(0|[1-9]\d{0,9})$`).MatchString(name) {
				t.Fatalf("%q is proved by no connection", name)
			}
			all = append(all, id)
		}
		for _, id := range all {
			if !validOperationID(id.name) || len(id.roles) == 0 {
				t.Fatalf("identity %+v", id)
			}
			for _, r := range id.roles {
				if r != RoleCaller && r != RoleViewer && r != RoleOperator {
					t.Fatalf("role %q of %s", r, id.name)
				}
			}
		}
	})
}
