package broker

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// mask checks the paths of an update.
func (d *decoder) mask(mask *fieldmaskpb.FieldMask) {
	for i, path := range mask.GetPaths() {
		field := fmt.Sprintf("update_mask.paths[%d]", i)
		switch {
		case path == "*" && len(mask.GetPaths()) > 1:
			d.add(field, `"*" stands alone`)
		case path == "*":
		case path == "name":
			d.add(field, "a policy keeps its name; create another one")
		case !maskable(path):
			d.add(field, `is no field of a policy; write a block such as "retry", or a field in one such as "retry.backoff.cap"`)
		}
	}
}

// maskable tells whether a path leads to a field of a policy, not into what counts as one value.
func maskable(path string) bool {
	message := (&pb.Policy{}).ProtoReflect().Descriptor()
	for rest := path; ; {
		name, more, ok := strings.Cut(rest, ".")
		fd := message.Fields().ByName(protoreflect.Name(name))
		switch {
		case fd == nil:
			return false
		case !ok:
			return true
		case !isBlock(fd):
			return false
		}
		message, rest = fd.Message(), more
	}
}

// isBlock tells whether a field is a message whose fields count one by one (AIP-134 has masks lead into these only).
func isBlock(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && !fd.IsList() && !fd.IsMap() && !strings.HasPrefix(string(fd.Message().FullName()), "google.protobuf.")
}

// applyMask gives dst the fields of src that the mask names; what is absent in src is cleared. Without a mask it gives it every field
// that src has (AIP-134). A library would make the blocks on the way to what it clears, and here to write a block is to turn it on.
func applyMask(dst, src *pb.Policy, mask *fieldmaskpb.FieldMask) {
	name := dst.GetName()
	switch paths := mask.GetPaths(); {
	case len(paths) == 0:
		overlay(dst.ProtoReflect(), src.ProtoReflect())
	case paths[0] == "*":
		proto.Reset(dst)
		proto.Merge(dst, src)
	default:
		for _, path := range paths {
			applyPath(dst.ProtoReflect(), src.ProtoReflect(), path)
		}
	}
	dst.Name = name
}

func overlay(dst, src protoreflect.Message) {
	for fd, v := range src.Range {
		if isBlock(fd) && dst.Has(fd) {
			overlay(dst.Mutable(fd).Message(), v.Message())
		} else {
			dst.Set(fd, v)
		}
	}
}

func applyPath(dst, src protoreflect.Message, path string) {
	name, rest, deeper := strings.Cut(path, ".")
	fd := dst.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case !deeper && src.Has(fd):
		dst.Set(fd, src.Get(fd))
	case !deeper:
		dst.Clear(fd)
	case dst.Has(fd) || sets(src, path):
		applyPath(dst.Mutable(fd).Message(), src.Get(fd).Message(), rest)
	}
}

// sets tells whether a message has what a path leads to.
func sets(m protoreflect.Message, path string) bool {
	name, rest, deeper := strings.Cut(path, ".")
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	return m.Has(fd) && (!deeper || sets(m.Get(fd).Message(), rest))
}
