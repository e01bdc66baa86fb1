package broker

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/backoff"
	sallyportv1 "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// notSettings are the fields of a policy that are no leaves.
func notSettings() []string {
	return []string{"name", "description", "priority", "mode", "match", "etag", "revision", "create_time", "update_time", "read_only"}
}

// protoLeaves lists the settings fields of a message by path; the members of a oneof stand together.
func protoLeaves(m protoreflect.MessageDescriptor, path string) []string {
	var all []string
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		name := string(fd.Name())
		if path == "" && slices.Contains(notSettings(), name) {
			continue
		}
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if o.Fields().Get(0) == fd {
				all = append(all, join(path, strings.ReplaceAll(oneOf(fd), " and ", "|")))
			}
			continue
		}
		if fd.Message() != nil && !fd.IsList() && !fd.IsMap() && fd.Message().FullName() != "google.protobuf.Duration" {
			all = append(all, protoLeaves(fd.Message(), join(path, name))...)
			continue
		}
		all = append(all, join(path, name))
	}
	return all
}

func TestEverySettingOfTheProtoIsALeafAndEveryLeafASetting(t *testing.T) {
	onWire := protoLeaves((&sallyportv1.Policy{}).ProtoReflect().Descriptor(), "")
	leaves := policy.LeafPaths()
	slices.Sort(onWire)
	slices.Sort(leaves)
	for _, path := range onWire {
		if !slices.Contains(leaves, path) {
			t.Errorf("%s of the proto is no leaf", path)
		}
	}
	for _, path := range leaves {
		if !slices.Contains(onWire, path) {
			t.Errorf("the leaf %s is not in the proto", path)
		}
	}
}

// TestSparseStructsHaveTheProtosFields covers what lies below a leaf: the match, a credential, the members of a oneof.
func TestSparseStructsHaveTheProtosFields(t *testing.T) {
	for _, pair := range []struct {
		message proto.Message
		sparse  reflect.Type
	}{
		{&sallyportv1.Match{}, reflect.TypeFor[policy.Match]()},
		{&sallyportv1.Credential{}, reflect.TypeFor[policy.Credential]()},
		{&sallyportv1.WindowBudget{}, reflect.TypeFor[policy.BudgetWindowRule]()},
		{&sallyportv1.TokenBucketBudget{}, reflect.TypeFor[policy.TokenBucketRule]()},
	} {
		var tags []string
		for f := range pair.sparse.Fields() {
			tags = append(tags, f.Tag.Get("leaf"))
		}
		fields := protoLeaves(pair.message.ProtoReflect().Descriptor(), "x")
		for i := range fields {
			fields[i] = strings.TrimPrefix(fields[i], "x.")
		}
		slices.Sort(tags)
		slices.Sort(fields)
		if !slices.Equal(tags, fields) {
			t.Errorf("%v has %v, the proto %v", pair.sparse, tags, fields)
		}
	}
}

// fill sets every field of a message to something that is not absent.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsMap():
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("X-Seven").MapKey(), protoreflect.ValueOfString("7"))
		case fd.IsList():
			v := m.Mutable(fd).List()
			element := v.NewElement()
			if fd.Message() != nil {
				fill(element.Message())
			} else {
				element = seven(fd)
			}
			v.Append(element)
		case fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Duration":
			m.Set(fd, protoreflect.ValueOfMessage(durationpb.New(7*time.Second).ProtoReflect()))
		case fd.Message() != nil:
			fill(m.Mutable(fd).Message())
		default:
			m.Set(fd, seven(fd))
		}
	}
}

func seven(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(false)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(2)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(7)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(7)
	}
	return protoreflect.ValueOfString("seven")
}

