package broker

import (
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const (
	// lentBody is the size from which a body is lent to gRPC instead of copied: a buffer of the pool has 1 MiB from 32 KiB on and is
	// wiped in full each time.
	lentBody = 8 << 10
	// leastPooled is the least that the pool takes back; anything smaller would be made anew for every reply.
	leastPooled = 1<<10 + 1
)

// encodeReply writes a reply, byte for byte as the generated code does. It reports false for one that has something this code does
// not know.
//
// A large body is lent: gRPC reads it while it sends, long after the handler has returned. It may, because a body is made for one
// reply and nobody writes into it afterwards (h1.Response).
func encodeReply(m *pb.CallResponse, pool mem.BufferPool) (mem.BufferSlice, bool) {
	// Twice through the same code: first to look at everything and learn the size, then to write.
	look := writer{}
	look.reply(m)
	if look.odd {
		return nil, false
	}
	size := -look.at
	buf := pool.Get(max(size, leastPooled))
	*buf = (*buf)[:size]
	w := writer{out: *buf, at: size}
	w.reply(m)
	whole := mem.NewBuffer(buf, pool)
	if w.lent == nil {
		return mem.BufferSlice{whole}, true
	}
	out := mem.BufferSlice{whole.Slice(0, w.split), mem.SliceBuffer(w.lent), whole.Slice(w.split, size)}
	whole.Free() // its slices hold it
	return out, true
}

// writer writes a message from its end to its beginning, so that the length of an inner message is known when it is due.
type writer struct {
	out   []byte // nil: only look
	at    int    // everything from here on is written; below zero when looking
	odd   bool   // there is something that is not known here
	lent  []byte // the body, unless it was copied
	split int    // where in out it belongs
}

// mark is a place in what is written.
type mark struct{ at, lent int }

func (w *writer) mark() mark { return mark{w.at, len(w.lent)} }

// begin turns what was written since the end of a message into a field. The number is as in the proto, here and below.
func (w *writer) begin(number protowire.Number, end mark) {
	w.length(number, end.at-w.at+len(w.lent)-end.lent)
}

func (w *writer) length(number protowire.Number, n int) {
	w.varint(uint64(n)) //nolint:gosec // a length
	w.varint(protowire.EncodeTag(number, protowire.BytesType))
}

func (w *writer) varint(v uint64) {
	if v < 0x80 { // nearly all are
		w.at--
		if w.out != nil {
			w.out[w.at] = byte(v)
		}
		return
	}
	w.at -= protowire.SizeVarint(v)
	if w.out != nil {
		protowire.AppendVarint(w.out[:w.at], v)
	}
}

func (w *writer) number(number protowire.Number, v uint64) {
	if v != 0 {
		w.varint(v)
		w.varint(protowire.EncodeTag(number, protowire.VarintType))
	}
}

// enum is for what is signed on the wire.
func (w *writer) enum(number protowire.Number, v int32) {
	w.number(number, uint64(int64(v))) //nolint:gosec // two's complement
}

func (w *writer) truth(number protowire.Number, v bool) { w.number(number, protowire.EncodeBool(v)) }

func (w *writer) text(number protowire.Number, s string) {
	if s == "" {
		return
	}
	w.at -= len(s)
	if w.out != nil {
		copy(w.out[w.at:], s)
	} else if !utf8.ValidString(s) {
		w.odd = true
	}
	w.length(number, len(s))
}

func (w *writer) bytes(number protowire.Number, b []byte) {
	if len(b) == 0 {
		return
	}
	w.at -= len(b)
	if w.out != nil {
		copy(w.out[w.at:], b)
	}
	w.length(number, len(b))
}

func (w *writer) body(number protowire.Number, b []byte) {
	if len(b) < lentBody {
		w.bytes(number, b)
		return
	}
	w.lent, w.split = b, w.at
	w.length(number, len(b))
}

// known looks for fields of a message that came from a newer program; they are the stock codec's to keep.
func (w *writer) known(m proto.Message) {
	if w.out == nil && len(m.ProtoReflect().GetUnknown()) > 0 {
		w.odd = true
	}
}

func (w *writer) reply(m *pb.CallResponse) {
	w.known(m)
	w.text(17, m.GetDeferredCall())
	w.text(16, m.GetBrokerId())
	w.text(15, m.GetPolicy())
	w.text(14, m.GetTraceId())
	w.truth(13, m.GetReplayed())
	w.text(12, m.GetOperationId())
	w.duration(11, m.GetRetryAfter())
	w.enum(10, int32(m.GetNext()))
	w.truth(9, m.GetRetrySafe())
	w.number(8, uint64(m.GetSends()))
	w.duration(7, m.GetElapsed())
	w.text(6, m.GetDetail())
	w.enum(5, int32(m.GetReason()))
	for _, a := range slices.Backward(m.GetAttempts()) {
		w.attempt(4, a)
	}
	w.response(3, m.GetResponse())
	w.enum(2, int32(m.GetEffect()))
	w.enum(1, int32(m.GetOutcome()))
}

func (w *writer) response(number protowire.Number, m *pb.HttpResponse) {
	if m == nil {
		return
	}
	w.known(m)
	end := w.mark()
	w.truth(6, m.GetBodyOmitted())
	w.text(5, m.GetProtocol())
	w.headers(4, m.GetTrailers())
	w.body(3, m.GetBody())
	w.headers(2, m.GetHeaders())
	w.number(1, uint64(m.GetStatus()))
	w.begin(number, end)
}

func (w *writer) headers(number protowire.Number, list []*pb.HttpHeader) {
	for _, m := range slices.Backward(list) {
		if m == nil { // an empty one to the generated code
			w.odd = true
			return
		}
		w.known(m)
		end := w.mark()
		w.bytes(3, m.GetRawValue())
		w.text(2, m.GetValue())
		w.text(1, m.GetName())
		w.begin(number, end)
	}
}

func (w *writer) attempt(number protowire.Number, m *pb.Attempt) {
	if m == nil {
		w.odd = true
		return
	}
	w.known(m)
	end := w.mark()
	w.text(19, m.GetTraceId())
	if t := m.GetStartTime(); t != nil {
		w.known(t)
		w.time(18, t.GetSeconds(), t.GetNanos())
	}
	w.text(17, m.GetSpanId())
	w.decision(16, m.GetDecision())
	w.truth(15, m.GetReusedConnection())
	w.text(14, m.GetProtocol())
	w.text(13, m.GetRemoteAddress())
	w.text(12, m.GetOrigin())
	w.text(11, m.GetDetail())
	w.enum(10, int32(m.GetFailure()))
	w.enum(9, int32(m.GetEvidence()))
	w.number(8, uint64(m.GetStatus()))
	w.duration(7, m.GetDuration())
	w.duration(6, m.GetTimeout())
	w.duration(5, m.GetQueued())
	w.duration(4, m.GetWaited())
	w.duration(3, m.GetOffset())
	w.enum(2, int32(m.GetKind()))
	w.number(1, uint64(m.GetNumber()))
	w.begin(number, end)
}

func (w *writer) decision(number protowire.Number, m *pb.Decision) {
	if m == nil {
		return
	}
	w.known(m)
	end := w.mark()
	w.duration(3, m.GetWait())
	w.enum(2, int32(m.GetReason()))
	w.enum(1, int32(m.GetVerdict()))
	w.begin(number, end)
}

func (w *writer) duration(number protowire.Number, m *durationpb.Duration) {
	if m != nil {
		w.known(m)
		w.time(number, m.GetSeconds(), m.GetNanos())
	}
}

// time writes a Duration or a Timestamp, which are alike on the wire.
func (w *writer) time(number protowire.Number, seconds int64, nanos int32) {
	end := w.mark()
	w.enum(2, nanos)
	w.number(1, uint64(seconds)) //nolint:gosec // two's complement
	w.begin(number, end)
}
