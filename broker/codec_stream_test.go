package broker

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestChunkIsWrittenAsTheStockCodecWrites(t *testing.T) {
	for _, size := range []int{0, 1, 127, 128, 16<<10 - 1, 16 << 10, chunkBytes, 1 << 20, 2<<20 + 1} {
		m := &pb.StreamCallResponse{Part: &pb.StreamCallResponse_Chunk{Chunk: bytes.Repeat([]byte{7}, size)}}
		ours, err := newCodec().Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		stock, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		clear(m.GetChunk()) // whoever sent it may use it again
		if !bytes.Equal(ours.Materialize(), stock) {
			t.Errorf("%d bytes: written otherwise", size)
		}
		ours.Free()
	}
}

// What comes in pieces of any sizes, and is no message at all, is read as the generated code reads it.
func TestPieceIsReadAsTheGeneratedCodeReads(t *testing.T) {
	var p piece // one for all, as in a stream
	rapid.Check(t, func(t *rapid.T) {
		var raw []byte
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			raw = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "raw")
		case 1:
			raw, _ = proto.Marshal(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Chunk{Chunk: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "chunk")}})
		case 2:
			raw, _ = proto.Marshal(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Chunk{Chunk: []byte("first")}})
			raw = append(raw, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "more")...)
		default:
			raw, _ = proto.Marshal(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Head{Head: headAbout(rapid.String().Draw(t, "url"))}})
		}
		var data mem.BufferSlice
		for rest := raw; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			data, rest = append(data, mem.SliceBuffer(rest[:n])), rest[n:]
		}
		var want pb.StreamCallRequest
		wantErr := proto.Unmarshal(raw, &want)
		if err := newCodec().Unmarshal(data, &p); (err != nil) != (wantErr != nil) {
			t.Fatalf("%x: %v, want %v", raw, err, wantErr)
		}
		if wantErr != nil {
			return
		}
		if p.other != nil {
			if !proto.Equal(p.other, &want) {
				t.Fatalf("%x: %v, want %v", raw, p.other, &want)
			}
			return
		}
		part, ok := want.GetPart().(*pb.StreamCallRequest_Chunk)
		if !ok || !bytes.Equal(p.chunk, part.Chunk) || len(want.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("%x: chunk %x, want %v", raw, p.chunk, &want)
		}
	})
}

func headAbout(url string) *pb.CallRequest {
	return &pb.CallRequest{Request: &pb.HttpRequest{Url: url}}
}

// A stream of any length uses the buffers it began with.
func TestPieceUsesItsBufferAgain(t *testing.T) {
	raw, err := proto.Marshal(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Chunk{Chunk: make([]byte, 64<<10)}})
	if err != nil {
		t.Fatal(err)
	}
	data, c := mem.BufferSlice{mem.SliceBuffer(raw[:100]), mem.SliceBuffer(raw[100:])}, newCodec()
	var p piece
	if n := testing.AllocsPerRun(100, func() {
		if err := c.Unmarshal(data, &p); err != nil || len(p.chunk) != 64<<10 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for each", n)
	}
}
