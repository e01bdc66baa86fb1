package broker

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// FuzzDecodeRequest: whatever bytes come, both codecs read the same or refuse with the same words.
func FuzzDecodeRequest(f *testing.F) {
	for _, raw := range oddRequests() {
		f.Add(raw)
	}
	full := &pb.CallRequest{}
	fillMessage(full.ProtoReflect())
	f.Add(marshal(f, full))
	f.Add(marshal(f, usualRequest("http://example.com/")))
	f.Fuzz(func(t *testing.T, raw []byte) { checkDecode(t, raw) })
}

// FuzzEncodeReply: whatever reply can be read from bytes, both codecs write the same.
func FuzzEncodeReply(f *testing.F) {
	full := &pb.CallResponse{}
	fillMessage(full.ProtoReflect())
	f.Add(marshal(f, full))
	f.Add(marshal(f, usualReply(3)))
	f.Add(marshal(f, usualReply(lentBody)))
	f.Add([]byte("\x1a\x04\x12\x02\x08\x01"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &pb.CallResponse{}
		if proto.Unmarshal(raw, m) == nil {
			checkEncode(t, m)
		}
	})
}

// TestCodecAgreesWithGeneratedCode, on messages of every shape.
func TestCodecAgreesWithGeneratedCode(t *testing.T) {
	t.Run("decode", rapid.MakeCheck(func(t *rapid.T) {
		m := &pb.CallRequest{}
		drawMessage(t, m.ProtoReflect(), rapid.SampledFrom([]string{"", "GET", "x", "grün", "a longer text"}))
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if !decodeRequest(raw, rapid.Bool().Draw(t, "ours"), &pb.CallRequest{}) {
			t.Fatal("not decoded by our own code")
		}
		checkDecode(t, raw)
	}))
	t.Run("encode", rapid.MakeCheck(func(t *rapid.T) {
		m := &pb.CallResponse{}
		texts := []string{"", "x", "grün", "a longer text"}
		if rapid.IntRange(0, 9).Draw(t, "broken text") == 0 {
			texts = append(texts, "\xff")
		}
		drawMessage(t, m.ProtoReflect(), rapid.SampledFrom(texts))
		checkEncode(t, m)
	}))
}

// drawMessage fills a message at random.
func drawMessage(t *rapid.T, m protoreflect.Message, text *rapid.Generator[string]) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !rapid.Bool().Draw(t, string(f.Name())) {
			continue
		}
		switch {
		case f.IsMap():
			for range rapid.IntRange(0, 3).Draw(t, "labels") {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(text.Draw(t, "name")).MapKey(), protoreflect.ValueOfString(text.Draw(t, "value")))
			}
		case f.IsList():
			for range rapid.IntRange(0, 12).Draw(t, "length") {
				drawMessage(t, m.Mutable(f).List().AppendMutable().Message(), text)
			}
		case f.Message() != nil:
			drawMessage(t, m.Mutable(f).Message(), text)
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(text.Draw(t, "text")))
		default:
			m.Set(f, rapid.SampledFrom(scalars(f)).Draw(t, "value"))
		}
	}
}
