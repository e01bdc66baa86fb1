package broker

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	sallyportv1 "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// policyRule gives the sparse form of a policy. Names decide: a field of the message goes where the leaf tag of the same name
// stands, so that there is no second list of the settings (a test compares the two).
func policyRule(p *sallyportv1.Policy) policy.Rule {
	r := policy.Rule{
		Name:        p.GetName(),
		Revision:    p.GetRevision(),
		Description: p.GetDescription(),
		Priority:    p.GetPriority(),
		Off:         p.GetMode() == sallyportv1.PolicyMode_POLICY_MODE_OFF,
	}
	if m := p.GetMatch(); m != nil {
		fillTagged(reflect.ValueOf(&r.Match).Elem(), m.ProtoReflect())
	}
	fillTagged(reflect.ValueOf(&r.Settings).Elem(), p.ProtoReflect())
	return r
}

// fillTagged copies what the message has into the fields of dst that bear its names. A field with several names is a oneof:
// its members are fields of the same message.
func fillTagged(dst reflect.Value, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range dst.NumField() {
		for name := range strings.SplitSeq(dst.Type().Field(i).Tag.Get("leaf"), "|") {
			fd := fields.ByName(protoreflect.Name(name))
			if fd == nil || !m.Has(fd) {
				continue
			}
			if strings.Contains(dst.Type().Field(i).Tag.Get("leaf"), "|") {
				member := reflect.New(dst.Field(i).Type().Elem())
				fillTagged(member.Elem(), m)
				dst.Field(i).Set(member)
				continue
			}
			setField(dst.Field(i), fd, m.Get(fd))
		}
	}
}

// setField copies a field that is there.
func setField(dst reflect.Value, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case fd.IsMap():
		dst.Set(reflect.MakeMap(dst.Type()))
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			dst.SetMapIndex(reflect.ValueOf(k.String()), reflect.ValueOf(v.String()))
			return true
		})
	case fd.IsList():
		for i := range v.List().Len() {
			element := reflect.New(dst.Type().Elem()).Elem()
			setSingle(element, fd, v.List().Get(i))
			dst.Set(reflect.Append(dst, element))
		}
	case fd.Kind() == protoreflect.EnumKind && v.Enum() == 0:
		// Unspecified is absent.
	case dst.Kind() == reflect.Pointer:
		dst.Set(reflect.New(dst.Type().Elem()))
		setSingle(dst.Elem(), fd, v)
	default:
		setSingle(dst, fd, v)
	}
}

// setSingle copies one value.
func setSingle(dst reflect.Value, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case dst.Type() == reflect.TypeFor[time.Duration]():
		d, _ := v.Message().Interface().(*durationpb.Duration)
		dst.SetInt(int64(d.AsDuration())) // saturates
	case fd.Kind() == protoreflect.MessageKind:
		fillTagged(dst, v.Message())
		// To write a block with a switch is to turn it on, also when nothing else is said (contract §5).
		if enabled := dst.FieldByName("Enabled"); enabled.IsValid() && enabled.IsNil() {
			enabled.Set(reflect.ValueOf(new(true)))
		}
	case fd.Kind() == protoreflect.EnumKind:
		dst.SetInt(int64(v.Enum()))
	case dst.CanUint():
		dst.SetUint(v.Uint())
	case dst.CanFloat():
		dst.SetFloat(v.Float())
	case dst.Kind() == reflect.Bool:
		dst.SetBool(v.Bool())
	case dst.Kind() == reflect.String:
		dst.SetString(v.String())
	default:
		panic(fmt.Sprintf("leaf %s has no place for a %s", fd.FullName(), fd.Kind()))
	}
}
