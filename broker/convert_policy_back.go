package broker

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/admin"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// ParsePolicyDocument reads what [admin.Policy] has as its document: a Policy in the JSON form of protobuf. Fields of a later version
// are refused: a policy must not be in force by half.
func ParsePolicyDocument(document []byte) (policy.Rule, error) {
	p := new(pb.Policy)
	if err := protojson.Unmarshal(document, p); err != nil {
		return policy.Rule{}, fmt.Errorf("policy document: %w", err)
	}
	return policyRule(p), nil
}

// draft makes of a message what is stored: what operators say, and nothing that the broker sets.
func draft(p *pb.Policy) (admin.Draft, error) {
	p = proto.CloneOf(p)
	p.Etag, p.Revision, p.CreateTime, p.UpdateTime, p.ReadOnly = "", 0, nil, nil, false
	document, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(p)
	if err != nil {
		return admin.Draft{}, fmt.Errorf("policy document: %w", err)
	}
	return admin.Draft{Rule: policyRule(p), Document: document}, nil
}

// PolicyFile writes a policy file with those policies that a store has.
func PolicyFile(all []admin.Policy) ([]byte, error) {
	file := &pb.PolicyFile{}
	for i := range all {
		if p := policyMessage(&all[i]); !p.GetReadOnly() {
			p.Etag, p.Revision, p.CreateTime, p.UpdateTime = "", 0, nil, nil
			file.Policies = append(file.Policies, p)
		}
	}
	// A file without a list is refused, so that one that was cut short is none without policies.
	content, err := protojson.MarshalOptions{UseProtoNames: true, Multiline: true, EmitUnpopulated: file.Policies == nil}.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	return append(content, '\n'), nil
}

// policyMessage is a policy as the API shows it.
func policyMessage(p *admin.Policy) *pb.Policy {
	m := new(pb.Policy)
	if p.Document == nil || protojson.Unmarshal(p.Document, m) != nil { // it was read once before
		m = ruleMessage(&p.Rule)
	}
	m.Name, m.Revision, m.Etag, m.ReadOnly = p.Rule.Name, p.Rule.Revision, p.Etag, p.ReadOnly()
	if !p.CreateTime.IsZero() {
		m.CreateTime, m.UpdateTime = timestamppb.New(p.CreateTime), timestamppb.New(p.UpdateTime)
	}
	return m
}

// ruleMessage is the way back from policyRule; names decide here too.
func ruleMessage(r *policy.Rule) *pb.Policy {
	p := &pb.Policy{Name: r.Name, Description: r.Description}
	if r.Priority != 0 {
		p.Priority = new(r.Priority)
	}
	if r.Off {
		p.Mode = pb.PolicyMode_POLICY_MODE_OFF
	}
	m := p.ProtoReflect()
	if match := reflect.ValueOf(&r.Match).Elem(); !match.IsZero() {
		putTagged(m.Mutable(m.Descriptor().Fields().ByName("match")).Message(), match)
	}
	putTagged(m, reflect.ValueOf(&r.Settings).Elem())
	return p
}

// putTagged copies what is set in the fields of src into those of the message that bear their names.
func putTagged(m protoreflect.Message, src reflect.Value) {
	for field, v := range src.Fields() {
		name := field.Tag.Get("leaf")
		switch {
		case v.IsZero(), v.Kind() == reflect.Slice && v.Len() == 0, v.Kind() == reflect.Map && v.Len() == 0:
		case strings.Contains(name, "|"): // a oneof: its members are fields of the same message
			putTagged(m, v.Elem())
		default:
			putField(m, m.Descriptor().Fields().ByName(protoreflect.Name(name)), v)
		}
	}
}

// putField copies one field.
func putField(m protoreflect.Message, fd protoreflect.FieldDescriptor, v reflect.Value) {
	switch {
	case fd.IsMap():
		for it := v.MapRange(); it.Next(); {
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString(it.Key().String()).MapKey(), protoreflect.ValueOfString(it.Value().String()))
		}
	case fd.IsList():
		list := m.Mutable(fd).List()
		for i := range v.Len() {
			list.Append(single(fd, v.Index(i), list.NewElement))
		}
	default:
		m.Set(fd, single(fd, reflect.Indirect(v), func() protoreflect.Value { return m.NewField(fd) }))
	}
}

// single gives one value the form of the message.
func single(fd protoreflect.FieldDescriptor, v reflect.Value, empty func() protoreflect.Value) protoreflect.Value {
	if d, ok := reflect.TypeAssert[time.Duration](v); ok {
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect())
	}
	switch fd.Kind() {
	case protoreflect.MessageKind:
		message := empty()
		putTagged(message.Message(), v)
		return message
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(v.Int())) //nolint:gosec // an enum of the proto
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(v.Uint())) //nolint:gosec // of the same type
	default:
		return protoreflect.ValueOf(v.Interface())
	}
}
