package broker

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// tagChunk is a chunk on the wire, the same both ways.
const tagChunk = 2<<3 | delimited

// piece is a message of a stream after its head: a chunk, as nearly all are, or whatever else the generated code makes of it. Its buffer
// is used again for the next one, so that a stream leaves no garbage behind that grows with its body.
type piece struct {
	buf   []byte
	chunk []byte                // in buf
	other *pb.StreamCallRequest // nil: it is a chunk
}

// read takes a message apart; false: it is no plain chunk.
func (m *piece) read(data mem.BufferSlice) bool {
	n := data.Len()
	m.buf = slices.Grow(m.buf[:0], n)[:n]
	m.chunk, m.other = nil, nil
	data.CopyTo(m.buf)
	if n == 0 || uint64(m.buf[0]) != tagChunk {
		return false
	}
	size, used := protowire.ConsumeVarint(m.buf[1:])
	if used < 0 || size != uint64(n-1-used) { //nolint:gosec // a length
		return false
	}
	m.chunk = m.buf[1+used:]
	return true
}

// copyBytes is how much goes into one buffer of the pool: its next larger one has 1 MiB, and is wiped in full each time.
const copyBytes = 32 << 10

// encodeChunk writes a message with a chunk, which is copied: whoever sends it may use its bytes again at once. The copy is in buffers of the
// pool, which has them back when gRPC has sent it.
func encodeChunk(chunk []byte, pool mem.BufferPool) mem.BufferSlice {
	head := protowire.AppendVarint(append(make([]byte, 0, 1+4), byte(tagChunk)), uint64(len(chunk)))
	out := append(make(mem.BufferSlice, 0, 1+chunkBytes/copyBytes), mem.SliceBuffer(head))
	for part := range slices.Chunk(chunk, copyBytes) {
		out = append(out, mem.Copy(part, pool))
	}
	return out
}
