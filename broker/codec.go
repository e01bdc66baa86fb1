package broker

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// codec turns the two messages of Call into bytes and back with less work than reflection needs, and hands everything else to
// grpc-go's own codec: other messages, and whatever in these two is unusual. A message it hands on it hands on whole, so that errors
// and rare meanings (merging, unknown fields, a broken encoding) are those of the generated code and of nobody else.
//
// It serves this server alone: what is registered with grpc-go, and so every client in this process, stays stock.
type codec struct {
	stock encoding.CodecV2
}

// newCodec is asked for by [NewServer] only.
func newCodec() codec { return codec{stock: stockCodec()} }

func stockCodec() encoding.CodecV2 { return encoding.GetCodecV2(proto.Name) }

// Marshal writes a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*pb.CallResponse); ok {
		if out, ok := encodeReply(m, mem.DefaultBufferPool()); ok {
			return out, nil
		}
	}
	if m, ok := v.(*pb.StreamCallResponse); ok {
		if part, ok := m.GetPart().(*pb.StreamCallResponse_Chunk); ok {
			return encodeChunk(part.Chunk, mem.DefaultBufferPool()), nil
		}
	}
	return c.stock.Marshal(v) //nolint:wrapcheck // grpc-go words it
}

// Unmarshal reads a message. Nothing of it stays in data, which grpc-go uses again.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*pb.CallRequest); ok && readRequest(data, m) {
		return nil
	}
	if m, ok := v.(*piece); ok {
		if m.read(data) {
			return nil
		}
		m.other = &pb.StreamCallRequest{}
		v = m.other
	}
	return c.stock.Unmarshal(data, v) //nolint:wrapcheck // grpc-go words it
}

// Name is that of the stock codec: on the wire the two are one.
func (c codec) Name() string { return c.stock.Name() }

// readRequest reports whether the request was read; if not, m holds a part of it.
func readRequest(data mem.BufferSlice, m *pb.CallRequest) bool {
	if len(data) == 1 {
		return decodeRequest(data[0].ReadOnlyData(), false, m)
	}
	// What came in several frames must be put together, and a body is most of it: it stays where it then is. The pool is left alone,
	// whose buffers have few sizes (1 MiB from 32 KiB on) and are wiped in full each time.
	return decodeRequest(data.Materialize(), true, m)
}