// expectSeven walks a sparse struct and reports what was not filled.
func expectSeven(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("leaf") != "" {
				expectSeven(t, v.Field(i), join(path, v.Type().Field(i).Tag.Get("leaf")))
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			// The other member of a oneof.
			if !slices.Contains([]string{"budget.window|token_bucket.window", "hedge.delay|percentile.delay"}, path) {
				t.Errorf("%s was not copied", path)
			}
			return
		}
		expectSeven(t, v.Elem(), path)
	case reflect.Slice:
		if v.Len() != 1 {
			t.Errorf("%s has %d elements, want 1", path, v.Len())
			return
		}
		expectSeven(t, v.Index(0), path)
	default:
		if got := v.Interface(); v.Kind() == reflect.Map {
			if !reflect.DeepEqual(got, map[string]string{"X-Seven": "7"}) {
				t.Errorf("%s is %v", path, got)
			}
		} else if !slices.Contains([]any{
			7 * time.Second, uint32(7), uint64(7), 7.0, false, "seven", policy.ProtocolHTTP2, policy.TLSVersion13,
			policy.TokenRulePerRetry, backoff.JitterNone,
		}, got) {
			t.Errorf("%s is %v", path, got)
		}
	}
}

func TestEveryFieldOfAPolicyIsCopied(t *testing.T) {
	p := &sallyportv1.Policy{}
	fill(p.ProtoReflect())
	r := policyRule(p)
	if r.Name != "seven" || r.Description != "seven" || r.Priority != 7 || r.Revision != 7 || !r.Off {
		t.Errorf("top fields: %+v", r)
	}
	expectSeven(t, reflect.ValueOf(r.Settings), "")
	expectSeven(t, reflect.ValueOf(r.Match), "match")
}

func TestAbsentFieldsStayAbsent(t *testing.T) {
	if got := policyRule(&sallyportv1.Policy{Name: "policies/x", Retry: &sallyportv1.RetryPolicy{}}); !reflect.DeepEqual(got, policy.Rule{Name: "policies/x"}) {
		t.Errorf("%+v", got)
	}
	unspecified := &sallyportv1.Policy{Retry: &sallyportv1.RetryPolicy{Backoff: &sallyportv1.Backoff{}}}
	if got := policyRule(unspecified); got.Retry.Backoff.Jitter != nil {
		t.Errorf("an unspecified jitter became %v", *got.Retry.Backoff.Jitter)
	}
	if got := policyRule(&sallyportv1.Policy{Mode: sallyportv1.PolicyMode_POLICY_MODE_ENFORCE}); got.Off {
		t.Error("an enforced policy is off")
	}
}

func TestZeroIsAValue(t *testing.T) {
	got := policyRule(&sallyportv1.Policy{
		Retry: &sallyportv1.RetryPolicy{RetryAfterMax: durationpb.New(0), Hold: new(false)},
		Body:  &sallyportv1.BodyPolicy{ReplayBytes: new(uint64(0))},
	})
	if r := got.Retry; r.RetryAfterMax == nil || *r.RetryAfterMax != 0 || r.Hold == nil || *r.Hold {
		t.Errorf("retry_after_max %v, hold %v", r.RetryAfterMax, r.Hold)
	}
	if b := got.Body.ReplayBytes; b == nil || *b != 0 {
		t.Errorf("replay_bytes %v", b)
	}
}

func TestAnEmptyBlockWithASwitchTurnsItOn(t *testing.T) {
	got := policyRule(&sallyportv1.Policy{
		Idempotency: &sallyportv1.IdempotencyPolicy{},
		Hedge:       &sallyportv1.HedgePolicy{Enabled: new(false)},
		Retry:       &sallyportv1.RetryPolicy{VerdictHeader: &sallyportv1.VerdictHeader{}},
	})
	for name, on := range map[string]*bool{"idempotency": got.Idempotency.Enabled, "verdict_header": got.Retry.VerdictHeader.Enabled} {
		if on == nil || !*on {
			t.Errorf("%s is not on", name)
		}
	}
	if got.Hedge.Enabled == nil || *got.Hedge.Enabled || got.StatusProbe.Enabled != nil {
		t.Errorf("hedge %v, status_probe %v", got.Hedge.Enabled, got.StatusProbe.Enabled)
	}
}
