package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// wire is the stream of an RPC below its codec. The methods are exported by grpc-go's stream but promised by no document of it, so
// that a new version of grpc-go may break this (the tests tell); docs/adr/0006 says what is had for that.
//
// [grpc.ServerStream] reads a message whole or not at all. Nobody learns how large it is, or whether it has begun, before it is in
// memory; and once the reading is ended from here, the answer is CANCELLED whatever the handler would say.
type wire interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

// wireOf gives the wire of an RPC and the means to end its reading; false under a gRPC library that has no such thing.
func wireOf(ctx context.Context) (w wire, hangUp context.CancelCauseFunc, ok bool) {
	w, below := grpc.ServerTransportStreamFromContext(ctx).(wire)
	hangUp, tapped := hangUpOf(ctx)
	return w, hangUp, below && tapped
}

// untapped is the error of every RPC under such a library.
func untapped() error {
	return refusal(codes.Internal, reasonInternal, "the gRPC library of this broker does not tell the size of a message")
}

// messageHead is what stands before a message: a flag and the length, big endian (gRPC over HTTP/2, Length-Prefixed-Message).
type messageHead [5]byte

func (h *messageHead) size() uint32 { return binary.BigEndian.Uint32(h[1:]) }

// readHead waits for the begin of a message; [io.EOF] when the client has ended its side.
func readHead(w wire, head *messageHead) error {
	if err := w.ReadMessageHeader(head[:]); err != nil {
		return broken(err)
	}
	return nil
}

// accept judges a message by its head, and gives what unpacks it; nil: it is not packed. What is wrong is told in the codes and words
// of grpc-go, here and below. A compression that nobody knows was refused by gRPC before.
func accept(w wire, head *messageHead, most int) (encoding.Compressor, error) {
	if int64(head.size()) > int64(most) {
		return nil, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", head.size(), most)
	}
	switch head[0] {
	case 0:
		return nil, nil //nolint:nilnil // not packed, and nothing wrong
	case 1:
	default:
		return nil, status.Errorf(codes.Internal, "grpc: received unexpected payload format %d", head[0])
	}
	c := encoding.GetCompressor(w.RecvCompress())
	if c == nil {
		return nil, status.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	}
	return c, nil
}

// readBody reads the message that head announces.
func readBody(w wire, head *messageHead, c encoding.Compressor, most int, into any) error {
	data, err := w.Read(int(head.size()))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // its head is there: an end now is not that of a client who has said all
	}
	if err != nil {
		return broken(err)
	}
	if c != nil {
		packed := data
		data, err = unpack(c, packed, most)
		packed.Free()
		if err != nil {
			return err
		}
	}
	defer data.Free()
	if err := newCodec().Unmarshal(data, into); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

func unpack(c encoding.Compressor, packed mem.BufferSlice, most int) (mem.BufferSlice, error) {
	from := packed.Reader()
	defer func() { _ = from.Close() }() // what it says of the rest is of no use
	r, err := c.Decompress(from)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: failed to decompress the message: %v", err)
	}
	if closer, ok := r.(io.Closer); ok {
		defer func() { _ = closer.Close() }()
	}
	data, err := mem.ReadAll(io.LimitReader(r, int64(most)+1), mem.DefaultBufferPool()) // a byte more tells that there is more
	switch {
	case err != nil:
		err = status.Errorf(codes.Internal, "grpc: failed to read decompressed data: %v", err)
	case data.Len() > most:
		err = status.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", most)
	default:
		return data, nil
	}
	data.Free()
	return nil, err
}

// readEnd waits for the end of the only message of an RPC.
func readEnd(w wire, head *messageHead) error {
	err := readHead(w, head)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	}
	return err
}

// noMessage is the error of an RPC that ended without its message.
func noMessage() error {
	return status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
}

// broken turns a message that ended in its midst into the error of grpc-go.
func broken(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.Internal, io.ErrUnexpectedEOF.Error())
	}
	return err
}
