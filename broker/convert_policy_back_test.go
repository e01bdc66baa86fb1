package broker

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/admin"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// What is written is what is shown, field by field and all together, by way of the rule and by way of the document.
func TestPolicyComesBackAsItWasWritten(t *testing.T) {
	check := func(p *pb.Policy) {
		t.Helper()
		r := policyRule(p)
		if back := policyRule(ruleMessage(&r)); !reflect.DeepEqual(r, back) {
			t.Errorf("%v\nbecame %+v", p, back)
		}
		d, err := draft(p)
		if err != nil {
			t.Fatal(err)
		}
		rule, err := ParsePolicyDocument(d.Document)
		if err != nil || !reflect.DeepEqual(rule, d.Rule) {
			t.Errorf("%s: %v\n%+v", d.Document, err, rule)
		}
		p.ReadOnly = false
		if shown := policyMessage(&admin.Policy{Rule: d.Rule, Document: d.Document}); !proto.Equal(shown, p) {
			t.Errorf("%v is shown as %v", p, shown)
		}
	}
	whole := &pb.Policy{}
	fill(whole.ProtoReflect())
	whole.Etag, whole.Revision, whole.CreateTime, whole.UpdateTime, whole.ReadOnly = "", 0, nil, nil, true // the broker's
	check(whole)
	for fd, v := range whole.ProtoReflect().Range {
		one := &pb.Policy{}
		one.ProtoReflect().Set(fd, v)
		one.Name = "policies/a"
		check(one)
	}
	builtin := policy.Builtin()
	if back := policyRule(ruleMessage(&builtin)); !reflect.DeepEqual(back, builtin) {
		t.Errorf("the built-in policy became %+v", back)
	}
}
